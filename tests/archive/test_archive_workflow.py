"""After a merge the workflow takes the results for its own: complete, and made again when something changes.

Two copies of the project in different folders stand for two hosts. Most results are hand-made and recorded by
``snakemake --touch``; one test runs real jobs. What is looked at is what real Snakemake plans.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from adrbench.config import host_cpu
from archive_results import content, write_evidence

# What the first host has measured: a part of the whole.
TARGETS = (
    "results/cpu/device.json",
    "results/cpu/kernels.json",
    "results/cpu/model.json",
    "results/cpu/ceiling.json",
    "results/cpu/serve/auto/r1/short.json",
    "results/cpu/serve/fp8-e4m3/r1/short.json",
    "results/cpu/eval/auto.json",
)
MEASURING = ("device", "kernels", "model", "ceiling", "serve", "eval", "profile", "integrate")


class Host:
    """A copy of the project in a folder of its own, with this checkout's environments."""

    def __init__(self, folder: Path, source: Path):
        self.folder = folder
        listed = subprocess.run(["git", "-C", source, "ls-files", "-z"], capture_output=True, text=True, check=True)
        for name in listed.stdout.split("\0"):
            if name and not name.endswith(".lock") and (source / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, folder / name, follow_symlinks=False)
        (folder / ".envs").symlink_to(source / ".envs")
        self.python = folder / ".envs/analysis/bin/python"

    def run(self, *words: str) -> str:
        command = [self.python, *words]
        environment = {"PYTHONPATH": str(self.folder / "pythonpath"), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        environment[host_cpu.VARIABLE] = os.environ[host_cpu.VARIABLE]  # plans are those of one CPU
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    def snakemake(self, *words: str) -> str:
        return self.run("-m", "snakemake", "--cores", "1", *words)

    def archive(self, *words: str) -> str:
        return self.run("-m", "adrbench.archive", *words)

    def jobs(self, *targets: str) -> dict[str, int]:
        """Jobs of a dry run, by rule."""
        said = self.snakemake("-n", *targets)
        table = said.split("Job stats:")[-1].split("\n\n")[0]
        found = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}
        return {rule: count for rule, count in found.items() if rule != "total"}

    def planned(self, target: str = "reports/adr0011.md") -> dict[str, int]:
        """Measuring jobs of a dry run, by rule."""
        found = self.jobs(target)
        return {rule: found[rule] for rule in MEASURING if rule in found}

    def measure(self, targets: tuple[str, ...] = TARGETS, value: float = 1.0) -> None:
        """Stand in for finished jobs: evidence as they leave it, recorded by Snakemake."""
        for target in targets:
            parts = Path(target).parts
            stage = {"ceiling.json": "profile", "noise_floor.json": "memory"}.get(
                parts[2], parts[2].removesuffix(".json")
            )
            tiers = ("short", "medium", "long") if stage == "serve" else (Path(target).stem,)
            for tier in tiers:
                path = self.folder / target
                write_evidence(path.with_name(f"{tier}.json"), stage, value, raw={"raw.txt": target + tier})
        (self.folder / "models/cpu").mkdir(parents=True, exist_ok=True)
        (self.folder / "models/cpu/config.json").write_text("{}")
        self.snakemake("--touch", "--forceall", *targets)

    def change(self, section: str, **values) -> None:
        """Change keys of a section of the platform file."""
        path = self.folder / "config/platforms/cpu.yaml"
        platform = yaml.safe_load(path.read_text())
        platform[section] |= values
        path.write_text(yaml.safe_dump(platform, allow_unicode=True))

    def edit_arm(self, number: int) -> None:
        path = self.folder / "config/platforms/cpu.yaml"
        platform = yaml.safe_load(path.read_text())
        platform["arms"][number]["args"] = ["--max-logprobs", "5"]
        path.write_text(yaml.safe_dump(platform, allow_unicode=True))


LEFT = {"serve": 2, "eval": 2, "integrate": 2, "profile": 1}


@pytest.fixture(scope="module")
def hosts(root, tmp_path_factory):
    """Makes (the host that measured, the one that merged its archive, the archive); each pair of folders once."""
    made = {}

    def make(*names: str, words: tuple[str, ...] = ()) -> tuple[Host, Host, str]:
        if names + words not in made:
            base = tmp_path_factory.mktemp("hosts")
            first, second = (Host(base / str(number) / name / "adrbench", root) for number, name in enumerate(names))
            archive = str(base / "out.tar.xz")
            first.measure()
            first.archive("pack", "--output", archive, *words)
            second.archive("merge", archive)
            made[names + words] = first, second, archive
        return made[names + words]

    return make


# Folders with a space or a quote stand otherwise in Snakemake's records: in both directions.
@pytest.mark.parametrize("names", [("there", "it is here"), ("it is there", "here"), ("a b", "it's")], ids=" -> ".join)
def test_only_what_is_missing_is_planned_after_a_merge(hosts, names):
    first, second, _ = hosts(*names)
    assert second.planned() == LEFT
    assert content(second.folder) == content(first.folder)


def test_a_model_that_stayed_behind_makes_no_job_run_again(hosts):
    """The next job that serves makes its folder (tests/model); a change of the model's job is noticed all the same."""
    _, second, _ = hosts("with a model", "without", words=("--without-models",))
    assert not (second.folder / "models").exists()
    assert second.planned() == LEFT
    assert "missing metadata" not in second.snakemake("-n", "results/cpu/model.json")
    with open(second.folder / "src/model/gguf.py", "a") as stream:
        stream.write("# changed\n")
    assert second.planned("results/cpu/model.json") == {"model": 1}


def test_a_merge_repeated_changes_nothing(hosts):
    _, second, archive = hosts("there", "it is here")
    before = content(second.folder)
    assert "0 results merged, 12 were here already" in second.archive("merge", archive)
    assert second.planned("results/cpu/serve/auto/r1/short.json") == {}
    assert content(second.folder) == before


def test_a_merge_without_records_would_not_notice_a_change(hosts, tmp_path, root):
    """Why records travel: without them Snakemake takes any file that is there for complete."""
    _, second, _ = hosts("it is there", "here")
    shutil.move(second.folder / ".snakemake/metadata", tmp_path / "metadata")
    second.edit_arm(1)
    assert second.planned("results/cpu/serve/fp8-e4m3/r1/short.json") == {}
    shutil.rmtree(second.folder / ".snakemake/metadata")
    shutil.move(tmp_path / "metadata", second.folder / ".snakemake/metadata")
    assert second.planned("results/cpu/serve/fp8-e4m3/r1/short.json") == {"serve": 1}


def test_a_later_change_is_noticed_on_both_hosts(hosts):
    """Last: it changes the copies."""
    for host in hosts("there", "it is here")[:2]:
        host.edit_arm(1)
        assert host.planned() == LEFT | {"serve": 3}
        with open(host.folder / "src/eval/dataset.py", "a") as stream:
            stream.write("# changed\n")
        assert host.planned() == LEFT | {"serve": 3, "eval": 3}


CHECKS = tuple(f"results/cpu/{name}.json" for name in ("device", "kernels", "model", "ceiling", "claims"))
ROUNDS = {arm: f"results/cpu/serve/{arm}/r1/short.json" for arm in ("auto", "fp8-e4m3", "fp8-e5m2")}
MEMORY, NOISE_FLOOR = "results/cpu/memory.json", "results/cpu/noise_floor.json"


def test_two_hosts_that_checked_themselves_and_computed_become_one_folder(root, tmp_path):
    """Both begin with the same jobs; then what one measured anew replaces what the other computed from."""
    first, second = Host(tmp_path / "first", root), Host(tmp_path / "the second", root)
    for host, value, arms in ((first, 1.0, ("auto", "fp8-e4m3")), (second, 2.0, ("fp8-e5m2",))):
        host.change("device", hosts="several")
        host.measure((*CHECKS, *(ROUNDS[arm] for arm in arms)), value)
    archive = str(tmp_path / "out.tar.xz")
    first.archive("pack", "--output", archive, "--without-models")
    said = second.archive("merge", archive)
    assert "6 results merged" in said
    assert "4 checks of another host or visit" in said
    assert "1 results that are computed from others were not taken" in said
    assert second.jobs(*CHECKS, *ROUNDS.values()) == {}

    # Computed from a round of the second's own, which is then moved away for the first's.
    shutil.rmtree(second.folder / "results/cpu/serve/fp8-e4m3")
    for tier in ("short", "medium", "long"):
        write_evidence(second.folder / f"results/cpu/serve/fp8-e4m3/r1/{tier}.json", value=2.0)
    write_evidence(second.folder / MEMORY, "memory")
    second.snakemake("--touch", "--forceall", *CHECKS, *ROUNDS.values(), MEMORY)
    assert second.jobs(MEMORY) == {}
    made = (second.folder / MEMORY).stat().st_mtime
    shutil.rmtree(second.folder / "results/cpu/serve/fp8-e4m3")
    said = second.archive("merge", archive)
    assert f"Snakemake makes them again:\n  {MEMORY}" in said
    assert second.jobs(*CHECKS, *ROUNDS.values(), MEMORY) == {"memory": 1}
    # By times alone it would be trusted: the round was measured before the file that was not made from it.
    os.utime(second.folder / MEMORY, (made, made))
    assert second.jobs(MEMORY) == {}


def test_a_noise_floor_of_fewer_rounds_is_made_again(root, tmp_path):
    """The second round of the baseline comes from another host, which has a noise floor of both."""
    home, visit = Host(tmp_path / "home", root), Host(tmp_path / "visit", root)
    both, floor = ["results/cpu/serve/auto/r1/short.json", "results/cpu/serve/auto/r2/short.json"], NOISE_FLOOR
    home.change("serve", baseline_rounds=1)
    home.measure((*CHECKS, both[0], floor))
    archive = str(tmp_path / "{}.tar.xz")
    home.archive("pack", "--output", archive.format("home"), "--without-models")
    visit.archive("merge", archive.format("home"))
    visit.measure((both[1], floor), 2.0)
    visit.archive("pack", "--output", archive.format("visit"), "--without-models")
    said = home.archive("merge", archive.format("visit"))
    assert f"computes them here, where they are missing or what they rest on changed:\n  {floor}" in said
    assert home.jobs(floor) == {}  # one round is what is configured here
    home.change("serve", baseline_rounds=2)
    assert home.jobs(floor, *both) == {"noise_floor": 1}


@pytest.mark.slow
def test_real_jobs_travel(root, serve_python, tmp_path):
    """The device and the memory ceiling, really measured on one host, are complete on the other."""
    first, second = Host(tmp_path / "first", root), Host(tmp_path / "the second", root)
    first.snakemake("results/cpu/ceiling.json")
    archive = str(tmp_path / "out.tar.xz")
    first.archive("pack", "--output", archive, "--piece-size", "10KB")
    second.archive("merge", archive)
    assert "Nothing to be done" in second.snakemake("-n", "results/cpu/ceiling.json")
    path = second.folder / "config/platforms/cpu.yaml"
    path.write_text(path.read_text().replace("memory_gib: 6", "memory_gib: 5"))
    assert second.planned("results/cpu/ceiling.json") == {"device": 1, "ceiling": 1}
