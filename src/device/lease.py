"""Which devices a job may use: leased from the host's, so that two jobs never share one.

A lease is an exclusive ``flock`` on a file per device in a folder that all runs of the host share. The kernel
frees it when the last process that holds it is gone: a crash leaves no stale lease behind, and a server that
outlives its killed job for a moment (its guardian inherits the lease) keeps its device until it has ended.
In a Slurm job the queue has chosen already and nothing is leased (with constrained devices every job sees a number
0); where the site exports nothing for a plain generic resource, the choice is read from ``scontrol``.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from adrbench.device.tools import run_tool

# The one folder that every user of a host can share; it holds empty files only, opened without following links.
LEASES = Path("/tmp/adrbench-leases")  # noqa: S108
POLL_S = 0.5
SAY_EVERY_S = 60.0
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES", "hygon": "HIP_VISIBLE_DEVICES"}
# CUDA's own order is the fastest card first; in this one a number means the same card to it and to nvidia-smi.
ORDER = {"nvidia": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}}
SMI_LIMIT_S = 30.0
GRANTED = re.compile(r"GRES=[^\s]*?\w+(?::\w+)?:\d+\(IDX:([0-9,-]+)\)")

# Descriptors of this process's leases: a guardian inherits them.
held: list[int] = []


class LeaseError(RuntimeError):
    """The devices asked for do not exist here; the text says what does."""


@dataclass(frozen=True)
class Lease:
    """Devices of one job."""

    variable: str
    devices: tuple[str, ...]
    descriptors: tuple[int, ...] = field(default=(), repr=False)

    def release(self) -> None:
        for descriptor in self.descriptors:
            held.remove(descriptor)
            os.close(descriptor)


def numbers(text: str) -> list[str]:
    """``0-2,5`` as single numbers."""
    found: list[str] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found += [str(n) for n in range(int(low), int(high or low) + 1)]
    return found


def granted(text: str) -> list[str] | None:
    """Device numbers that ``scontrol -d show job`` names; None where it names none."""
    match = GRANTED.search(text)
    return numbers(match[1]) if match else None


def smi_numbers(text: str) -> list[str]:
    """Numbers that ``nvidia-smi --query-gpu=index --format=csv,noheader`` lists."""
    return [line.strip() for line in text.splitlines() if line.strip().isdigit()]


def on_host(vendor: str, root: Path = Path("/")) -> list[str]:
    """Numbers of the host's devices, or of those that a container was given.

    NVIDIA's as nvidia-smi counts them, which is CUDA's count too: a container that was given ``/dev/nvidia5`` alone
    calls it 0. Its device files only where the tool does not answer (and in a copy of a host's files, which has no
    driver). AMD's and Hygon's are the GPU nodes of the driver.
    """
    if vendor == "nvidia":
        if root == Path("/"):
            _, output = run_tool("nvidia-smi", ("--query-gpu=index", "--format=csv,noheader"), SMI_LIMIT_S, root)
            if output.status == "ok" and (listed := smi_numbers(output.text)):
                return listed
        found = [path.name.removeprefix("nvidia") for path in (root / "dev").glob("nvidia[0-9]*")]
        return sorted(found, key=int)
    gpus = 0
    for path in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/gpu_id"):
        try:
            gpus += path.read_text().strip() not in ("", "0")
        except OSError:
            continue
    return [str(number) for number in range(gpus)]


def _by_queue(environment: Mapping[str, str]) -> list[str] | None:
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return None
    try:
        command = ["scontrol", "-d", "show", "job", job]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return granted(done.stdout)


def _open(path: Path) -> int:
    """The lease file of one device; an existing one of another user is only read, which suffices for a lock."""
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NOFOLLOW, 0o644)


def _take(folder: Path, vendor: str, candidates: list[str], wanted: int) -> dict[str, int]:
    """Try each candidate once; all that were free, at most ``wanted``: {device: descriptor}."""
    taken: dict[str, int] = {}
    for device in candidates:
        if len(taken) == wanted:
            break
        descriptor = _open(folder / f"{vendor}-{device}.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken[device] = descriptor
        except OSError:
            os.close(descriptor)
    return taken


def _shared_folder(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o1777)
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    return folder


def lease(
    vendor: str,
    wanted: int,
    environment: MutableMapping[str, str] = os.environ,
    folder: Path = LEASES,
    root: Path = Path("/"),
    say: Callable[[str], None] = print,
) -> Lease | None:
    """Lease ``wanted`` devices, waiting until they are free, and set the visible-devices variable.

    Args:
        vendor: ``cpu`` (nothing is leased: None), ``nvidia``, ``amd`` or ``hygon``.
        environment: a variable that is set already (by a queue, by the user) limits the choice.

    Raises:
        LeaseError: fewer devices exist, or are visible, than are wanted.
    """
    variable = VARIABLES.get(vendor)
    if variable is None or wanted <= 0:
        return None
    preset = [word.strip() for word in environment.get(variable, "").split(",") if word.strip()]
    queued = "SLURM_JOB_ID" in environment
    chosen = _by_queue(environment) if queued and not preset else None
    candidates = preset or chosen or on_host(vendor, root)
    if len(candidates) < wanted:
        where = "the queue granted" if chosen else "this host has"
        if preset:
            where = f"{variable}={','.join(preset)} allows"
        raise LeaseError(
            f"{wanted} {vendor} devices are needed, {where} {len(candidates)}; change device.devices of the platform "
            "(or the arm's tensor parallel size), or run where there are more"
        )
    if queued:
        environment[variable] = ",".join(candidates)
        return Lease(variable, tuple(candidates))
    _shared_folder(folder)
    told = float("-inf")
    # All or nothing: a job that kept one of two devices while it waits could block another for ever.
    while len(taken := _take(folder, vendor, candidates, wanted)) < wanted:
        for descriptor in taken.values():
            os.close(descriptor)
        if time.monotonic() - told > SAY_EVERY_S:
            told = time.monotonic()
            say(f"waiting for {wanted} of the {vendor} devices {', '.join(candidates)}: other jobs hold them")
        time.sleep(POLL_S)
    held.extend(taken.values())
    environment[variable] = ",".join(taken)
    environment.update(ORDER.get(vendor, {}))
    return Lease(variable, tuple(taken), tuple(taken.values()))
