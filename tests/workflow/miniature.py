"""The real workflow in miniature: real Snakemake, the real rules and decide stage; measuring jobs are stand-ins.

A ``sitecustomize.py`` on PYTHONPATH catches ``python -m adrbench.<stage>`` of the measuring stages and writes evidence
of the real schema instead, with numbers that the test chose. What is proved is which jobs run, in which order, and
what the workflow makes of their evidence; nothing about vLLM.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from adrbench.paths import PYTHONPATH, ROOT

HOOK = """
import os, sys
argv = getattr(sys, "orig_argv", [])
if "MINIATURE" in os.environ and "-m" in argv:
    module = argv[argv.index("-m") + 1]
    if module in {modules!r}:
        sys.path.insert(0, {folder!r})
        import miniature_jobs
        miniature_jobs.main(module, argv)
"""
# Stages whose jobs measure. decide and report are the project's own.
MEASURING = ["device", "model", "kernels", "serve", "eval", "integrate", "profile", "profile.ceiling", "claims"]

PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


class Miniature:
    """A working folder. ``numbers``: arm -> {rate, pool, noise, minutes, score}, read anew by each job."""

    def __init__(self, folder: Path, arms: dict[str, dict[str, Any]], **serve: Any):
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(
            HOOK.format(modules=[f"adrbench.{stage}" for stage in MEASURING], folder=str(Path(__file__).parent))
        )
        self.platform = copy.deepcopy(PLATFORM)
        self.platform["serve"].update({"baseline_rounds": None} | serve)
        self.platform["arms"] = [
            {"name": name, "baseline": place == 0, "scheme": "bf16"} for place, name in enumerate(arms)
        ]
        self.platform["integrate"], self.decisions = [], {}
        self.arms = arms

    def decision(self, adr: str, **changes: Any) -> None:
        """A decision over all arms, from the shipped ADR 0010 with changed keys."""
        shipped = yaml.safe_load((ROOT / "config/decisions/adr0010.yaml").read_text())
        options = [{"name": arm, "title": arm, "arms": [arm]} for arm in self.arms]
        self.decisions[adr] = shipped | {"id": adr, "options": options, "resolutions": []} | changes

    def __call__(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run Snakemake."""
        platforms, decisions = self.folder / "platforms", self.folder / "decisions"
        for place in (platforms, decisions):
            place.mkdir(exist_ok=True)
        (platforms / "cpu.yaml").write_text(yaml.safe_dump(self.platform, allow_unicode=True))
        for adr, content in self.decisions.items():
            (decisions / f"{adr}.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))
        values = {
            "platforms": str(platforms),
            "decisions": str(decisions),
            "adrs": list(self.decisions),
            "claims": {"enabled": False},
        }
        (self.folder / "values.yaml").write_text(yaml.safe_dump(values))
        (self.folder / "numbers.json").write_text(json.dumps(self.arms))
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "-s",
            str(ROOT / "Snakefile"),
            "-d",
            str(self.work),
            "--cores",
            "1",
        ]
        files = ["--configfile", str(ROOT / "config/config.yaml"), str(self.folder / "values.yaml")]
        environment = os.environ | {
            "PYTHONPATH": f"{self.folder / 'hook'}:{PYTHONPATH}",
            "MINIATURE": str(self.folder),
        }
        return subprocess.run(
            [*command, *arguments, *files],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    def started(self) -> list[str]:
        """Jobs of measuring stages in the order in which they began, since the last call: ``serve a r1``."""
        log = self.folder / "jobs.log"
        lines = log.read_text().splitlines() if log.is_file() else []
        log.write_text("")
        return lines

    def json(self, path: str) -> Any:
        return json.loads((self.work / path).read_text())
