"""What `make` would run for odd targets and values: the workflow, with each as one word, or nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from adrbench.paths import ROOT

KEPT = ("PATH", "HOME", "TMPDIR", "LANG")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def planned(*words: str) -> subprocess.CompletedProcess[str]:
    """Without what a `make` around these tests was given: it hands its values down."""
    environment = {key: value for key, value in os.environ.items() if key in KEPT}
    command = ["make", "-n", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.parametrize("target", ["results/", "reports/", "results", "nothing"])
def test_a_folder_is_no_target(target):
    """Make's built-in rules would compile an object file for one, and its snakemake look for that."""
    done = planned(target)
    assert done.returncode == 2 or "Nothing to be done" in done.stdout
    assert "snakemake" not in done.stdout
    assert " -o " not in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reports/a b.md"], "--cores 1 'reports/a b.md'"),
        (["results/cpu/device.json", "CORES=4"], "--cores 4 'results/cpu/device.json'"),
        (["reports/x'y.md"], "--cores 1 'reports/x'\\''y.md'"),
        (["dry-run", "PLATFORM=x; reboot"], "--platform 'x; reboot'"),
        (["reports/adr0011.md", "PLATFORM=nvidia"], "--cores 1 --config platform='nvidia' -- 'reports/adr0011.md'"),
        (["reports/all", "PLATFORM=x; reboot"], "--cores 1 --config platform='x; reboot' -- all"),
        (["status", "PLATFORM=nvidia"], "--config platform='nvidia' -- status"),
        (["bundle", "TARGET=x; reboot", "PIECE=1 GB"], "--target 'x; reboot' --piece-size '1 GB'"),
    ],
)
def test_a_value_is_one_word(words, expected):
    assert planned(*words).stdout.splitlines()[-1].strip().endswith(expected)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reports/adr0011.md"], "--platform ''"),
        (["results/cpu/device.json", "PLATFORM=nvidia"], "--platform 'nvidia'"),
        (["status"], "--platform ''"),
        (["dry-run"], "--platform 'cpu'"),
        (["test"], "envs/preflight.py"),
    ],
)
def test_what_measures_is_looked_at_for_its_platform_before_set_up(words, expected):
    assert planned(*words).stdout.splitlines()[0].strip().endswith(expected)


def test_a_variable_of_the_hosts_environment_chooses_no_platform(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "KEPT", (*KEPT, "PLATFORM"))
    monkeypatch.setenv("PLATFORM", "x64")
    assert "x64" not in planned("reports/adr0011.md").stdout
