"""Every command of docs/offline.md is run here, in its order, with target `local` and platform `cpu` for `h200`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.evidence import Evidence
from adrbench.paths import ROOT

COMMANDS = [
    line.strip()
    for line in (ROOT / "docs/offline.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("    ")
]


def shell(command: str, cwd: Path, path: Path) -> str:
    environment = os.environ | {"PATH": f"{path}:/usr/bin:/bin", "PYTHONPATH": ""}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
def test_every_command_of_the_document_works(target_folder, tmp_path):
    installed, _, pieces = target_folder
    programs, home, into = tmp_path / "bin", tmp_path / "home", tmp_path / "the target"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    for folder in (home, into):
        shutil.copytree(installed, folder, symlinks=True)
    times = {"started_at": evidence.now(), "finished_at": evidence.now()}
    evidence.write(into / "results/cpu/device.json", Evidence(stage="device", platform="cpu", **times))
    ran = []
    for text in COMMANDS:
        command = (
            text.replace("PIECES", f"'{pieces}'").replace("DIR", f"'{into}'").replace("platform=h200", "platform=cpu")
        )
        if text.startswith("make bundle "):
            # What the target runs is run by the fixture; that it would run just that is what is looked at.
            said = shell(f"make -n {text.removeprefix('make ')}", ROOT, programs)
            assert "envs/bundle.py make --target 'h200' --piece-size '57MB'" in said
            assert ("--model '/models/Qwen3.5-27B'" in said) is ("MODEL=" in text)
        elif "bundle.py lock" in text:
            # The lock itself is written by a test with a stand-in for uv; here its command line is parsed.
            shell(re.sub("--target .*", "--help", text), ROOT, programs)
        elif "pipeline_visit.sh" in text:
            # A visit serves; tests/test_pipeline_visit.py runs it. Here: the target has it, its target can be planned.
            assert os.access(into / "benchmarks/pipeline_visit.sh", os.X_OK)
            wanted = text.split()[-1].replace("h200-8b", "cpu")
            assert "total" in shell(f".envs/analysis/bin/snakemake -n --cores 1 {wanted}", home, programs)
        elif "reports/" in text:
            dry = command if " -n " in command else command.replace("--cores 1", "--cores 1 -n")
            assert "total" in shell(dry, home, programs)
        elif "archive merge" in text:
            for path in into.glob("h200.tar.xz*"):
                shutil.move(path, home / path.name)
            assert "1 results merged" in shell(command, home, programs)
            assert (home / "results/cpu/device.json").is_file()
        else:
            assert text.startswith(("python3 PIECES/install.py", "cd DIR && PYTHONPATH=pythonpath"))
            shell(command, tmp_path, programs)
        ran.append(text)
    assert len(ran) == len(COMMANDS) >= 9
