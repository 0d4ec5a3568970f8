"""Files outside an evidence file's raw folder travel with it: the tiers of a serving round share one server's files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.archive import merge as merging
from adrbench.archive.merge import describe, merge
from adrbench.archive.pack import FORMAT, pack
from adrbench.archive.records import RECORDS, ArchiveError, record_path
from adrbench.evidence import Evidence
from archive_results import content, forged, member, write_evidence

GB = 10**9
ROUND = "results/cpu/serve/auto/r1"
TIERS = [f"{ROUND}/{tier}.json" for tier in ("long", "short")]
SERVER = [f"{ROUND}/server/{name}" for name in ("plugin.jsonl", "server.log")]
TIMES = {"started_at": "2026-11-30T00:00:00.000+00:00", "finished_at": "2026-11-30T00:01:00.000+00:00"}


def write_round(base: Path) -> Path:
    """A round of two tiers on one server, as a serving job leaves it: plan.json and client.log are listed by none."""
    for name in ("server.log", "plugin.jsonl", "plan.json", "client.log"):
        (base / ROUND / "server").mkdir(parents=True, exist_ok=True)
        (base / ROUND / "server" / name).write_text(json.dumps(f"{name} of the round"))
    for unit in TIERS:
        path = base / unit
        path.with_suffix("").mkdir()
        (path.with_suffix("") / "bench.json").write_text(json.dumps({"tier": path.stem}))
        names = ["bench.json", "../server/server.log", "../server/plugin.jsonl"]
        files = evidence.digest_raw(path, names)
        evidence.write(path, Evidence(stage="serve", platform="cpu", tier=path.stem, files=files, **TIMES))
    return base


def pack_as_before(base: Path, archive: Path) -> Path:
    """The archive that the first version wrote: raw folders only, and format 1."""
    units = {u: [u, f"{u.removesuffix('.json')}/bench.json"] for u in TIERS}
    digests = {u: {n: hashlib.sha256((base / n).read_bytes()).hexdigest() for n in names} for u, names in units.items()}
    members = [member(name, (base / name).read_bytes()) for names in units.values() for name in names]
    return forged(archive, members, digests, {"format": 1})


@pytest.fixture
def measured(tmp_path) -> Path:
    return write_round(tmp_path / "a")


@pytest.fixture
def packed(measured, tmp_path) -> Path:
    pack(measured, tmp_path / "a.tar.xz", [])
    return tmp_path / "a.tar.xz"


def whole(base: Path) -> bool:
    return all(evidence.verify_files(base / unit) == [] for unit in TIERS)


def test_shared_files_arrive_once_with_each_tier(packed, tmp_path):
    result = merge(tmp_path / "b", packed, limit=GB)
    assert (result.added, result.lacking) == (TIERS, {})
    assert whole(tmp_path / "b")
    assert set(SERVER) <= set(content(tmp_path / "b"))
    for name in SERVER:
        assert (tmp_path / "b" / name).stat().st_mtime == (tmp_path / "a" / name).stat().st_mtime


def test_what_was_merged_is_packed_on_wholly(packed, tmp_path):
    merge(tmp_path / "b", packed, limit=GB)
    lines = pack(tmp_path / "b", tmp_path / "b.tar.xz", [])
    assert len(lines) == 1
    assert "2 results, 6 files" in lines[0]
    merge(tmp_path / "c", tmp_path / "b.tar.xz", limit=GB)
    assert whole(tmp_path / "c")
    assert content(tmp_path / "c") == content(tmp_path / "b")


@pytest.mark.parametrize("after", range(1, 6))
def test_a_merge_killed_between_any_two_files_is_completed(packed, tmp_path, monkeypatch, after):
    real, done = os.replace, []

    def replace(source, target):
        if len(done) == after:
            raise KeyboardInterrupt
        done.append(target)
        real(source, target)

    monkeypatch.setattr(merging.os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        merge(tmp_path / "b", packed, limit=GB)
    monkeypatch.setattr(merging.os, "replace", real)
    for unit in TIERS:
        assert not (tmp_path / "b" / unit).exists() or evidence.verify_files(tmp_path / "b" / unit) == []
    result = merge(tmp_path / "b", packed, limit=GB)
    assert (result.conflicts, result.lacking) == ([], {})
    assert whole(tmp_path / "b")


def test_an_older_archive_merges_and_says_what_it_lacks(measured, tmp_path):
    old = pack_as_before(measured, tmp_path / "old.tar.xz")
    result = merge(tmp_path / "b", old, limit=GB)
    assert (result.added, sorted(result.lacking)) == (TIERS, TIERS)
    text = describe(result, old)
    assert "2 of them lack raw files that they list" in text
    assert f"{TIERS[0]}: {SERVER[0]}: missing" in text
    assert not whole(tmp_path / "b")


def test_an_older_archive_finds_the_servers_files_here(measured, tmp_path):
    shutil.copytree(measured, tmp_path / "b")
    result = merge(tmp_path / "b", pack_as_before(measured, tmp_path / "old.tar.xz"), limit=GB)
    assert (result.present, result.added, result.conflicts, result.lacking) == (TIERS, [], [], {})


def test_an_older_archive_completes_nothing_by_another_servers_files(measured, tmp_path):
    (tmp_path / "b" / ROUND / "server").mkdir(parents=True)
    (tmp_path / "b" / SERVER[1]).write_text("of another round")
    result = merge(tmp_path / "b", pack_as_before(measured, tmp_path / "old.tar.xz"), limit=GB)
    assert result.conflicts == TIERS
    assert list(content(tmp_path / "b")) == [SERVER[1]]


def test_a_newer_archive_completes_what_an_older_one_left_out(measured, packed, tmp_path):
    merge(tmp_path / "b", pack_as_before(measured, tmp_path / "old.tar.xz"), limit=GB)
    result = merge(tmp_path / "b", packed, limit=GB)
    assert (result.completed, result.added, result.present, result.conflicts) == (TIERS, [], [], [])
    assert "0 results merged, 2 completed, 0 were here already" in describe(result, packed)
    assert whole(tmp_path / "b")
    assert merge(tmp_path / "b", packed, limit=GB).present == TIERS


def test_what_an_older_archive_lacks_is_named_and_can_be_packed_on(measured, tmp_path):
    merge(tmp_path / "b", pack_as_before(measured, tmp_path / "old.tar.xz"), limit=GB)
    with pytest.raises(ArchiveError, match=rf"{TIERS[0]}: {SERVER[0]}: missing; --incomplete packs it all the same"):
        pack(tmp_path / "b", tmp_path / "b.tar.xz", [])
    lines = pack(tmp_path / "b", tmp_path / "b.tar.xz", [], incomplete=True)
    assert lines[0] == f"packed, but not whole: {TIERS[0]}: {SERVER[0]}: missing (and 1 more)"
    result = merge(tmp_path / "c", tmp_path / "b.tar.xz", limit=GB)
    assert (result.added, sorted(result.lacking)) == (TIERS, TIERS)


def test_a_changed_file_stays_behind_even_so(measured, tmp_path):
    (measured / SERVER[0]).write_text("edited")
    write_evidence(measured / "results/cpu/device.json", "device")
    lines = pack(measured, tmp_path / "a.tar.xz", [], incomplete=True)
    changed = f"{SERVER[0]}: changed since it was measured"
    assert lines[:2] == [f"left out: {unit}: {changed}" for unit in TIERS]


@pytest.mark.parametrize("name", ["../../../../../../outside", "/etc/hostname", "../../../../../h200/serve.json"])
def test_what_lies_outside_the_platforms_results_is_never_packed(measured, tmp_path, name):
    path = measured / TIERS[0]
    document = json.loads(path.read_text())
    document["files"][name] = "0" * 64
    path.write_text(json.dumps(document))
    lines = pack(measured, tmp_path / "a.tar.xz", [], incomplete=True)
    assert lines[0] == f"left out: {TIERS[0]}: lists {name!r}, which lies outside results/cpu"
    assert merge(tmp_path / "b", tmp_path / "a.tar.xz", limit=GB).added == TIERS[1:]


@pytest.mark.parametrize("which", ["file", "folder"])
def test_a_link_on_the_way_to_a_listed_file_does_not_travel(measured, tmp_path, which):
    write_evidence(measured / "results/cpu/device.json", "device")
    name = SERVER[1] if which == "file" else f"{ROUND}/server"
    (measured / name).rename(tmp_path / "moved")
    (measured / name).symlink_to(tmp_path / "moved")
    lines = pack(measured, tmp_path / "a.tar.xz", [])
    assert lines[:2] == [f"left out: {unit}: {name} is a link, which cannot travel" for unit in TIERS]


def test_results_that_lie_elsewhere_by_one_link_are_packed(measured, tmp_path):
    (measured / "results").rename(tmp_path / "large disk")
    (measured / "results").symlink_to(tmp_path / "large disk")
    assert len(pack(measured, tmp_path / "a.tar.xz", [])) == 1


def test_a_profile_and_those_of_single_tiers_below_it_are_units_of_their_own(tmp_path):
    """profile/auto/long.json lies in the raw folder of profile/auto.json: the archive holds each file once."""
    outer, inner = "results/cpu/profile/auto.json", "results/cpu/profile/auto/long.json"
    write_evidence(tmp_path / "a" / outer, "profile", raw={"trace.json": "{}"})
    write_evidence(tmp_path / "a" / inner, "profile", raw={"trace.json": "[]"})
    for unit in (outer, inner):
        record = record_path(tmp_path / "a" / RECORDS, unit)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")
    pack(tmp_path / "a", tmp_path / "a.tar.xz", [])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / inner).unlink()
    shutil.rmtree((tmp_path / "b" / inner).with_suffix(""))
    assert merge(tmp_path / "c", tmp_path / "a.tar.xz", limit=GB).added == [outer, inner]
    result = merge(tmp_path / "b", tmp_path / "a.tar.xz", limit=GB)
    assert (result.present, result.added, result.conflicts) == ([outer], [inner], [])
    assert content(tmp_path / "b") == content(tmp_path / "c") == content(tmp_path / "a")


def test_a_models_folder_arrives_in_one_step_and_is_completed_where_it_did_not(tmp_path):
    write_evidence(tmp_path / "a/results/cpu/device.json", "device")
    (tmp_path / "a/models/cpu").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "a/models/cpu" / name).write_text(name)
    pack(tmp_path / "a", tmp_path / "a.tar.xz", [])
    (tmp_path / "b/models/cpu").mkdir(parents=True)
    (tmp_path / "b/models/cpu/config.json").write_text("config.json")
    for folder in ("b", "c"):
        assert "models/cpu" in merge(tmp_path / folder, tmp_path / "a.tar.xz", limit=GB).added
        assert content(tmp_path / folder) == content(tmp_path / "a")


def test_snakemakes_mark_in_a_models_folder_is_no_other_content(tmp_path):
    """A folder that was made again by a serving job has none."""
    for folder, mark in (("a", False), ("b", True)):
        (tmp_path / folder / "models/cpu").mkdir(parents=True)
        (tmp_path / folder / "models/cpu/config.json").write_text("{}")
        if mark:
            (tmp_path / folder / "models/cpu/.snakemake_timestamp").touch()
        write_evidence(tmp_path / folder / "results/cpu/device.json", "device")
        pack(tmp_path / folder, tmp_path / f"{folder}.tar.xz", [])
    assert merge(tmp_path / "b", tmp_path / "a.tar.xz", limit=GB).conflicts == []
    assert merge(tmp_path / "a", tmp_path / "b.tar.xz", limit=GB).conflicts == []


# Archives that nobody's `pack` writes.

DATA = evidence.canonical({"schema_version": 1, "stage": "serve", "files": {"../server.log": "0" * 64}}).encode()
UNIT = "results/cpu/serve/short.json"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FORGED = {
    "not listed": ({UNIT: {UNIT: digest(DATA), "results/cpu/model.json": digest(b"x")}}, "is no file of"),
    "other digest": ({UNIT: {UNIT: digest(DATA), "results/cpu/serve/server.log": digest(b"x")}}, "is no file of"),
    "other platform": ({UNIT: {UNIT: digest(DATA), "results/h200/server.log": digest(b"x")}}, "is no file of"),
    "two contents": (
        {UNIT: {UNIT: digest(DATA)}, "results/cpu/serve": {UNIT: digest(b"x")}},
        "has two contents",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_files_elsewhere_must_be_listed_by_the_evidence(name, tmp_path):
    units, text = FORGED[name]
    names = {inner for digests in units.values() for inner in digests if inner != UNIT}
    archive = forged(tmp_path / "x.tar.xz", [member(UNIT, DATA), *(member(n, b"x") for n in names)], units)
    with pytest.raises(ArchiveError, match=text):
        merge(tmp_path / "b", archive, limit=GB)
    assert content(tmp_path / "b") == {}


def test_a_listed_file_in_an_archive_of_todays_format_is_taken(tmp_path):
    data = DATA.replace(b"0" * 64, digest(b"x").encode())
    units = {UNIT: {UNIT: digest(data), "results/cpu/serve/server.log": digest(b"x")}}
    members = [member(UNIT, data), member("results/cpu/serve/server.log", b"x")]
    archive = forged(tmp_path / "x.tar.xz", members, units, {"format": FORMAT})
    assert merge(tmp_path / "b", archive, limit=GB).added == [UNIT]
