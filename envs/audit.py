"""Audit what is locked: every package pinned with digests, nothing from elsewhere, no known vulnerability.

    python envs/audit.py [--advisories FOLDER] [LOCK...]

Pins and digests are checked without network. Known vulnerabilities are looked up in a folder of advisories in the
OSV format (https://ossf.github.io/osv-schema/; a clone of pypa/advisory-database with its files as JSON, or OSV's
PyPI export unpacked), or by `pip-audit` where that is installed; without either this part is skipped, and says so.
Exit code 1: a lock is not sound, or a vulnerability of a locked version is known.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).resolve().parent
PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==([^\s;\\]+)")
DIGEST = re.compile(r"--hash=sha256:[0-9a-f]{64}(\s|$)")


def locks() -> list[Path]:
    return sorted([*HERE.glob("*.lock"), *(HERE / "bundle").glob("*.lock")])


def entries(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines of a lock with their numbers: continued lines joined, comments left out."""
    start, parts = 0, []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not parts and (not bare or bare.startswith("#")):
            continue
        start = start if parts else number
        if not bare.startswith("#"):
            parts.append(bare.removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            yield start, " ".join(parts)
            parts = []
    if parts:
        yield start, " ".join(parts)


def read_lock(path: Path) -> tuple[dict[str, str], list[str]]:
    """(name to version, problems) of one lock."""
    found: dict[str, str] = {}
    problems = []
    for number, entry in entries(path.read_text(encoding="utf-8")):
        where = f"{path.name}:{number}"
        pin = PIN.match(entry)
        if not pin:
            problems.append(f"{where}: {entry[:80]!r} is not NAME==VERSION with digests")
            continue
        name = canonicalize_name(pin[1])
        if not DIGEST.search(entry):
            problems.append(f"{where}: {name} has no sha256 digest")
        if name in found:
            problems.append(f"{where}: {name} is locked twice")
        found[name] = pin[3]
    if not found:
        problems.append(f"{path.name}: locks nothing")
    return found, problems


def affects(affected: dict[str, Any], version: str) -> bool:
    """Whether an OSV ``affected`` entry covers a version: listed, or in one of its ranges."""
    if version in affected.get("versions", []):
        return True
    try:
        here = Version(version)
    except InvalidVersion:
        return False
    for span in affected.get("ranges", []):
        if span.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in sorted(span.get("events", []), key=_when):
            kind, value = next(iter(event.items()))
            if kind == "introduced":
                inside = inside or value == "0" or here >= Version(value)
            elif (kind == "fixed" and here >= Version(value)) or (kind == "last_affected" and here > Version(value)):
                inside = False
        if inside:
            return True
    return False


def _when(event: dict[str, str]) -> Version:
    return Version(next(iter(event.values())))


def known(folder: Path, locked: dict[str, dict[str, str]]) -> list[tuple[str, str, str, str]]:
    """(advisory, package, version, lock) of what a folder of OSV files says about locked packages."""
    wanted = {name for packages in locked.values() for name in packages}
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            advisory = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SystemExit(f"audit: {path}: not JSON ({error})") from None
        if not isinstance(advisory, dict) or advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", []):
            package = affected.get("package", {})
            name = canonicalize_name(package.get("name", ""))
            if package.get("ecosystem") != "PyPI" or name not in wanted:
                continue
            found += [
                (advisory["id"], name, packages[name], lock)
                for lock, packages in locked.items()
                if name in packages and affects(affected, packages[name])
            ]
    return sorted(set(found))


def by_pip_audit(program: str, paths: list[Path]) -> list[str]:
    """What pip-audit says (it asks its service over the network)."""
    lines = []
    for path in paths:
        command = [program, "--requirement", str(path), "--require-hashes", "--disable-pip", "--progress-spinner=off"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines.append(f"{path.name}: pip-audit: {(done.stdout or done.stderr).strip()}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advisories", type=Path, help="folder of advisories as OSV JSON files")
    parser.add_argument("locks", nargs="*", type=Path, help="default: all locks of the project")
    arguments = parser.parse_args()
    paths = arguments.locks or locks()
    problems, locked = [], {}
    for path in paths:
        locked[path.name], bad = read_lock(path)
        problems += bad
    print(f"audit: {len(paths)} locks, {sum(map(len, locked.values()))} packages: pins and digests", flush=True)
    if arguments.advisories:
        if not any(arguments.advisories.rglob("*.json")):
            sys.exit(f"audit: {arguments.advisories} holds no advisory (*.json)")
        for advisory, name, version, lock in known(arguments.advisories, locked):
            problems.append(f"{lock}: {name} {version}: {advisory}")
        print(f"audit: known vulnerabilities looked up in {arguments.advisories}")
    elif program := shutil.which("pip-audit"):
        problems += by_pip_audit(program, paths)
        print("audit: known vulnerabilities looked up by pip-audit")
    else:
        print("audit: SKIPPED: known vulnerabilities (name --advisories FOLDER, or install pip-audit)")
    if problems:
        sys.exit("audit: " + "\naudit: ".join(problems))


if __name__ == "__main__":
    main()
