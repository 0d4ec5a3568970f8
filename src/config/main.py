"""Sections of config/config.yaml: what to run, and what of it to check and to render."""

from __future__ import annotations

from typing import Annotated, Literal

from adrbench.config.section import Name, Section, check_once
from pydantic import Field, field_validator


class Report(Section):
    """What is rendered."""

    languages: list[Literal["en", "zh"]] = Field(["en", "zh"], min_length=1)

    @field_validator("languages")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        check_once("languages", value)
        return value


class Claims(Section):
    """Claims of the team's documents, checked against vLLM's source."""

    enabled: bool = True
    versions: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]] = Field(
        ["0.18.1"], min_length=1, description="vLLM versions whose source is checked"
    )
    decisions: list[Name] = Field(
        ["adr0010", "adr0011"], description="decisions whose evidence the documents' statements are held against"
    )
    files: list[Name] = Field(["adr0010", "adr0011", "learning", "rules"], description="files of config/claims/")
    wheels: str | None = Field(None, description="folder of vLLM wheels; none: .envs/wheels, filled by the set-up")


class Cluster(Section):
    """Runs on a queue."""

    site: str = Field("profiles/slurm/site.yaml", description="the queue's partitions, devices and limits")


class Main(Section):
    """config/config.yaml: what to edit first."""

    platform: Name = Field(description="file of `platforms` to run")
    platforms: str = Field("config/platforms", description="folder of platform files")
    policies: str = Field("config/policies.yaml", description="file of policies")
    decisions: str = Field("config/decisions", description="folder of decision files")
    adrs: list[Annotated[str, Field(pattern=r"^adr[a-z0-9]+$")]] = Field(description="decisions to render")
    report: Report = Report()
    claims: Claims = Claims()
    cluster: Cluster = Cluster()
    budget_minutes: float | None = Field(
        None,
        gt=0,
        description="accelerator minutes that `decide_<adr>` may spend; none: the decision's `adaptive.budget_minutes`",
    )

    @field_validator("adrs")
    @classmethod
    def _once(cls, value: list[str]) -> list[str]:
        check_once("adrs", value)
        return value
