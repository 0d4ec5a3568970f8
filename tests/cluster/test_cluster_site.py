"""The site file and what squeue prints, without a queue."""

from __future__ import annotations

import pytest
import yaml
from adrbench.cluster.queue import parse
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
