"""A bundle for a host without network: made here, carried over in pieces, installed there.

    python envs/bundle.py make --target h200 [--piece-size 57MB] [--model FOLDER] [--out FOLDER]
    python envs/bundle.py lock --target h200 [ROLE...]      write the target's locks again (needs uv and the network)
    python envs/bundle.py install PIECES --into DIR         what PIECES/install.py does

A target is a file envs/bundle/NAME.yaml: its Python, the wheels that fit, what the host has already.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import bundle_install
from bundle_install import FORMAT, MANIFEST, BundleError
from bundle_make import ROOT, Target, fetch, lock, project_files, read_target, slim_wheel
from bundle_pieces import SMALLEST_PIECE, Pieces, tree_members, write_component

UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def bytes_of(text: str) -> int:
    """Bytes of a size such as ``57MB`` or ``1GiB``.

    Raises:
        argparse.ArgumentTypeError: not a size, or too small for a piece.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B?)\s*", text.upper())
    unit = found[2] if found else None
    if unit in ("K", "M", "G"):
        unit += "B"
    if not found or unit not in UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 57MB, 64MiB or 1GB")
    size = int(float(found[1]) * UNITS[unit])
    if size < SMALLEST_PIECE:
        raise argparse.ArgumentTypeError(f"{text!r} is too small: a piece has at least {SMALLEST_PIECE} bytes")
    return size


def commit(root: Path) -> dict[str, Any]:
    """The project's commit, and whether files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True).stdout.strip()

    return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "--untracked-files=no"))}


def components(
    target: Target, roles: list[str], build: Path, model: Path | None, wheels: Path
) -> dict[str, tuple[dict[str, Any], list[tuple[Path, str]]]]:
    """What goes into the bundle: (its entry in the manifest, its files as (path, name)).

    Raises:
        BundleError: something is missing.
    """
    # What is not there is told before minutes of fetching.
    carried = {stem: wheels_of(wheels, stem) for stem in target.wheels}
    if model and not (model / "config.json").is_file():
        raise BundleError(f"--model {model}: config.json does not exist there; name a Hugging Face model folder")
    found: dict[str, tuple[dict[str, Any], list[tuple[Path, str]]]] = {}
    project = [(ROOT / name, name) for name in project_files(ROOT)]
    found["project"] = ({"kind": "files", "into": "."}, project)
    for name in roles:
        role = target.roles[name]
        print(f"  {name}: packages of {target.lock(name).name}", flush=True)
        entry = {"kind": "environment", "into": f".envs/{name}", "host": role.host, "check": role.check}
        found[name] = (entry, list(tree_members(fetch(target, role, build))))
    if target.wheels:
        folder = build / "wheels"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for stem, patterns in target.wheels.items():
            for path in carried[stem]:
                slim_wheel(path, folder / path.name, patterns) if patterns else shutil.copyfile(
                    path, folder / path.name
                )
        found["wheels"] = ({"kind": "files", "into": ".envs/wheels"}, list(tree_members(folder)))
    if model:
        found["model"] = ({"kind": "files", "into": f"models/{model.resolve().name}"}, list(tree_members(model)))
    return found


def wheels_of(folder: Path, stem: str) -> list[Path]:
    paths = sorted(folder.glob(f"{stem}-*.whl"))
    if not paths:
        raise BundleError(f"{folder} has no wheel of {stem}; `python3 envs/setup.py wheels` fetches it")
    return paths


def make(arguments: argparse.Namespace) -> None:
    """Make the bundle in a folder of its own, replacing an earlier one only when it is whole.

    Raises:
        BundleError: see ``components``.
    """
    began = time.monotonic()
    target = read_target(arguments.target)
    roles = arguments.role or list(target.roles)
    if unknown := sorted(set(roles) - set(target.roles)):
        raise BundleError(f"{unknown[0]!r} is not a role of target {target.name}; it has {', '.join(target.roles)}")
    out = arguments.out or ROOT / "bundle" / target.name
    build = ROOT / ".cache" / "bundle" / target.name
    build.mkdir(parents=True, exist_ok=True)
    new = out.with_name(out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    pieces = Pieces(new, f"adrbench-{target.name}", arguments.piece_size)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "target": {key: getattr(target, key) for key in ("name", "python", "machine", "glibc")},
        "project": commit(ROOT),
        "made_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "components": {},
    }
    for name, (entry, members) in components(target, roles, build, arguments.model, arguments.wheels).items():
        blocks = write_component(members, pieces, os.cpu_count() or 1, arguments.preset)
        manifest["components"][name] = entry | {"files": len(members), "blocks": blocks}
        packed, size = sum(block["length"] for block in blocks), sum(block["size"] for block in blocks)
        print(f"  {name}: {len(members)} files, {size / 1e6:.1f} MB, packed {packed / 1e6:.1f} MB", flush=True)
    manifest["pieces"] = pieces.finish()
    (new / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    shutil.copyfile(bundle_install.__file__, new / "install.py")
    shutil.rmtree(out, ignore_errors=True)
    os.rename(new, out)
    total = sum(piece["size"] for piece in manifest["pieces"])
    print(f"{out}: {len(manifest['pieces'])} pieces, {total / 1e6:.1f} MB, after {time.monotonic() - began:.0f} s")
    print(f"carry them, {MANIFEST} and install.py over, then: python3 PIECES/install.py --into DIR")


def write_locks(arguments: argparse.Namespace) -> None:
    target = read_target(arguments.target)
    for name in arguments.role or target.roles:
        if name not in target.roles:
            raise BundleError(f"{name!r} is not a role of target {target.name}; it has {', '.join(target.roles)}")
        count = lock(target, target.roles[name], arguments.uv)
        print(f"{target.lock(name).name}: {count} packages")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = made.add_subparsers(dest="command", required=True)
    for name, text in (("make", "make a bundle"), ("lock", "write a target's locks")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--target", required=True, help="name of a file envs/bundle/NAME.yaml")
        command.add_argument("--role", action="append", help="only this role (repeatable; default: all)")
    command.add_argument("--uv", default="uv", help="the program uv")
    command = commands.choices["make"]
    command.add_argument("--piece-size", type=bytes_of, default=bytes_of("1GB"), help="57MB, 64MiB, ... (default 1GB)")
    command.add_argument("--model", type=Path, help="a model folder to take along, to models/<its name>")
    command.add_argument("--out", type=Path, help="folder for the pieces (default bundle/<target>)")
    command.add_argument("--wheels", type=Path, default=ROOT / ".envs" / "wheels", help=argparse.SUPPRESS)
    command.add_argument("--preset", type=int, default=6, choices=range(10), help="xz preset (default 6)")
    commands.add_parser("install", add_help=False, help="install a bundle (see install --help)")
    return made


def main() -> None:
    if sys.argv[1:2] == ["install"]:
        bundle_install.main(sys.argv[2:])
        return
    arguments = parser().parse_args()
    try:
        {"make": make, "lock": write_locks}[arguments.command](arguments)
    except BundleError as error:
        sys.exit(f"bundle: {error}")
    except OSError as error:
        sys.exit(f"bundle: {error}; free space or fix permissions, then call it again")
    except KeyboardInterrupt:
        sys.exit("bundle: interrupted; call it again: what was fetched is kept")


if __name__ == "__main__":
    main()
