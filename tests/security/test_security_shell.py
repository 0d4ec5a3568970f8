"""No value of a configuration and no path is read by a shell: real Snakemake in folders that no one would name so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from adrbench.paths import ROOT

NAMES = ["it's a b", 'say "x" $(touch HERE)', "`touch HERE`; touch HERE & a\\b*?"]


def project(folder: Path) -> Path:
    """A copy of what the workflow reads."""
    for name in ("Snakefile", "rules", "config", "src", "pythonpath", "profiles"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, folder / name, **({"symlinks": True} if (ROOT / name).is_dir() else {}))
    (folder / "envs").mkdir()
    for path in (ROOT / "envs").glob("*.yaml"):
        shutil.copy2(path, folder / "envs" / path.name)
    (folder / ".envs").symlink_to((ROOT / ".envs").resolve())
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_job_runs_in_a_folder_of_any_name(name, tmp_path):
    """The device job, which refuses an interpreter that is not there: its specification arrives as it was written."""
    outside = tmp_path / "x"
    outside.mkdir()
    folder = outside / name
    folder.mkdir()
    project(folder)
    path = folder / "config/platforms/cpu.yaml"
    platform = yaml.safe_load(path.read_text())
    odd = 'it\'s $(touch HERE); "x" `touch HERE` {params} %s \\n'
    platform["serve"]["python"] = f"/nowhere/{odd}/python"
    platform["serve"]["env"]["NOTE"] = odd
    platform["arms"][1]["args"] = ["--note", odd]
    path.write_text(yaml.safe_dump(platform, allow_unicode=True))
    command = [folder / ".envs/analysis/bin/python", "-m", "snakemake", "--cores", "1", "results/cpu/device.json"]
    environment = os.environ | {"PYTHONPATH": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    log = folder / "logs/cpu/device.log"
    assert log.is_file(), done.stdout[-1500:] + done.stderr[-1500:]
    assert "adrbench device: refused" in log.read_text()
    assert f"/nowhere/{odd}/python" in log.read_text()
    assert list(tmp_path.rglob("HERE")) == []


def test_a_folder_that_snakemake_cannot_name_is_refused(tmp_path):
    folder = tmp_path / "{params.spec}"
    folder.mkdir()
    project(folder)
    command = [folder / ".envs/analysis/bin/python", "-m", "snakemake", "--cores", "1", "-n"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "Snakemake takes braces in a path for a variable; move the project" in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["a b", "x;y", "$(x)", "../x", "a/b", "'", "", "A"])
def test_arm_names_are_names(name, tmp_path):
    from adrbench import config

    platform = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
    platform["arms"][1]["name"] = name
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    main = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {"platforms": str(tmp_path)}
    with pytest.raises(config.ConfigError, match="String should match pattern"):
        config.load(main)
