"""A real Slurm on this host: a controller and two nodes with two `dcu` devices each, as plain processes.

Needs Debian's packages slurm-wlm (its daemons; no systemd, no munge, no database).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

NODES = ("dcu01", "dcu02")
CONF = """\
ClusterName=adrbench
SlurmctldHost={host}
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
ReturnToService=2
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmdSpoolDir={root}/spool.%n
StateSaveLocation={root}/state
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
MailProg=/bin/true
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=200
GresTypes=dcu
AccountingStorageType=accounting_storage/none
MinJobAge=300
KillWait=3
OverTimeLimit=0
SlurmdTimeout=10
SlurmdParameters=config_overrides
{nodes}
PartitionName=dcu Nodes={names} MaxTime=120 Default=YES State=UP
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Slurm:
    """The running cluster."""

    def __init__(self, root: Path):
        self.root = root
        host = socket.gethostname().split(".")[0]
        for name in ("dev", "state", "bin", *(f"spool.{node}" for node in NODES)):
            (root / name).mkdir()
        gres, nodes = [], []
        for number, node in enumerate(NODES):
            for device in (2 * number, 2 * number + 1):
                (root / f"dev/dcu{device}").touch()
            gres.append(f"NodeName={node} Name=dcu File={root}/dev/dcu[{2 * number}-{2 * number + 1}]")
            nodes.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 RealMemory=32000 "
                "Gres=dcu:2 State=UNKNOWN"
            )
        values = {"root": root, "host": host, "user": "root", "port": free_port(), "names": ",".join(NODES)}
        (root / "slurm.conf").write_text(CONF.format(nodes="\n".join(nodes), **values))
        (root / "gres.conf").write_text("\n".join(gres) + "\n")
        # The plugin takes every SLURM_* variable from the step's environment, SLURM_CONF among them.
        for tool in ("srun", "scontrol"):
            wrapper = root / "bin" / tool
            wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={root}/slurm.conf exec {shutil.which(tool)} "$@"\n')
            wrapper.chmod(0o755)
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
        self.env |= {"SLURM_CONF": str(root / "slurm.conf"), "PATH": f"{root}/bin:{os.environ['PATH']}"}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        argv = ["slurmctld", "-D"] if name == "slurmctld" else ["slurmd", "-D", "-N", name]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.daemons[name] = subprocess.Popen(argv, env=self.env, **quiet)

    def call(self, *argv: str) -> str:
        return subprocess.run(argv, env=self.env, capture_output=True, text=True).stdout

    def wait_idle(self, limit_s: float = 60) -> None:
        deadline = time.monotonic() + limit_s
        while set(self.call("sinfo", "-h", "-N", "-o", "%T").split()) != {"idle"}:
            log = self.root / "slurmctld.log"
            assert time.monotonic() < deadline, log.read_text()[-2000:] if log.is_file() else "no controller log"
            time.sleep(0.2)

    def queued(self) -> list[str]:
        return self.call("squeue", "-h", "-o", "%i %T %j").splitlines()

    def stop(self) -> None:
        subprocess.run(["scancel", "--user", "root"], env=self.env, capture_output=True)
        time.sleep(0.5)
        for process in reversed(self.daemons.values()):
            process.terminate()
        for process in self.daemons.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    if not shutil.which("slurmctld") or os.geteuid() != 0:
        pytest.skip("a real Slurm is started as root from Debian's package slurm-wlm; it is not installed here")
    cluster = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start("slurmctld")
        for node in NODES:
            cluster.start(node)
        cluster.wait_idle()
        yield cluster
    finally:
        cluster.stop()
