"""Two hosts that both computed, and both checked themselves: what of it blocks a merge, and what Snakemake makes again.

Records are hand-made in the form of Snakemake 9.27; test_archive_workflow.py asks real Snakemake what it plans.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.archive import hosts
from adrbench.archive.computed import inputs_of, is_computed
from adrbench.archive.hosts import alike, checks_elsewhere, taken_under
from adrbench.archive.merge import describe, merge
from adrbench.archive.pack import pack
from adrbench.archive.records import RECORDS, ArchiveError, read_record, record_path
from adrbench.evidence import digest_file
from archive_results import content, write_evidence

GB = 10**9
R = "results/cpu"
MEASURES = "python -m adrbench.serve --spec {} --output x --devices 1 --vendor cpu 2>&1"
COMPUTES = "python -m adrbench.memory --spec {} --output x 2>&1"


def record(base: Path, output: str, shell: str, *inputs: str) -> None:
    """Snakemake's record of an output, with the digests of its inputs as they are."""
    path = record_path(base / RECORDS, output)
    path.parent.mkdir(parents=True, exist_ok=True)
    sums = {name: f"sha256:{digest_file(base / name)}" for name in inputs}
    path.write_text(json.dumps({"shellcmd": shell, "input": list(inputs), "input_checksums": sums, "params": []}))


def measured(base: Path, name: str, value: float, stage: str = "serve", *inputs: str) -> str:
    write_evidence(base / R / name, stage, value=value, raw={"raw.txt": f"{name} {value}"})
    record(base, f"{R}/{name}", MEASURES, *inputs)
    return f"{R}/{name}"


def computed(base: Path, name: str, value: float, *inputs: str) -> str:
    write_evidence(base / R / name, "memory", value=value)
    record(base, f"{R}/{name}", COMPUTES, *inputs)
    return f"{R}/{name}"


def packed(base: Path) -> Path:
    pack(base, base.with_suffix(".tar.xz"), [])
    return base.with_suffix(".tar.xz")


@pytest.fixture
def two(tmp_path) -> tuple[Path, Path]:
    """Folders that measured another round each and share a third, and computed from it."""
    for name, number in (("a", 1), ("b", 2)):
        base = tmp_path / name
        shared = measured(base, "serve/auto/r9/short.json", 9)
        measured(base, f"serve/auto/r{number}/short.json", number)
        computed(base, "memory.json", number, shared)
    return tmp_path / "a", tmp_path / "b"


def test_what_both_computed_blocks_no_merge(two):
    a, b = two
    before = (b / f"{R}/memory.json").read_bytes()
    result = merge(b, packed(a), limit=GB)
    assert (result.conflicts, result.computed, result.stale) == ([], [f"{R}/memory.json"], [])
    assert result.added == [f"{R}/serve/auto/r1/short.json"]
    assert (b / f"{R}/memory.json").read_bytes() == before
    said = describe(result, Path("a.tar.xz"))
    assert "1 results that are computed from others were not taken: Snakemake computes them here" in said
    assert f"\n  {R}/memory.json" in said


def test_a_measurement_with_another_content_is_refused_all_the_same(two):
    a, b = two
    measured(a, "serve/auto/r2/short.json", 3)
    before = content(b)
    assert merge(b, packed(a), limit=GB).conflicts == [f"{R}/serve/auto/r2/short.json"]
    assert content(b) == before


@pytest.mark.parametrize("who", ["a", "b"])
def test_what_one_of_both_measured_is_no_computed_result(two, who):
    record(two["ab".index(who)], f"{R}/memory.json", MEASURES)
    assert merge(two[1], packed(two[0]), limit=GB).conflicts == [f"{R}/memory.json"]


def test_without_any_record_nothing_is_taken_for_computed(two):
    for base in two:
        record_path(base / RECORDS, f"{R}/memory.json").unlink()
    assert merge(two[1], packed(two[0]), limit=GB).conflicts == [f"{R}/memory.json"]
    assert not is_computed()
    assert not is_computed(None, {"rule": "memory"})
    assert is_computed(None, {"shellcmd": COMPUTES})
    assert inputs_of({"input": "x", "input_checksums": []}) == {}


def test_a_computed_result_is_new_where_all_that_it_rests_on_is_there(two, tmp_path):
    """A chain of them: the second look of an adaptive decision rests on the first."""
    a, _ = two
    first = computed(a, "adaptive/adr0010/look3.json", 1, f"{R}/serve/auto/r1/short.json")
    second = computed(a, "adaptive/adr0010/look4.json", 2, first)
    result = merge(tmp_path / "c", packed(a), limit=GB)
    assert {first, second, f"{R}/memory.json"} <= set(result.added)
    assert result.computed == []


def test_what_was_computed_from_another_content_than_is_here_is_not_added(two, tmp_path):
    """Nor what rests on it. Without its record Snakemake would take the file for complete."""
    a, b = two
    (b / f"{R}/memory.json").unlink()
    shared = f"{R}/serve/auto/r9/short.json"
    first = computed(a, "adaptive/adr0010/look3.json", 1, shared)
    record(a, first, COMPUTES, shared)
    other = read_record(a / RECORDS, first)
    other["input_checksums"][shared] = "sha256:" + "0" * 64
    record_path(a / RECORDS, first).write_text(json.dumps(other))
    second = computed(a, "adaptive/adr0010/look4.json", 2, first)
    result = merge(b, packed(a), limit=GB)
    assert result.computed == [first, second]
    assert f"{R}/memory.json" in result.added
    assert not (b / first).exists()
    assert read_record(b / RECORDS, first) is None


def times(base: Path, *names: str) -> list[float]:
    return [(base / name).stat().st_mtime for name in names]


def test_what_was_computed_from_a_measurement_that_was_replaced_is_made_again(two):
    """The archive's round keeps its time, an hour before the files that were made from ours."""
    a, b = two
    taken, other = f"{R}/serve/auto/r1/short.json", f"{R}/serve/auto/r2/short.json"
    measured(b, "serve/auto/r1/short.json", 7)
    computed(b, "noise_floor.json", 1, taken, other)
    computed(b, "compare.json", 1, other)
    (b / "reports").mkdir()
    (b / "reports/adr0010.md").write_text("of ours")
    record(b, "reports/adr0010.md", COMPUTES, taken)
    measured(b, "integrate/L3.json", 1, "integrate", taken)  # a device made it: not without being asked
    for name in (b / taken, (b / taken).with_suffix("") / "raw.txt"):
        name.unlink()
    os.utime(a / taken, (1.0e9, 1.0e9))
    kept = times(b, f"{R}/compare.json", f"{R}/integrate/L3.json", other)
    result = merge(b, packed(a), limit=GB)
    assert result.stale == sorted(["reports/adr0010.md", f"{R}/noise_floor.json"])
    assert times(b, taken) == [1.0e9]
    assert max(times(b, *result.stale)) < 1.0e9
    assert times(b, f"{R}/compare.json", f"{R}/integrate/L3.json", other) == kept
    assert "2 files here were made from others than were merged now; Snakemake makes them again" in describe(
        result, Path("x")
    )


def test_a_measurement_that_comes_back_makes_nothing_stale(two):
    a, b = two
    merge(b, packed(a), limit=GB)
    computed(b, "noise_floor.json", 1, f"{R}/serve/auto/r1/short.json")
    (b / f"{R}/serve/auto/r1/short.json").unlink()
    result = merge(b, packed(a), limit=GB)
    assert (result.added, result.stale) == ([f"{R}/serve/auto/r1/short.json"], [])


# --- hosts of one kind

CHECKS = [f"{R}/{name}" for name in ("ceiling.json", "device.json", "kernels.json", "model.json")]


@pytest.fixture
def declared(tmp_path, monkeypatch):
    """Says what the platform file declares of its hosts."""

    def say(hosts_said: str) -> None:
        (tmp_path / "project/config/platforms").mkdir(parents=True, exist_ok=True)
        (tmp_path / "project/config/config.yaml").write_text("platform: cpu\n")
        text = f"device: {{vendor: cpu, hosts: {hosts_said}}}\n"
        (tmp_path / "project/config/platforms/cpu.yaml").write_text(text)

    monkeypatch.setattr(hosts, "ROOT", tmp_path / "project")
    say("several")
    return say


@pytest.fixture
def visits(tmp_path) -> tuple[Path, Path]:
    """Two visits to fresh hosts: each checked its own and measured another round."""
    for number, name in enumerate(("a", "b"), start=1):
        base = tmp_path / name
        for path in CHECKS:
            stage = {"ceiling": "profile"}.get(Path(path).stem, Path(path).stem)
            measured(base, Path(path).name, number, stage)
        shutil.rmtree(base / f"{R}/model")
        write_evidence(base / f"{R}/model.json", "model")
        document = evidence.read(base / f"{R}/model.json")
        document.asked, document.measured = {"folder": f"/{name}/models/cpu"}, {"digest": "m", "bytes": 1}
        document.started_at = f"2026-12-0{number}T00:00:00.000+00:00"
        evidence.write(base / f"{R}/model.json", document)
        measured(base, f"serve/auto/r{number}/short.json", number, "serve", *CHECKS)
    return tmp_path / "a", tmp_path / "b"


def test_two_hosts_of_one_kind_keep_their_own_checks(visits, declared):
    a, b = visits
    before = content(b)
    os.utime(a / f"{R}/device.json", (1.0e9, 1.0e9))
    result = merge(b, packed(a), limit=GB)
    assert result.conflicts == []
    assert result.added == [f"{R}/serve/auto/r1/short.json"]
    assert list(result.aside) == CHECKS
    assert {name: data for name, data in content(b).items() if name in before} == before
    for unit, place in result.aside.items():
        assert place == f"{R}/hosts/{Path(unit).stem}-{digest_file(a / unit)[:12]}.json"
        assert (b / place).read_bytes() == (a / unit).read_bytes()
        assert evidence.verify_files(b / place) == []
    # Else Snakemake would take the checks that stay for newer than rounds that were measured before them.
    assert times(b, f"{R}/device.json", result.aside[f"{R}/device.json"]) == [1.0e9, 1.0e9]
    assert f"\n  {R}/device.json -> {R}/hosts/device-" in describe(result, Path("x"))


def test_no_check_is_put_aside_through_a_link_that_leads_out(visits, declared, tmp_path):
    a, b = visits
    outside = tmp_path / "outside"
    outside.mkdir()
    place = b / hosts.aside(CHECKS[1], digest_file(a / CHECKS[1]))
    place.parent.mkdir()
    place.with_suffix("").symlink_to(outside)
    before = content(b)
    with pytest.raises(ArchiveError, match="leads out of"):
        merge(b, packed(a), limit=GB)
    assert content(b) == before
    assert list(outside.iterdir()) == []


def test_a_round_leads_to_the_checks_of_its_own_host(visits, declared, monkeypatch):
    a, b = visits
    result = merge(b, packed(a), limit=GB)
    monkeypatch.chdir(b)
    ours, theirs = (Path(f"{R}/serve/auto/r{number}/short.json") for number in (2, 1))
    assert taken_under(ours, f"{R}/ceiling.json") == Path(f"{R}/ceiling.json")
    assert taken_under(theirs, f"{R}/ceiling.json") == Path(result.aside[f"{R}/ceiling.json"])
    assert (checks_elsewhere(ours), checks_elsewhere(theirs)) == ([], [])
    Path(result.aside[f"{R}/kernels.json"]).unlink()
    assert checks_elsewhere(theirs) == [f"{R}/kernels.json"]


def test_checks_that_were_kept_travel_on_and_a_repeated_merge_changes_nothing(visits, declared, tmp_path):
    a, b = visits
    merge(b, packed(a), limit=GB)
    before = content(b)
    assert merge(b, packed(a), limit=GB).added == []
    assert content(b) == before
    archive = packed(b)
    result = merge(tmp_path / "home", archive, limit=GB)
    assert len([unit for unit in result.added if unit.startswith(f"{R}/hosts/")]) == 4
    back = merge(a, archive, limit=GB)
    assert back.conflicts == []
    assert list(back.aside) == CHECKS
    assert f"{R}/serve/auto/r2/short.json" in back.added


def test_where_one_host_is_declared_its_checks_are_a_conflict_and_the_way_out_is_said(visits, declared):
    declared("one")
    a, b = visits
    before = content(b)
    result = merge(b, packed(a), limit=GB)
    assert result.conflicts == CHECKS[:3]  # the model is the same but for its time and folder
    assert content(b) == before
    said = describe(result, Path("x"))
    assert "where the platform file of cpu says `device.hosts: several`" in said
    assert "nothing was merged" in said


def test_a_folder_of_platform_files_of_ones_own_counts(visits, declared, tmp_path):
    declared("one")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/cpu.yaml").write_text("device: {hosts: several}\n")
    result = merge(visits[1], packed(visits[0]), limit=GB, platforms=tmp_path / "own")
    assert list(result.aside) == CHECKS


def other_question(document) -> None:
    document.asked = {"vllm_version": "0.1"}


def other_model(document) -> None:
    document.measured = {"digest": "another", "bytes": 1}


@pytest.mark.parametrize(("name", "change"), [("device.json", other_question), ("model.json", other_model)])
def test_hosts_that_were_asked_otherwise_or_have_another_model_are_not_of_one_kind(visits, declared, name, change):
    a, b = visits
    document = evidence.read(a / R / name)
    change(document)
    evidence.write(a / R / name, document)
    assert merge(b, packed(a), limit=GB).conflicts == [f"{R}/{name}"]


def test_a_platform_without_a_file_here_is_one_host(visits, declared, tmp_path):
    (tmp_path / "project/config/platforms/cpu.yaml").unlink()
    assert merge(visits[1], packed(visits[0]), limit=GB).conflicts == CHECKS[:3]


def test_the_same_measurement_at_another_time_is_no_conflict(visits, declared):
    """Scales of a calibration, say: arms of both hosts were served with the same."""
    for base, day in zip(visits, (1, 2), strict=True):
        path = base / f"{R}/calibrate.json"
        write_evidence(path, "calibrate")
        document = evidence.read(path)
        document.started_at = f"2026-12-0{day}T00:00:00.000+00:00"
        evidence.write(path, document)
    assert f"{R}/calibrate.json" in merge(visits[1], packed(visits[0]), limit=GB).present


def test_paths_of_two_projects_are_alike_by_their_ends():
    assert alike({"a": ["/x/.envs/serve/bin/python"]}, {"a": ["/y z/.envs/serve/bin/python"]})
    assert not alike("/x/serve/bin/python", "/x/serve/bin/python3")
    assert not alike("/x/models/a", "/x/models/b")
    assert not alike("models/cpu", "other/models/cpu")  # no absolute path
    assert not alike({"a": 1}, {"a": 1, "b": 2})
    assert not alike([1], [1, 2])
    assert not alike(1, True)
