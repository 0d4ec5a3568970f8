"""Make a bundle: wheels of a target's locks, unpacked and slimmed, the project, models; in pieces with digests.

Used by ``bundle.py``. A component (one role's packages, the project, ...) is one tar stream, cut into blocks
that are compressed each by itself, so that a target with many cores unpacks them side by side; blocks are packed
into pieces of the size asked for.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bundle_install import BundleError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TARGETS = HERE / "bundle"


@dataclass
class Role:
    """One environment of the target: what it locks, what the host has instead, what is taken out again."""

    name: str
    newest: str
    check: str
    host: dict[str, str | None] = field(default_factory=dict)
    leave_out: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    strip: list[str] = field(default_factory=list)


@dataclass
class Target:
    """A target's file, checked."""

    name: str
    python: str
    machine: str
    glibc: str
    roles: dict[str, Role]
    strip: list[str]
    wheels: dict[str, list[str]]
    folder: Path = TARGETS

    def lock(self, role: str) -> Path:
        return self.folder / f"{self.name}-{role}.lock"

    def source(self, role: str) -> Path:
        return self.folder / f"{self.name}-{role}.in"

    def tags(self) -> list[str]:
        """pip's platform tags of the wheels that run there, the newest glibc's first."""
        major, minor = map(int, self.glibc.split("."))
        tags = [f"manylinux_{major}_{number}_{self.machine}" for number in range(minor, 4, -1)]
        old = [f"manylinux{name}_{self.machine}" for name in ("2014", "2010", "1")]
        return [*tags, *old, f"linux_{self.machine}"]


def canonical_name(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _keys(where: str, value: Any, needed: set[str], optional: set[str] = frozenset()) -> dict[str, Any]:  # type: ignore[assignment]
    if not isinstance(value, dict):
        raise BundleError(f"{where}: a mapping is needed, not {value!r}")
    if unknown := sorted(set(value) - needed - optional):
        raise BundleError(f"{where}: {unknown[0]!r} is unknown; there are {', '.join(sorted(needed | optional))}")
    if missing := sorted(needed - set(value)):
        raise BundleError(f"{where}: {missing[0]!r} is missing")
    return value


def _texts(where: str, value: Any) -> list[str]:
    if not isinstance(value or [], list) or not all(isinstance(item, str) for item in value or []):
        raise BundleError(f"{where}: a list of texts is needed, not {value!r}")
    return list(value or [])


def _role(name: str, where: str, value: Any) -> Role:
    value = _keys(where, value, {"newest", "check"}, {"host", "leave_out", "source", "strip"})
    host = value.get("host") or {}
    if not isinstance(host, dict):
        raise BundleError(f"{where}.host: a mapping is needed, not {host!r}")
    host = dict(host)
    found: dict[str, str | None] = {
        canonical_name(package): None for package in _texts(f"{where}.host.any", host.pop("any", []))
    }
    for package, version in host.items():
        if not isinstance(version, str):
            raise BundleError(f'{where}.host.{package}: {version!r} must be a version in quotes, such as "2.11.0"')
        found[canonical_name(package)] = version
    lists = {key: _texts(f"{where}.{key}", value.get(key)) for key in ("leave_out", "source", "strip")}
    return Role(name, str(value["newest"]), value["check"], found, **lists)


def read_target(name: str, folder: Path = TARGETS) -> Target:
    """Read ``envs/bundle/NAME.yaml``.

    Raises:
        BundleError: naming file, key and value.
    """
    import yaml

    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise BundleError(f"target {name!r} is unknown: {path} does not exist; there are {known}")
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise BundleError(f"{path}: not YAML ({error})") from None
    value = _keys(str(path), value, {"name", "python", "machine", "glibc", "roles"}, {"strip", "wheels"})
    if value["name"] != name:
        raise BundleError(f"{path}: name: {value['name']!r} must equal the file's name")
    if not isinstance(value["roles"], dict) or not value["roles"]:
        raise BundleError(f"{path}: roles: a mapping of at least one role is needed, not {value['roles']!r}")
    roles = {role: _role(role, f"{path}: roles.{role}", content) for role, content in value["roles"].items()}
    for key in ("python", "glibc"):
        # A number would read 3.10 as 3.1.
        if not isinstance(value[key], str) or not re.fullmatch(r"\d+\.\d+", value[key]):
            raise BundleError(f'{path}: {key}: {value[key]!r} must be like "3.12", in quotes')
    strip_always, wheels = _texts(f"{path}: strip", value.get("strip")), dict(value.get("wheels") or {})
    return Target(name, value["python"], value["machine"], value["glibc"], roles, strip_always, wheels, folder)


def left_out(name: str, role: Role) -> bool:
    name = canonical_name(name)
    return name in role.host or any(fnmatch.fnmatch(name, pattern) for pattern in role.leave_out)


def lock(target: Target, role: Role, uv: str = "uv") -> int:
    """Write a role's lock: versions of its day with hashes, without what the host has; the number of packages.

    Raises:
        BundleError: uv fails; its words.
    """
    platform = f"{target.machine}-manylinux_{target.glibc.replace('.', '_')}"
    command = [
        uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate", "--no-header",
        "--python-version", target.python, "--python-platform", platform, "--exclude-newer", role.newest,
    ]  # fmt: skip
    text = target.source(role.name).read_text()
    try:
        # In memory: nothing stays in the temporary folder, however this ends.
        with open(os.memfd_create("constraints"), "w") as constraints:
            # What the host has in a fixed version decides what goes with it.
            constraints.writelines(f"{name}=={version}\n" for name, version in role.host.items() if version)
            constraints.flush()
            constraints.seek(0)
            number = constraints.fileno()
            command += ["--constraint", f"/proc/self/fd/{number}", "-"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, pass_fds=[number])
    except (OSError, subprocess.CalledProcessError) as error:
        raise BundleError(f"{target.lock(role.name).name}: {getattr(error, 'stderr', None) or error}") from None
    from lock import blocks

    kept = [block for block in blocks(done.stdout) if not left_out(re.split(r"[=\[ ]", block)[0], role)]
    header = (
        f"# Locked from {target.source(role.name).name} by `envs/bundle.py lock --target {target.name}`, Python "
        f"{target.python},\n# as of {role.newest}; without what envs/bundle/{target.name}.yaml says the host has.\n"
    )
    names = {canonical_name(name) for name in role.source}
    source = [block for block in kept if canonical_name(re.split(r"[=\[ ]", block)[0]) in names]
    binary = [block for block in kept if block not in source]
    text = header + "".join(binary) + ("\n# source\n" + "".join(source) if source else "")
    target.lock(role.name).write_text(text)
    return len(kept)


def run_pip(arguments: list[str], log: Path) -> None:
    """Run pip of this interpreter; its output goes to ``log``.

    Raises:
        BundleError: with pip's own error lines.
    """
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input", "-q"]
    with open(log, "a") as stream:
        done = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = [line for line in log.read_text().splitlines() if "ERROR" in line]
        raise BundleError(f"pip ended with code {done.returncode}; its log is {log}\n" + "\n".join(lines[-6:]))


def fetch(target: Target, role: Role, build: Path) -> Path:
    """The role's packages as a folder of ``site/``, ``bin/`` and others; kept while lock and target stay the same.

    A package that is published as source only is built here, and must be pure Python.

    Raises:
        BundleError: no network, no wheel that fits, a hash that differs.
    """
    lock_file, tree, stamp = target.lock(role.name), build / role.name, build / f"{role.name}.stamp"
    if not lock_file.is_file():
        raise BundleError(f"{lock_file}: missing; `python envs/bundle.py lock --target {target.name}` writes it")
    identity = hashlib.sha256(
        lock_file.read_bytes() + json.dumps([target.python, target.glibc, target.strip, role.strip]).encode()
    ).hexdigest()
    if stamp.is_file() and stamp.read_text() == identity and tree.is_dir():
        return tree
    wheels, log = build / f"{role.name}-wheels", build / f"{role.name}.log"
    for path in (tree, wheels):
        shutil.rmtree(path, ignore_errors=True)
    for path in (stamp, log):
        path.unlink(missing_ok=True)
    wheels.mkdir(parents=True)
    version = target.python.replace(".", "")
    tags = ["--python-version", target.python, "--implementation", "cp", "--abi", f"cp{version}", "--abi", "abi3"]
    tags += ["--abi", "none", "--only-binary=:all:"]
    tags += [word for platform in target.tags() for word in ("--platform", platform)]
    binary, source = split_lock(lock_file.read_text())
    (wheels / "binary.lock").write_text(binary)
    run_pip(
        ["download", "--no-deps", "--require-hashes", "-r", str(wheels / "binary.lock"), "-d", str(wheels), *tags], log
    )
    if source:
        (wheels / "source.lock").write_text(source)
        run_pip(["wheel", "--no-deps", "--require-hashes", "-r", str(wheels / "source.lock"), "-w", str(wheels)], log)
    found = sorted(wheels.glob("*.whl"))
    run_pip(
        ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(tree / "site"), *tags, *map(str, found)],
        log,
    )
    arrange(tree)
    strip(tree / "site", target.strip + role.strip)
    shutil.rmtree(wheels)
    stamp.write_text(identity)
    return tree


def split_lock(text: str) -> tuple[str, str]:
    """A lock as (packages that have wheels, packages published as source only): the latter follow ``# source``."""
    binary, _, source = text.partition("\n# source")
    return binary + "\n", source.partition("\n")[2]


def arrange(tree: Path) -> None:
    """Sort what ``pip install --target`` put into one folder: programs beside the packages, not among them.

    Console scripts are left out: the target writes its own.
    """
    from bundle_install import scripts

    site = tree / "site"
    console = set(scripts(site))
    for name in ("bin", "share", "etc", "include"):
        if (site / name).is_dir() and not (site / name / "__init__.py").exists():
            os.rename(site / name, tree / name)
    for program in (tree / "bin").glob("*"):
        first = program.read_bytes()[:200].split(b"\n")[0]
        if program.name in console:
            program.unlink()
        elif first.startswith(b"#!") and b"python" in first:
            body = program.read_bytes()[len(first) :]
            program.write_bytes(b"#!/usr/bin/env python3" + body)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a path fits a pattern; ``**/`` stands for any folders or none, ``*`` stays within one name."""
    return any(re.fullmatch(_expression(pattern), name) for pattern in patterns)


def _expression(pattern: str) -> str:
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(parts.get(word) or re.escape(word) for word in re.findall(r"\*\*/|\*\*|\*|\?|[^*?]+", pattern))


def strip(folder: Path, patterns: list[str]) -> int:
    """Delete the files that fit a pattern, and folders left empty; the number of files."""
    count = 0
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif matches(path.relative_to(folder).as_posix(), patterns):
            path.unlink()
            count += 1
    return count


def project_files(root: Path) -> list[str]:
    """Files of the project that git tracks, as they are now.

    Raises:
        BundleError: the project is no git working copy.
    """
    done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"{root}: git does not list its files ({done.stderr.strip()}); make the bundle in a clone")
    return [name for name in done.stdout.split("\0") if name and os.path.lexists(root / name)]


def slim_wheel(source: Path, target: Path, patterns: list[str]) -> None:
    """A wheel without the members whose names fit a pattern, for packages that are read and never installed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for member in old.infolist():
            if not any(fnmatch.fnmatch(member.filename, pattern) for pattern in patterns):
                info = zipfile.ZipInfo(member.filename, (2000, 1, 1, 0, 0, 0))
                info.external_attr = member.external_attr
                new.writestr(info, old.read(member))
