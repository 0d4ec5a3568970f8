"""One site's queue: what its partitions, devices and limits are called. Read from ``profiles/slurm/site.yaml``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from adrbench.config.files import read_yaml
from adrbench.config.parse import parse
from adrbench.config.section import Section
from pydantic import Field

# What sbatch takes as a name without quoting.
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$")]


class Class(Section):
    """Limits of one class of jobs."""

    partition: Word | None = Field(None, description="partition; none: the queue's default")
    minutes: int = Field(gt=0, description="time limit of a job in minutes")
    memory_mb: int = Field(gt=0, description="memory of a job in MB")
    cpus: int = Field(1, gt=0, description="CPUs of a job")


class Site(Section):
    """A queue as one site runs it."""

    setup: list[Annotated[str, Field(min_length=1)]] = Field(
        [], description="shell lines at the start of every queued job; a failing line fails the job"
    )
    gres: Word | None = Field(None, description="name of the devices' generic resource, such as dcu or gpu")
    account: Word | None = None
    device: Class = Field(description="measuring jobs; all others run where Snakemake runs")

    def resources(self, devices: int) -> dict[str, Any]:
        """Snakemake resources of a job that needs ``devices`` devices."""
        limits = self.device
        found: dict[str, Any] = {
            "device": devices,
            "runtime": limits.minutes,
            "mem_mb": limits.memory_mb,
            "cpus_per_task": limits.cpus,
        }
        if limits.partition:
            found["slurm_partition"] = limits.partition
        if self.account:
            found["slurm_account"] = self.account
        if self.gres:
            found["gres"] = f"{self.gres}:{devices}"
        return found


def load_site(path: Path) -> Site:
    """The site file at ``path``.

    Raises:
        ConfigError: it is missing or wrong; the text names file and key.
    """
    return parse(Site, read_yaml(path), str(path))
