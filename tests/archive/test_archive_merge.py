"""Results travel as one archive and are merged without overwriting; nothing in an archive is trusted."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.archive.merge import merge
from adrbench.archive.pack import pack
from adrbench.archive.records import RECORDS, ArchiveError, record_path
from archive_results import DATA, UNIT, content, forged, member, write_evidence, write_results

GB = 10**9
UNITS = {
    "models/cpu",
    "results/cpu/device.json",
    "results/cpu/rejected/serve-1.json",
    "results/cpu/serve/auto/r1/short.json",
    "results/cpu/serve/auto/r2/short.json",
}


@pytest.fixture
def packed(tmp_path) -> Path:
    pack(write_results(tmp_path / "a"), tmp_path / "a.tar.xz", [])
    return tmp_path / "a.tar.xz"


def test_results_arrive_as_they_were(packed, tmp_path):
    result = merge(tmp_path / "b", packed, limit=GB)
    assert set(result.added) == UNITS
    there = content(tmp_path / "a")
    there.pop("results/cpu/decide/adr0011.json")  # derived from evidence: computed again
    assert content(tmp_path / "b") == there
    for name in there:
        assert (tmp_path / "b" / name).stat().st_mtime == (tmp_path / "a" / name).stat().st_mtime
    for unit in UNITS:
        if "serve/" in unit:
            assert evidence.verify_files(tmp_path / "b" / unit) == []
    assert not list((tmp_path / "b/.cache").iterdir())


def test_the_same_results_are_skipped(packed, tmp_path):
    merge(tmp_path / "b", packed, limit=GB)
    before = {name: (tmp_path / "b" / name).stat().st_ino for name in content(tmp_path / "b")}
    result = merge(tmp_path / "b", packed, limit=GB)
    assert (result.added, set(result.present), result.conflicts) == ([], UNITS, [])
    assert {name: (tmp_path / "b" / name).stat().st_ino for name in content(tmp_path / "b")} == before


def test_what_is_missing_is_added_to_what_is_here(packed, tmp_path):
    write_evidence(tmp_path / "b/results/cpu/serve/fp8/r1/short.json")
    shutil.copytree(tmp_path / "a/results/cpu/serve/auto/r1", tmp_path / "b/results/cpu/serve/auto/r1")
    result = merge(tmp_path / "b", packed, limit=GB)
    assert result.present == ["results/cpu/serve/auto/r1/short.json"]
    assert set(result.added) == UNITS - set(result.present)
    assert (tmp_path / "b/results/cpu/serve/fp8/r1/short.json").is_file()


def test_the_history_of_each_folders_own_reports_is_no_conflict(tmp_path):
    """Neither packed, nor merged from an archive of the version that packed it."""
    for folder in ("a", "b"):
        path = write_results(tmp_path / folder) / "results/cpu/history/adr0011.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"store": folder}))
        record = record_path(tmp_path / folder / RECORDS, "results/cpu/history/adr0011.json")
        record.parent.mkdir(parents=True)
        record.write_text("{}")
    pack(tmp_path / "a", tmp_path / "a.tar.xz", [])
    assert set(merge(tmp_path / "b", tmp_path / "a.tar.xz", limit=GB).present) == UNITS
    name = "results/cpu/history/adr0011.json"
    archive = forged(tmp_path / "old.tar.xz", [member(name), member(UNIT)], named(name) | named(UNIT))
    assert merge(tmp_path / "b", archive, limit=GB).added == [UNIT]
    assert json.loads((tmp_path / "b" / name).read_text()) == {"store": "b"}


def edit_evidence(base: Path) -> str:
    write_evidence(base / "results/cpu/serve/auto/r2/short.json", value=3.0, raw={"bench.json": "[]"})
    return "results/cpu/serve/auto/r2/short.json"


def edit_raw(base: Path) -> str:
    folder = base / "results/cpu/serve/auto/r2"
    shutil.copytree(base.parent / "a/results/cpu/serve/auto/r2", folder)
    (folder / "short/bench.json").write_text("[1]")
    return "results/cpu/serve/auto/r2/short.json"


def edit_model(base: Path) -> str:
    (base / "models/cpu").mkdir(parents=True)
    (base / "models/cpu/model.safetensors").write_bytes(b"other")
    return "models/cpu"


def raw_only(base: Path) -> str:
    """A raw file of another measurement without its evidence."""
    (base / "results/cpu/serve/auto/r2/short").mkdir(parents=True)
    (base / "results/cpu/serve/auto/r2/short/bench.json").write_text("[1]")
    return "results/cpu/serve/auto/r2/short.json"


@pytest.mark.parametrize("edit", [edit_evidence, edit_raw, edit_model, raw_only])
def test_the_same_identity_with_another_content_is_refused_and_named(packed, tmp_path, edit):
    name = edit(tmp_path / "b")
    before = content(tmp_path / "b")
    result = merge(tmp_path / "b", packed, limit=GB)
    assert result.conflicts == [name]
    assert content(tmp_path / "b") == before


def test_the_command_names_conflicts_and_fails(packed, tmp_path, root):
    name = edit_evidence(tmp_path / "b")
    environment = os.environ | {"PYTHONPATH": str(root / "pythonpath")}
    command = [sys.executable, "-m", "adrbench.archive", "merge", str(packed)]
    done = subprocess.run(command, cwd=tmp_path / "b", env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 of its results are here with another content; nothing was merged" in done.stderr
    assert f"\n  {name}\n" in done.stderr


def test_an_interrupted_merge_is_completed_by_the_next(packed, tmp_path):
    """As kill -9 leaves it: raw files have arrived, their evidence has not, and the work folder is still there."""
    folder = tmp_path / "b/results/cpu/serve/auto/r1/short"
    shutil.copytree(tmp_path / "a/results/cpu/serve/auto/r1/short", folder)
    (tmp_path / "b/.cache/merge-left").mkdir(parents=True)
    assert set(merge(tmp_path / "b", packed, limit=GB).added) == UNITS
    assert evidence.verify_files(tmp_path / "b/results/cpu/serve/auto/r1/short.json") == []


@pytest.mark.parametrize("which", ["changed raw file", "missing raw file", "cut evidence", "unfinished", "link"])
def test_what_is_not_whole_stays_behind_and_is_named(tmp_path, which):
    base = write_results(tmp_path / "a")
    path = base / "results/cpu/serve/auto/r2/short.json"
    if which == "changed raw file":
        (path.with_suffix("") / "bench.json").write_text("edited")
    elif which == "missing raw file":
        (path.with_suffix("") / "bench.json").unlink()
    elif which == "cut evidence":
        path.write_bytes(path.read_bytes()[:100])
    elif which == "link":
        (path.with_suffix("") / "more").symlink_to("/etc/hostname")
    else:
        from adrbench.archive.records import UNFINISHED, record_path

        marker = record_path(base / UNFINISHED, "results/cpu/serve/auto/r2/short.json")
        marker.parent.mkdir(parents=True)
        marker.write_text("{}")
    lines = pack(base, tmp_path / "a.tar.xz", [])
    assert [line for line in lines if line.startswith("left out: ") and "auto/r2/short" in line]
    assert set(merge(tmp_path / "b", tmp_path / "a.tar.xz", limit=GB).added) == UNITS - {
        "results/cpu/serve/auto/r2/short.json"
    }


def test_nothing_to_pack_and_unknown_platforms_are_said(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArchiveError, match="holds no finished evidence"):
        pack(tmp_path / "empty", tmp_path / "x.tar.xz", [])
    with pytest.raises(ArchiveError, match="no results of platform 'h200'; there are cpu"):
        pack(write_results(tmp_path / "a"), tmp_path / "x.tar.xz", ["h200"])


def test_pieces_lost_and_damaged_are_named(tmp_path):
    base = write_results(tmp_path / "a")
    (base / "models/cpu/model.safetensors").write_bytes(os.urandom(100_000))
    archive = tmp_path / "out/a.tar.xz"
    pack(base, archive, [], piece=20_000)
    pieces = sorted(archive.parent.glob("a.tar.xz.0*"))
    assert len(pieces) >= 5
    assert max(piece.stat().st_size for piece in pieces) <= 20_000
    whole = [piece.read_bytes() for piece in pieces[:2]]
    pieces[0].unlink()
    pieces[1].write_bytes(whole[1][:-1] + bytes([whole[1][-1] ^ 1]))
    with pytest.raises(ArchiveError) as refused:
        merge(tmp_path / "b", archive, limit=GB)
    text = str(refused.value)
    assert f"{pieces[0]}: missing" in text
    assert f"{pieces[1]}: damaged" in text
    assert text.count("a.tar.xz.0") == 2
    for piece, data in zip(pieces[:2], whole, strict=True):
        piece.write_bytes(data)
    assert set(merge(tmp_path / "b", archive, limit=GB).added) == UNITS


@pytest.mark.parametrize("cut", [50, 500, -20])
def test_an_archive_cut_short_is_refused_and_nothing_is_changed(packed, tmp_path, cut):
    packed.with_name("a.tar.xz.sha256").unlink()
    packed.write_bytes(packed.read_bytes()[:cut])
    with pytest.raises(ArchiveError, match=r"damaged or cut short|not an archive|empty|missing in it"):
        merge(tmp_path / "b", packed, limit=GB)
    assert content(tmp_path / "b") == {}


def test_what_is_no_archive_is_refused(tmp_path):
    (tmp_path / "x.tar.xz").write_text("hello")
    with pytest.raises(ArchiveError, match="damaged or cut short"):
        merge(tmp_path / "b", tmp_path / "x.tar.xz", limit=GB)
    with pytest.raises(ArchiveError, match="no such archive"):
        merge(tmp_path / "b", tmp_path / "y.tar.xz", limit=GB)


@pytest.mark.parametrize("where", ["pack", "merge"])
def test_a_run_in_the_folder_is_not_disturbed(packed, tmp_path, where):
    folder = tmp_path / ("a" if where == "pack" else "b")
    folder.mkdir(exist_ok=True)
    run = subprocess.Popen(["snakemake", "60"], executable="/bin/sleep", cwd=folder)
    try:
        while not Path(f"/proc/{run.pid}/cmdline").read_bytes():  # it is being started
            pass
        with pytest.raises(ArchiveError, match=rf"Snakemake \(process {run.pid}\) runs in"):
            pack(folder, tmp_path / "x.tar.xz", []) if where == "pack" else merge(folder, packed, limit=GB)
    finally:
        run.kill()
        run.wait()


# Archives that nobody's `pack` writes.


def link(name: str, kind: bytes, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", type=kind, linkname=to)


def named(name: str) -> dict[str, dict[str, str]]:
    return {name: {name: hashlib.sha256(DATA).hexdigest()}}


FORGED = {
    "parent": ([member("../outside")], named("../outside"), "not a file of results/ or models/"),
    "parent inside": ([member("results/../../outside")], named("results/../../outside"), "not a file of results/"),
    "absolute": ([member("/tmp/outside")], named("/tmp/outside"), "not a file of results/"),
    "elsewhere": ([member("config/x.json")], named("config/x.json"), "not a file of results/"),
    "records": ([member(".snakemake/metadata/x")], named(".snakemake/metadata/x"), "not a file of results/"),
    "dot": ([member("results/./cpu/x.json")], named("results/./cpu/x.json"), "not a file of results/"),
    "parent of a unit": (
        [member(UNIT)],
        {UNIT: {"results/cpu/other.json": hashlib.sha256(DATA).hexdigest()}},
        "is no file of 'results/cpu/serve.json'",
    ),
    "unnamed member": ([member(UNIT), member("results/cpu/more.json")], None, "its manifest does not name"),
    "member outside": ([member("../outside"), member(UNIT)], None, "not a file of results/"),
    "twice": ([member(UNIT), member(UNIT)], None, "its manifest does not name"),
    "symbolic link": ([link(UNIT, tarfile.SYMTYPE, "/etc/passwd")], None, "its manifest does not name"),
    "hard link": ([link(UNIT, tarfile.LNKTYPE, "/etc/passwd")], None, "its manifest does not name"),
    "device": ([link(UNIT, tarfile.CHRTYPE, "")], None, "its manifest does not name"),
    "pipe": ([link(UNIT, tarfile.FIFOTYPE, "")], None, "its manifest does not name"),
    "folder": ([link("results/cpu", tarfile.DIRTYPE, ""), member(UNIT)], None, "its manifest does not name"),
    "other content": ([member(UNIT, b"{}")], None, "its content is not what the manifest says"),
    "missing member": ([], None, "results/cpu/serve.json and 0 more files are missing"),
    "time": ([member(UNIT, pax_headers={"mtime": "inf"})], None, "has the time"),
}


@pytest.mark.parametrize("name", FORGED)
def test_an_unsafe_or_wrong_archive_is_refused_and_nothing_is_changed(name, tmp_path):
    members, units, text = FORGED[name]
    archive = forged(tmp_path / "x.tar.xz", members, units)
    with pytest.raises(ArchiveError, match=text):
        merge(tmp_path / "a/b", archive, limit=GB)
    assert content(tmp_path / "a/b") == {}
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "a/outside").exists()


def test_the_forged_archives_are_refused_for_what_is_wrong_with_them_only(tmp_path):
    assert merge(tmp_path / "b", forged(tmp_path / "x.tar.xz", [member(UNIT)]), limit=GB).added == [UNIT]


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        ({"format": 99}, "archive format 99, this version reads 1"),
        ({"units": []}, "units and records are needed"),
        ({"units": {UNIT: "x"}}, "units and records are needed"),
        ({"records": {UNIT: []}}, "units and records are needed"),
        ({"root": None}, "root and folder are needed"),
        ({"folder": "relative"}, "root and folder are needed"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(manifest, text, tmp_path):
    with pytest.raises(ArchiveError, match=text):
        merge(tmp_path / "b", forged(tmp_path / "x.tar.xz", [member(UNIT)], manifest=manifest), limit=GB)


def test_more_than_the_limit_is_refused_before_it_is_written(tmp_path):
    big = b"\0" * 5_000_000
    units = {UNIT: {UNIT: hashlib.sha256(big).hexdigest()}}
    archive = forged(tmp_path / "x.tar.xz", [member(UNIT, big)], units)
    assert archive.stat().st_size < 10_000
    with pytest.raises(ArchiveError, match="unpacks to more than 1000000 bytes; raise --limit"):
        merge(tmp_path / "b", archive, limit=1_000_000)
    assert merge(tmp_path / "b", archive, limit=GB).added == [UNIT]


def test_a_header_of_gigabytes_is_refused(tmp_path):
    """A pax header's length is the archive's own claim; it is read into memory before a member is seen."""
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 30
    with lzma.open(tmp_path / "x.tar.xz", "wb", preset=0) as stream:
        stream.write(header.tobuf(tarfile.GNU_FORMAT))
        stream.write(b"\0" * (16 << 20))
    with pytest.raises(ArchiveError, match="a header of more than 4 MiB"):
        merge(tmp_path / "b", tmp_path / "x.tar.xz", limit=GB)


def test_sums_that_name_other_files_are_refused(packed, tmp_path):
    packed.with_name("a.tar.xz.sha256").write_text(f"{'0' * 64}  ../../etc/passwd\n")
    with pytest.raises(ArchiveError, match=r"which is not a piece of a\.tar\.xz"):
        merge(tmp_path / "b", packed, limit=GB)


def test_nothing_is_written_through_a_link(packed, tmp_path):
    (tmp_path / "b/results").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "b/results/cpu").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveError, match="leads out of"):
        merge(tmp_path / "b", packed, limit=GB)
    assert not list((tmp_path / "elsewhere").iterdir())
