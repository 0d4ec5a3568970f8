"""Install a bundle made by ``bundle.py make``: standard library only, no network, no package of the project.

    python3 PIECES/install.py --into DIR              check the pieces, unpack, make the environments, try them
    python3 PIECES/install.py --check                 only: which pieces are missing or damaged?
    python3 PIECES/install.py MORE_PIECES --into DIR  pieces may lie in several folders

DIR becomes a working copy of the project with `.envs/<role>/bin/python` for each role. The interpreter that
runs this is the one whose packages (torch and so on) the environments see. Interrupted, or stopped because a
piece is missing, it is simply called again: what is whole is kept.

One file, whatever its length: it is copied beside the pieces as install.py and runs there alone, on a host that has
nothing else of the project yet.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import importlib.metadata
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
INCOMPLETE = 3  # exit code: pieces are missing or damaged; everything else is as it was
HOST_SITE = "_host.pth"
MARK = ".bundle.json"


class BundleError(RuntimeError):
    """The bundle cannot be installed; the text says why and what to do."""


class PiecesError(BundleError):
    """Pieces are missing or damaged; the text names each of them."""


def digest_file(path: Path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def read_manifest(folders: list[Path]) -> dict[str, Any]:
    """The manifest beside the pieces; where several folders have one they must agree.

    Raises:
        BundleError: none, two different ones, damaged, or of another format.
    """
    found = [folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()]
    if not found:
        raise BundleError(f"no {MANIFEST} in {', '.join(map(str, folders))}; carry it over with the pieces")
    if len({digest_file(path) for path in found}) > 1:
        raise BundleError(f"{' and '.join(map(str, found))} differ: pieces of two bundles; keep those of one")
    try:
        manifest = json.loads(found[0].read_text(encoding="utf-8"))
        version = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{found[0]}: damaged ({error}); carry it over again") from None
    if version != FORMAT:
        raise BundleError(f"{found[0]}: format {version!r}, this installs {FORMAT}; use the install.py beside it")
    return dict(manifest)


def find_pieces(manifest: dict[str, Any], folders: list[Path], wanted: set[int]) -> dict[int, Path]:
    """Where each wanted piece lies, every one checked against its digest.

    Raises:
        PiecesError: naming each piece that is missing or damaged, whole ones are not touched.
    """

    def look(number: int) -> tuple[int, Path | None, str]:
        piece = manifest["pieces"][number]
        problem = f"{piece['name']}: missing"
        for folder in folders:
            path = folder / piece["name"]
            if not path.is_file():
                continue
            if path.stat().st_size != piece["size"]:
                problem = f"{path}: {path.stat().st_size} bytes, it has {piece['size']}"
            elif digest_file(path) != piece["sha256"]:
                problem = f"{path}: damaged (its SHA-256 is another one)"
            else:
                return number, path, ""
        return number, None, problem

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        looked = list(pool.map(look, sorted(wanted)))
    if problems := [problem for _, _, problem in looked if problem]:
        raise PiecesError(
            f"{len(problems)} of {len(looked)} pieces must be carried over (again), the others are whole:\n  "
            + "\n  ".join(problems)
        )
    return {number: path for number, path, _ in looked if path}


def check_host(manifest: dict[str, Any], roles: list[str]) -> None:
    """Is this the host that the bundle was made for?

    Raises:
        BundleError: all differences, one a line.
    """
    target, problems = manifest["target"], []
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != target["python"]:
        problems.append(f"Python {target['python']} is needed, {sys.executable} is {here}; run this with the other one")
    if platform.machine() != target["machine"]:
        problems.append(f"made for {target['machine']}, this host is {platform.machine()}")
    libc, version = platform.libc_ver()
    wanted = target.get("glibc")
    if wanted and (libc != "glibc" or _numbers(version) < _numbers(wanted)):
        problems.append(f"glibc {wanted} or newer is needed, this host has {libc or 'another libc'} {version}")
    for role in roles:
        for name, needed in manifest["components"][role].get("host", {}).items():
            try:
                found = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                problems.append(f"{role}: {name} was left out because the host has it, but {sys.executable} has not")
                continue
            if needed and found.partition("+")[0] != needed:
                problems.append(f"{role}: {name} {needed} is needed, {sys.executable} has {found}")
    if problems:
        raise BundleError(
            "this host is not what the bundle was made for; correct the target's file and make it again, or run "
            "this with another interpreter:\n  " + "\n  ".join(problems)
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def unpack_blocks(component: dict[str, Any], pieces: dict[int, Path], target: Path) -> None:
    """Write a component's tar file: its blocks are decompressed side by side, each checked, each in its place.

    Raises:
        BundleError: a block is not what the manifest says.
    """
    offsets, at = [], 0
    for block in component["blocks"]:
        offsets.append(at)
        at += block["size"]
    handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def one(block: dict[str, Any], offset: int) -> None:
        with open(pieces[block["piece"]], "rb") as stream:
            stream.seek(block["offset"])
            data = stream.read(block["length"])
        if block["xz"]:
            try:
                # One byte more than it should have: a block that unpacks to gigabytes must not fill the memory.
                data = lzma.LZMADecompressor().decompress(data, block["size"] + 1)
            except lzma.LZMAError as error:
                raise BundleError(f"{pieces[block['piece']]}: a block cannot be decompressed ({error})") from None
        if len(data) != block["size"] or hashlib.sha256(data).hexdigest() != block["sha256"]:
            raise BundleError(f"{pieces[block['piece']]}: a block differs from the manifest; make the bundle again")
        while data:
            done = os.pwrite(handle, data, offset)
            data, offset = data[done:], offset + done

    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # lzma and hashlib release the interpreter's lock
            list(pool.map(one, component["blocks"], offsets))
    finally:
        os.close(handle)


def extract(archive: Path, folder: Path) -> None:
    """Extract a tar file: plain files, folders and links that stay inside, nothing else, nothing outside.

    Raises:
        BundleError: a member that would leave the folder, or is a device, or this Python is too old to refuse them.
    """
    if not hasattr(tarfile, "data_filter"):
        raise BundleError(f"{sys.executable} extracts archives without checking them; use Python 3.11.4 or newer")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:") as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise BundleError(f"{archive.name}: refused: {error}") from None


def host_folders() -> list[str]:
    """Folders of installed packages that this interpreter searches."""
    return [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages") and Path(p).is_dir()]


def scripts(site: Path, of_host: Iterable[str] = ()) -> dict[str, tuple[str, str]]:
    """Console scripts of the packages in ``site`` and of packages of this interpreter: name to (module, attribute)."""
    found = {}
    here = [importlib.metadata.distribution(name) for name in of_host]
    for distribution in [*here, *importlib.metadata.distributions(path=[str(site)])]:
        for entry in distribution.entry_points:
            if entry.group == "console_scripts":
                found[entry.name] = (entry.module, entry.attr)
    return found


SCRIPT = """#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
import sys
from {module} import {root}
sys.exit({attribute}())
"""


def make_environment(folder: Path, unpacked: Path, *, host: Iterable[str], compile_files: bool) -> None:
    """A virtual environment of this interpreter with the unpacked packages first and the host's after them.

    ``host`` names the packages that the host brings: they get their scripts here too.
    Its scripts find their interpreter by their own place, so that the folder may be moved.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    shutil.rmtree(site)
    os.rename(unpacked / "site", site)
    if host:
        # addsitedir, not a bare path: packages of the host may have .pth files of their own.
        lines = [f"import site; site.addsitedir({path!r})\n" for path in host_folders()]
        (site / HOST_SITE).write_text("".join(lines))
    for entry in unpacked.iterdir():
        if entry.name != "bin":
            shutil.copytree(entry, folder / entry.name, dirs_exist_ok=True)
            continue
        for program in entry.iterdir():
            os.rename(program, folder / "bin" / program.name)
    for name, (module, attribute) in scripts(site, host).items():
        path = folder / "bin" / name
        path.write_text(SCRIPT.format(module=module, root=attribute.split(".")[0], attribute=attribute))
        path.chmod(0o755)
    if compile_files:
        command = [str(folder / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", str(site)]
        # A package may ship files for other Python versions: those do not compile, and are not imported.
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def check_environment(role: str, folder: Path, code: str, into: Path) -> str:
    """Import what the role is for, in its interpreter; seconds and nothing else when it works.

    Raises:
        BundleError: with the last lines of what it said.
    """
    began = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(into / "pythonpath"), "VLLM_NO_USAGE_STATS": "1"}
    command = [str(folder / "bin" / "python"), "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=into)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BundleError(f"{role}: {command[0]} cannot be run ({error})") from None
    if done.returncode:
        raise BundleError(f"{role}: `{code}` fails in {command[0]}:\n{(done.stderr or done.stdout).strip()[-1500:]}")
    return f"{role}: works ({time.monotonic() - began:.0f} s)"


def identity(component: dict[str, Any]) -> str:
    """What an installed component is recognised by: its content and this interpreter."""
    text = json.dumps([component["blocks"], component.get("check"), sys.version, sys.prefix, host_folders()])
    return hashlib.sha256(text.encode()).hexdigest()


def place_of(name: str, component: dict[str, Any], into: Path) -> Path:
    """Where a component goes, refused when the manifest names a place outside of the folder.

    Raises:
        BundleError: naming component and place.
    """
    place = (into / component["into"]).resolve()
    if not place.is_relative_to(into.resolve()):
        raise BundleError(f"{name}: the manifest puts it into {component['into']!r}, outside of {into}; refused")
    return place


def install_component(
    name: str, component: dict[str, Any], pieces: dict[int, Path], into: Path, compile_files: bool
) -> None:
    """Unpack one component and put it in place; a half-made one of an earlier call is replaced."""
    place, work = place_of(name, component, into), into / ".envs" / f".unpack-{name}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        unpack_blocks(component, pieces, work / "tar")
        extract(work / "tar", work / "tree")
        (work / "tar").unlink()
        if component["kind"] == "environment":
            shutil.rmtree(place, ignore_errors=True)
            make_environment(place, work / "tree", host=component.get("host") or (), compile_files=compile_files)
        else:
            merge_tree(work / "tree", place, into / ".envs" / f".{name}.files.json")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fingerprint(path: Path) -> str:
    return "-> " + os.readlink(path) if path.is_symlink() else digest_file(path)


def merge_tree(tree: Path, place: Path, record: Path) -> None:
    """Move files into a folder that may hold others: those of the last installation go, edited ones are kept aside.

    A file that was edited since it was installed is kept as ``NAME.kept``, and named.
    """
    last: dict[str, str] = json.loads(record.read_text()) if record.is_file() else {}
    new = {
        str(path.relative_to(tree)): fingerprint(path)
        for path in sorted(tree.rglob("*"))
        if path.is_symlink() or path.is_file()
    }
    for name in sorted({*last, *new}):
        path = place / name
        if not (path.is_symlink() or path.is_file()):
            continue
        old = fingerprint(path)
        if old not in (last.get(name), new.get(name)):
            os.replace(path, path.with_name(path.name + ".kept"))
            print(f"install: {path} was edited here; kept as {path.name}.kept", flush=True)
        elif name not in new:
            path.unlink()
    for name in new:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(tree / name, place / name)
    record.write_text(json.dumps(new))


def mark_path(name: str, component: dict[str, Any], into: Path) -> Path:
    place = place_of(name, component, into)
    return place / MARK if component["kind"] == "environment" else into / ".envs" / f".{name}{MARK}"


def mark(name: str, component: dict[str, Any], into: Path) -> None:
    """Written last: what has it is whole."""
    text = json.dumps({"component": name, "identity": identity(component)})
    mark_path(name, component, into).write_text(text + "\n")


def is_installed(name: str, component: dict[str, Any], into: Path) -> bool:
    try:
        found = json.loads(mark_path(name, component, into).read_text())
        return bool(found["identity"] == identity(component)) and place_of(name, component, into).is_dir()
    except (OSError, ValueError, KeyError, TypeError):
        return False


@contextlib.contextmanager
def only_one(into: Path) -> Iterator[None]:
    """Refuse a second installation into the same folder at the same time.

    Raises:
        BundleError: another one runs.
    """
    import fcntl

    (into / ".envs").mkdir(parents=True, exist_ok=True)
    with open(into / ".envs" / ".bundle.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BundleError(f"another installation into {into} is running; wait for it") from None
        yield


def check_space(components: dict[str, Any], into: Path) -> None:
    needed = 2.2 * sum(block["size"] for component in components.values() for block in component["blocks"])
    free = shutil.disk_usage(into).free
    if free < needed:
        raise BundleError(f"{into} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB are needed; free some")


def choose(manifest: dict[str, Any], only: list[str], without: list[str]) -> dict[str, Any]:
    """The components to install.

    Raises:
        BundleError: a name that the bundle does not have.
    """
    components = manifest["components"]
    for pattern in [*only, *without]:
        if not fnmatch.filter(components, pattern):
            raise BundleError(f"{pattern!r} is not in the bundle; it holds {', '.join(components)}")
    return {
        name: component
        for name, component in components.items()
        if (not only or any(fnmatch.fnmatch(name, p) for p in only))
        and not any(fnmatch.fnmatch(name, p) for p in without)
    }


def install(
    folders: list[Path], into: Path, only: list[str], without: list[str], compile_files: bool, skip_checks: bool
) -> list[str]:
    """Install what is not there yet; one line for each thing done.

    Raises:
        PiecesError: pieces are missing or damaged.
        BundleError: anything else that stops it; the text says what to do.
    """
    manifest = read_manifest(folders)
    chosen = choose(manifest, only, without)
    environments = [name for name, component in chosen.items() if component["kind"] == "environment"]
    check_host(manifest, environments)
    into = into.resolve()
    with only_one(into):
        missing = {name: c for name, c in chosen.items() if not is_installed(name, c, into)}
        if not missing:
            return [f"{into}: all of {', '.join(chosen)} is there already"]
        wanted = {block["piece"] for component in missing.values() for block in component["blocks"]}
        pieces = find_pieces(manifest, folders, wanted)
        check_space(missing, into)
        lines = [f"{len(pieces)} pieces are whole"]

        def one(item: tuple[str, dict[str, Any]]) -> None:
            install_component(item[0], item[1], pieces, into, compile_files)

        with ThreadPoolExecutor(len(missing)) as pool:
            list(pool.map(one, missing.items()))
            checks = [
                pool.submit(check_environment, name, into / c["into"], c["check"], into)
                for name, c in missing.items()
                if c.get("check") and not skip_checks
            ]
            lines += [check.result() for check in checks]
        for name, component in missing.items():
            mark(name, component, into)
        return [*lines, f"{', '.join(missing)}: installed into {into}"]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("folders", nargs="*", type=Path, help="folders that hold pieces (default: this file's own)")
    made.add_argument("--into", type=Path, help="folder that becomes a working copy of the project")
    made.add_argument("--check", action="store_true", help="only look which pieces are missing or damaged")
    made.add_argument("--only", action="append", default=[], metavar="NAME", help="install this component (repeatable)")
    made.add_argument("--without", action="append", default=[], metavar="NAME", help="leave this component out")
    made.add_argument("--no-compile", action="store_true", help="leave byte-compiling to the first import")
    made.add_argument("--no-try", action="store_true", help="do not import what was installed")
    return made


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    folders = arguments.folders or [Path(__file__).resolve().parent]
    began = time.monotonic()
    try:
        if arguments.check:
            manifest = read_manifest(folders)
            components = choose(manifest, arguments.only, arguments.without)
            wanted = {block["piece"] for component in components.values() for block in component["blocks"]}
            found = find_pieces(manifest, folders, wanted)
            print(f"all {len(found)} pieces are there and whole")
            return
        if not arguments.into:
            sys.exit("install: --into DIR is needed")
        lines = install(
            folders, arguments.into, arguments.only, arguments.without, not arguments.no_compile, arguments.no_try
        )
        print("\n".join(lines))
        print(f"done in {time.monotonic() - began:.0f} s")
    except PiecesError as error:
        print(f"install: {error}", file=sys.stderr)
        sys.exit(INCOMPLETE)
    except BundleError as error:
        sys.exit(f"install: {error}")
    except OSError as error:
        sys.exit(f"install: {error}; free space or fix permissions, then call it again")
    except KeyboardInterrupt:
        sys.exit("install: interrupted; call it again to go on")


if __name__ == "__main__":
    main()
