"""Snakemake's records of outputs, and which of them are units of an archive.

A unit is what travels or stays as a whole: an evidence file with its raw folder and whatever else it lists (the tiers
of a serving round share one server's files), a refusal, a converted model's folder.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from adrbench.evidence import raw_folder
from adrbench.locks import living_runs, other_host
from adrbench.paths import ROOT

RECORDS = Path(".snakemake/metadata")
UNFINISHED = Path(".snakemake/incomplete")
PLATFORM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Derived from evidence, or of one folder's own reports, without the device: made again where it is merged.
DERIVED = ("decide", "history")
# Keys of a record that hold shell text.
SHELL = ("code", "shellcmd")
NAME_MAX = 254  # Snakemake splits longer names of records


class ArchiveError(RuntimeError):
    """Evidence cannot be packed or merged; the text says what and why, and nothing was changed."""


def check_idle(base: Path) -> None:
    """Refuse a folder in which a run is going on.

    Raises:
        ArchiveError: saying which.
    """
    if runs := living_runs(base):
        raise ArchiveError(f"Snakemake (process {runs[0]}) runs in {base}; wait for it, or end it by Ctrl-C")
    if host := other_host(base):
        raise ArchiveError(f"a run on host {host} works in {base}; wait for it, or end it there")


def record_path(folder: Path, output: str) -> Path:
    """Where Snakemake keeps the record of an output file (``FilePersistence._record_path`` of 9.27)."""
    name = urlsafe_b64encode(output.encode()).decode()
    parts = [name[i : i + NAME_MAX] for i in range(0, len(name), NAME_MAX)]
    return folder.joinpath(*("@" + part for part in parts[:-1]), parts[-1])


def read_record(folder: Path, output: str) -> Any:
    """Snakemake's record of an output; None where there is none, or it is damaged."""
    try:
        return json.loads(record_path(folder, output).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def is_document(unit: str) -> bool:
    """Whether a unit is a file with a raw folder, and not a folder."""
    return unit.endswith(".json")


def platform_folder(unit: str) -> str:
    """``results/<platform>`` of a unit: what it lists lies below."""
    return "/".join(PurePosixPath(unit).parts[:2])


def is_derived(unit: str) -> bool:
    parts = PurePosixPath(unit).parts
    return parts[0] == "results" and len(parts) > 3 and parts[2] in DERIVED


def folder_of_model(unit: str) -> str | None:
    """The folder that the job of ``results/<platform>/model.json`` makes, too; None of another unit."""
    parts = PurePosixPath(unit).parts
    return f"models/{parts[1]}" if len(parts) == 3 and (parts[0], parts[2]) == ("results", "model.json") else None


def listed_files(path: Path, unit: str) -> dict[str, str]:
    """Digests of the files that an evidence file lists, by their names below the working folder; none of another file.

    Args:
        path: the evidence file, wherever it lies.
        unit: its name, ``results/<platform>/...``.

    Raises:
        ArchiveError: it lists a file outside its platform's results.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    evidence = isinstance(value, dict) and {"schema_version", "stage"} <= set(value)
    files = value.get("files") if evidence else None
    found = {}
    for name, digest in files.items() if isinstance(files, dict) else ():
        below = os.path.normpath(f"{raw_folder(Path(unit))}/{name}")
        if PurePosixPath(name).is_absolute() or "\0" in name or not below.startswith(f"{platform_folder(unit)}/"):
            raise ArchiveError(f"{unit}: lists {name!r}, which lies outside {platform_folder(unit)}")
        found[below] = digest
    return found


def unit_files(base: Path, unit: str) -> list[str]:
    """All files of a unit that are there, below ``base``: the evidence file, its raw folder and the files it lists.

    A raw folder may hold further units (that of ``profile/auto.json`` the profiles of single tiers): what Snakemake
    has a record of, and its raw folder, is no part of this one.

    Raises:
        ArchiveError: it lists a file outside its platform's results.
    """
    path = base / unit
    if not is_document(unit):
        return _below(base, path)
    if not path.is_file():
        return _below(base, raw_folder(path))
    raw = _below(base, raw_folder(path))
    inner = [name for name in raw if is_document(name) and record_path(base / RECORDS, name).is_file()]
    folders = tuple(f"{raw_folder(Path(name))}/" for name in inner)
    own = [name for name in raw if name not in inner and not name.startswith(folders)]
    listed = [name for name in listed_files(path, unit) if (base / name).is_file() and name not in own]
    return [unit, *own, *sorted(listed)]


def _below(base: Path, folder: Path) -> list[str]:
    if not folder.is_dir() or folder.is_symlink():
        return []
    return [p.relative_to(base).as_posix() for p in sorted(folder.rglob("*")) if p.is_file()]


def recorded(base: Path) -> Iterator[str]:
    """Outputs that Snakemake has a record of, relative to ``base``."""
    folder = base / RECORDS
    for path in folder.rglob("*") if folder.is_dir() else ():
        if path.is_file():
            name = "".join(part.removeprefix("@") for part in path.relative_to(folder).parts)
            try:
                yield urlsafe_b64decode(name).decode()
            except ValueError:
                continue


def is_evidence(path: Path) -> bool:
    """Whether a JSON file is, or once was, one of ours: a damaged one is, so that it is named and not passed over."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return isinstance(value, dict) and {"schema_version", "stage"} <= set(value)


def find_units(base: Path, platform: str) -> list[str]:
    """Evidence files, other recorded outputs, refusals and converted models of a platform, relative to ``base``."""
    results = PurePosixPath("results", platform)
    found = {name for name in recorded(base) if name.startswith(f"{results}/")}
    for path in (base / results).rglob("*.json"):
        name = path.relative_to(base).as_posix()
        if PurePosixPath(name).parent == results / "rejected" or (not _owned(base, name) and is_evidence(path)):
            found.add(name)
    found |= {f"models/{platform}"} if (base / "models" / platform).is_dir() else set()
    return sorted(name for name in found if (base / name).exists() and not is_derived(name))


def _owned(base: Path, name: str) -> bool:
    """Whether a file lies in the raw folder of an evidence file."""
    return any((base / f"{above}.json").is_file() for above in PurePosixPath(name).parents)


def platforms_here(base: Path) -> list[str]:
    return sorted(p.name for p in (base / "results").glob("*") if p.is_dir() and PLATFORM_NAME.fullmatch(p.name))


def moved(manifest: dict[str, Any], base: Path) -> list[tuple[str, str]]:
    """Folders of the packing host and what they are here, the longest first: models lie in the working folder."""
    pairs = [(manifest["root"], str(ROOT)), (manifest["folder"], str(base))]
    pairs.append((f"{manifest['folder']}/models", f"{base}/models"))
    return sorted(dict(reversed(pairs)).items(), key=lambda pair: -len(pair[0]))


def rewritten(record: Any, places: list[tuple[str, str]]) -> Any:
    """A record with the folders of the host that packed it replaced by those of this one.

    In shell text a folder may stand quoted, and this host's may need quotes where the other one did not.
    """
    if not isinstance(record, dict):
        return _replaced(record, places)
    how = dict.fromkeys(SHELL, _shell) | {"params": _params}
    return {key: how.get(key, _replaced)(value, places) for key, value in record.items()}


def _params(values: Any, places: list[tuple[str, str]]) -> Any:
    """Each is the ``repr`` of a value, whose quotes depend on what stands between them."""
    found = []
    for text in values if isinstance(values, list) else []:
        try:
            found.append(repr(_replaced(ast.literal_eval(text), places)))
        except (ValueError, SyntaxError, TypeError, RecursionError):
            found.append(_replaced(text, places))
    return found


def _shell(text: Any, places: list[tuple[str, str]]) -> Any:
    if not isinstance(text, str):
        return text
    for old, new in places:
        quoted = shlex.quote(old)[:-1] if shlex.quote(old) != old else None
        if quoted:
            text = re.sub(re.escape(quoted) + r"([^']*)'", lambda m, new=new: shlex.quote(new + m[1]), text)  # type: ignore[misc]
        else:
            plain = rf"(?<![\w.-]){re.escape(old)}(/[\w./-]*|(?![\w.-]))"
            text = re.sub(plain, lambda m, new=new: shlex.quote(new + m[1]), text)  # type: ignore[misc]
    return text


def _replaced(value: Any, places: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for old, new in places:
            value = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w.-])", lambda _, new=new: new, value)  # type: ignore[misc]
        return value
    if isinstance(value, list):
        return [_replaced(item, places) for item in value]
    if isinstance(value, dict):
        return {_replaced(key, places): _replaced(item, places) for key, item in value.items()}
    return value
