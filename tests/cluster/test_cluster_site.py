"""The site file and what squeue prints, without a queue."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest
import yaml
from adrbench.cluster.__main__ import command, swallowed
from adrbench.cluster.queue import jobs, parse
from adrbench.config import ConfigError, load_site
from adrbench.paths import ROOT

SITE = yaml.safe_load((ROOT / "profiles/slurm/site.yaml").read_text())


def write(tmp_path, content):
    file = tmp_path / "site.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_the_shipped_site_asks_for_its_devices():
    found = load_site(ROOT / "profiles/slurm/site.yaml").resources(4)
    assert found["device"] == 4
    assert found["gres"] == "dcu:4"
    assert found["slurm_partition"] == "dcu"


def test_a_site_without_names_asks_for_limits_only(tmp_path):
    file = write(tmp_path, {"device": {"minutes": 10, "memory_mb": 1000}})
    assert load_site(file).resources(1) == {"device": 1, "runtime": 10, "mem_mb": 1000, "cpus_per_task": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gres": "dcu; rm -rf"}, "gres"),
        ({"device": {"partition": "$(id)", "minutes": 1, "memory_mb": 1}}, "partition"),
        ({"device": {"minutes": 0, "memory_mb": 1}}, "minutes"),
        ({"partitions": "dcu"}, "partitions"),
        ({"setup": "source env.sh"}, "setup"),
    ],
)
def test_bad_sites_name_file_and_key(tmp_path, change, words):
    file = write(tmp_path, SITE | change)
    with pytest.raises(ConfigError) as error:
        load_site(file)
    assert "site.yaml" in str(error.value)
    assert words in str(error.value)


def test_a_missing_site_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_site(tmp_path / "nowhere.yaml")


def test_lines_of_squeue():
    text = "12|adrbench_ab|RUNNING|/data/a|b/work|rule_serve_wildcards_x\n13|other|PENDING|/home|\nslurm: error\n"
    first, second = parse(text)
    assert (first.id, first.folder, first.comment) == ("12", "/data/a|b/work", "rule_serve_wildcards_x")
    assert (second.name, second.state) == ("other", "PENDING")


def test_jobs_of_any_name_are_listed(tmp_path, monkeypatch):
    """Also where a folder is no UTF-8, as a Chinese one of an older system."""
    folder = tmp_path / os.fsdecode(b"\xd6\xd0")
    folder.mkdir()
    line = b"12|adrbench_ab|RUNNING|" + os.fsencode(folder) + b"|rule_serve\n13|\xce\xc4|PENDING|/home|\n"
    (tmp_path / "lines").write_bytes(line)
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/lines\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert [job.id for job in jobs(folder)] == ["12"]


@pytest.mark.parametrize(
    "words",
    [
        ["--", "--config", "platform=cpu", "reports/adr0011.md"],
        ["reports/adr0010.md", "--", "-n", "-C", "platform=cpu", "reports/adr0011.md", "-q"],
    ],
)
def test_a_target_that_snakemake_would_read_as_a_config_entry_is_named(words, tmp_path):
    """Snakemake itself ends in a traceback, without a word on ` -- `."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath")}
    argv = [sys.executable, "-m", "adrbench.cluster", *words]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60)
    assert done.returncode == 2
    assert "'reports/adr0011.md' would be read as an entry of --config" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--config", "platform=cpu", "--", "reports/adr0011.md"],
        ["-C", "a=1", "b=2", "-n", "reports/adr0011.md"],
        ["-n", "reports/adr0011.md", "--config", "a=1"],
    ],
)
def test_a_target_in_its_place_is_left_alone(words):
    assert swallowed(words) == []


def test_snakemake_gets_what_stands_behind_the_dashes(tmp_path):
    arguments = argparse.Namespace(
        snakefile=ROOT / "Snakefile", profile=tmp_path, targets=[], snakemake=["--config", "a=1", "--", "all"]
    )
    assert command(arguments)[-4:] == ["--config", "a=1", "--", "all"]
