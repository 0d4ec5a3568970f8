"""A small bundle is installed, with every fault of a transfer and every difference of a host."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from bundle_tiny import make_tiny


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_what_is_installed_is_what_was_packed_and_works(tiny, install, tmp_path):
    into = tmp_path / "target"
    done = install(tiny, "--into", into)
    assert done.returncode == 0, done.stderr
    assert (into / "README.md").read_text() == "the project\n"
    assert os.access(into / "sub/run.sh", os.X_OK)
    assert files(into / "models/noise") == files(tmp_path / "source/data")
    script = into / ".envs/tool/bin/greet"
    assert subprocess.run([script], capture_output=True, text=True).stdout == "hello\n"
    # A second call finds all of it, and the pieces are not needed any more.
    for piece in tiny.glob("*.piece"):
        piece.unlink()
    done = install(tiny, "--into", into)
    assert (done.returncode, "is there already" in done.stdout) == (0, True), done.stderr


def test_the_folder_may_be_moved(tiny, install, tmp_path):
    assert install(tiny, "--into", tmp_path / "target").returncode == 0
    os.rename(tmp_path / "target", tmp_path / "moved to here")
    script = tmp_path / "moved to here/.envs/tool/bin/greet"
    assert subprocess.run([script], capture_output=True, text=True).stdout == "hello\n"


def test_equal_content_gives_equal_pieces(tiny, tmp_path):
    make_tiny(tmp_path / "source", tmp_path / "again")
    assert files(tmp_path / "again") == files(tiny)


def test_no_piece_is_larger_than_asked_for(tiny):
    sizes = [path.stat().st_size for path in tiny.glob("*.piece")]
    assert len(sizes) >= 3
    assert max(sizes) <= 60_000


def test_a_lost_piece_is_named_and_the_installation_resumes_with_it(tiny, install, tmp_path):
    lost = sorted(tiny.glob("*.piece"))[1]
    lost.rename(tmp_path / lost.name)
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 3
    assert f"{lost.name}: missing" in done.stderr
    assert "1 of" in done.stderr
    assert not (tmp_path / "target/README.md").exists()
    assert install(tiny, "--check").returncode == 3
    # It may come into a folder of its own.
    second = tmp_path / "second"
    second.mkdir()
    (tmp_path / lost.name).rename(second / lost.name)
    done = install(tiny, tiny, second, "--into", tmp_path / "target")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target/README.md").exists()


@pytest.mark.parametrize("at", [0, 5000, -1])
def test_a_flipped_byte_is_found_and_only_that_piece_named(tiny, install, tmp_path, at):
    damaged = sorted(tiny.glob("*.piece"))[-1]
    flip(damaged, at)
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 3
    assert f"{damaged}: damaged" in done.stderr
    assert done.stderr.count(".piece") == 1
    flip(damaged, at)
    assert install(tiny, "--into", tmp_path / "target").returncode == 0


def test_a_piece_cut_short_is_named_with_both_sizes(tiny, install, tmp_path):
    piece = sorted(tiny.glob("*.piece"))[0]
    whole = piece.read_bytes()
    piece.write_bytes(whole[:1000])
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 3
    assert f"1000 bytes, it has {len(whole)}" in done.stderr


def test_a_whole_copy_in_another_folder_replaces_a_damaged_one(tiny, install, tmp_path):
    shutil.copytree(tiny, tmp_path / "copy")
    flip(sorted(tiny.glob("*.piece"))[0], 100)
    assert install(tiny, tiny, tmp_path / "copy", "--check").returncode == 0


def test_only_the_pieces_of_what_is_missing_are_needed(tiny, install, tmp_path):
    into = tmp_path / "target"
    assert install(tiny, "--only", "project", "--only", "tool", "--into", into).returncode == 0
    manifest = json.loads((tiny / "manifest.json").read_text())
    of_data = {block["piece"] for block in manifest["components"]["data"]["blocks"]}
    for number, piece in enumerate(manifest["pieces"]):
        if number not in of_data:
            (tiny / piece["name"]).unlink()
    done = install(tiny, "--into", into)
    assert done.returncode == 0, done.stderr
    assert files(into / "models/noise") == files(tmp_path / "source/data")


def test_an_interrupted_installation_is_taken_up_again(tiny, install, tmp_path):
    into = tmp_path / "target"
    assert install(tiny, "--into", into).returncode == 0
    # As kill -9 leaves it: half an environment without its mark, and a folder being unpacked.
    (into / ".envs/tool/.bundle.json").unlink()
    shutil.rmtree(into / ".envs/tool/bin")
    (into / ".envs/.unpack-tool/tree").mkdir(parents=True)
    (into / ".envs/.unpack-tool/tree/half").write_text("x")
    kept = (into / "models/noise/0.bin").stat().st_ino
    done = install(tiny, "--into", into)
    assert done.returncode == 0, done.stderr
    assert "tool: installed into" in done.stdout
    assert (into / ".envs/tool/bin/greet").exists()
    assert not (into / ".envs/.unpack-tool").exists()
    assert (into / "models/noise/0.bin").stat().st_ino == kept


def test_a_file_edited_on_the_target_is_kept_by_the_next_bundle(tiny, install, tmp_path):
    into = tmp_path / "target"
    assert install(tiny, "--into", into).returncode == 0
    (into / "README.md").write_text("edited there\n")
    source = tmp_path / "source/project"
    (source / "README.md").write_text("the next version\n")
    (source / "sub/run.sh").unlink()
    make_tiny(tmp_path / "source", tmp_path / "next")
    done = install(tmp_path / "next", "--into", into)
    assert done.returncode == 0, done.stderr
    assert "README.md was edited here; kept as README.md.kept" in done.stdout
    assert (into / "README.md").read_text() == "the next version\n"
    assert (into / "README.md.kept").read_text() == "edited there\n"
    assert not (into / "sub/run.sh").exists()


def test_what_does_not_import_is_said_and_not_marked_as_installed(tiny, install, tmp_path):
    manifest = json.loads((tiny / "manifest.json").read_text())
    manifest["components"]["tool"]["check"] = "import greet, nowhere_to_be_found"
    (tiny / "manifest.json").write_text(json.dumps(manifest))
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert "No module named 'nowhere_to_be_found'" in done.stderr
    assert not (tmp_path / "target/.envs/tool/.bundle.json").exists()


def test_pieces_of_two_bundles_are_refused(tiny, install, tmp_path):
    (tmp_path / "source/project/README.md").write_text("another\n")
    make_tiny(tmp_path / "source", tmp_path / "other")
    done = install(tiny, tiny, tmp_path / "other", "--into", tmp_path / "target")
    assert done.returncode == 1
    assert "pieces of two bundles" in done.stderr


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"python": "3.99"}, "Python 3.99 is needed"),
        ({"machine": "riscv128"}, "made for riscv128, this host is"),
        ({"glibc": "9.99"}, "glibc 9.99 or newer is needed, this host has glibc"),
    ],
)
def test_a_host_that_differs_is_refused_before_anything_is_written(tiny, install, tmp_path, change, text):
    manifest = json.loads((tiny / "manifest.json").read_text())
    manifest["target"] |= change
    (tiny / "manifest.json").write_text(json.dumps(manifest))
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert text in done.stderr
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ({"no-such-package": None}, "tool: no-such-package was left out because the host has it, but"),
        ({"pytest": "0.0.1"}, "tool: pytest 0.0.1 is needed,"),
    ],
)
def test_packages_that_the_host_should_have_are_looked_for(tiny, install, tmp_path, host, text):
    manifest = json.loads((tiny / "manifest.json").read_text())
    manifest["components"]["tool"]["host"] = host
    (tiny / "manifest.json").write_text(json.dumps(manifest))
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert text in done.stderr
    # Without that environment the rest is not refused.
    assert install(tiny, "--without", "tool", "--into", tmp_path / "target").returncode == 0


def test_all_differences_of_a_host_are_named_at_once(tiny, install, tmp_path):
    manifest = json.loads((tiny / "manifest.json").read_text())
    manifest["target"] |= {"python": "3.99", "machine": "riscv128"}
    manifest["components"]["tool"]["host"] = {"no-such-package": None}
    (tiny / "manifest.json").write_text(json.dumps(manifest))
    done = install(tiny, "--into", tmp_path / "target")
    assert [word in done.stderr for word in ("3.99", "riscv128", "no-such-package")] == [True] * 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "damaged"), ('{"format": 99}', "format 99, this installs 1"), ("[]", "damaged")],
)
def test_a_manifest_that_cannot_be_read_is_refused(tiny, install, tmp_path, text, problem):
    (tiny / "manifest.json").write_text(text)
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert problem in done.stderr


def test_an_unknown_component_is_named(tiny, install, tmp_path):
    done = install(tiny, "--only", "nothing", "--into", tmp_path / "target")
    assert "'nothing' is not in the bundle; it holds project, tool, data" in done.stderr


def test_two_installations_into_one_folder_at_once_are_refused(tiny, install, tmp_path):
    import fcntl

    (tmp_path / "target/.envs").mkdir(parents=True)
    with open(tmp_path / "target/.envs/.bundle.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert "another installation into" in done.stderr


def test_a_full_disk_is_refused_before_anything_is_unpacked(tiny, tmp_path, monkeypatch):
    import bundle_install

    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(bundle_install.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(bundle_install.BundleError, match=r"GB are needed; free some"):
        bundle_install.install([tiny], tmp_path / "target", [], [], False, True)
    assert not (tmp_path / "target/README.md").exists()


def _member(name: str, **attributes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info


UNSAFE = {
    "parent": _member("../outside"),
    "absolute link": _member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "link outside": _member("link", type=tarfile.SYMTYPE, linkname="../../outside"),
    "hard link outside": _member("link", type=tarfile.LNKTYPE, linkname="../../outside"),
    "device": _member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "pipe": _member("pipe", type=tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_a_member_that_is_unsafe_is_refused(name, tmp_path):
    from bundle_install import BundleError, extract

    with tarfile.open(tmp_path / "tar", "w") as tar:
        tar.addfile(UNSAFE[name], io.BytesIO(b""))
    with pytest.raises(BundleError, match="refused"):
        extract(tmp_path / "tar", tmp_path / "a/b")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "a/outside").exists()


@pytest.mark.parametrize("into", ["../outside", "/tmp/outside", ".envs/../../outside"])
def test_a_manifest_that_leads_outside_is_refused(tiny, install, tmp_path, into):
    manifest = json.loads((tiny / "manifest.json").read_text())
    manifest["components"]["data"]["into"] = into
    (tiny / "manifest.json").write_text(json.dumps(manifest))
    done = install(tiny, "--into", tmp_path / "target")
    assert done.returncode == 1
    assert "outside of" in done.stderr
    assert not (tmp_path / "outside").exists()


def test_a_block_that_unpacks_to_more_than_it_says_is_refused(tiny, tmp_path):
    import hashlib
    import lzma
    import tracemalloc

    from bundle_install import BundleError, unpack_blocks

    bomb = lzma.compress(b"\0" * (64 << 20))
    (tmp_path / "piece").write_bytes(bomb)
    digest = hashlib.sha256(b"\0" * 1000).hexdigest()
    block = {"piece": 0, "offset": 0, "length": len(bomb), "xz": True, "size": 1000, "sha256": digest}
    tracemalloc.start()
    with pytest.raises(BundleError, match="differs from the manifest"):
        unpack_blocks({"blocks": [block]}, {0: tmp_path / "piece"}, tmp_path / "tar")
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "size"), [("57MB", 57_000_000), ("64MiB", 64 << 20), ("1GB", 10**9), ("1.5G", 1_500_000_000)]
)
def test_sizes(text, size):
    from bundle import bytes_of

    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "MB", "12XB", "1KB", "-5MB", "57 apples"])
def test_what_is_no_size_is_refused(text):
    from bundle import bytes_of

    with pytest.raises(argparse.ArgumentTypeError):
        bytes_of(text)
