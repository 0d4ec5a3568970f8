"""Several hosts of one kind that each checked themselves: the same files, of which a folder of results has one each.

The checks that every visit to a fresh host begins with (``OF_HOST``) lie at one path for each platform. Where the
platform file declares ``device.hosts: several``, a merge keeps those that are here, and puts the archive's to
``results/<platform>/hosts/<name>-<first 12 digits of its SHA-256>.json``: Snakemake's record of a round has the digests
of the checks that it was measured under, and so its own are found (``taken_under``).
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from adrbench.archive.computed import inputs_of, plain
from adrbench.archive.records import RECORDS, read_record
from adrbench.config.files import ConfigError, read_yaml
from adrbench.evidence import digest_file, raw_folder
from adrbench.paths import ROOT

OF_HOST = ("device.json", "kernels.json", "ceiling.json", "model.json")
TIMES = ("started_at", "finished_at")
DIGITS = 12
END = 2  # parts of a path, as in paths.here


def several(platform: str, platforms: Path | None = None) -> bool:
    """Whether the platform's file says that it is several hosts of one kind.

    Args:
        platforms: folder of platform files; None: the one that config/config.yaml names.
    """
    try:
        folder = platforms or ROOT / read_yaml(ROOT / "config/config.yaml").get("platforms", "config/platforms")
        return bool(read_yaml(folder / f"{platform}.yaml")["device"]["hosts"] == "several")
    except (ConfigError, AttributeError, KeyError, TypeError):
        return False


def is_of_host(unit: str) -> bool:
    parts = PurePosixPath(unit).parts
    return len(parts) == 3 and parts[0] == "results" and parts[2] in OF_HOST


def aside(unit: str, digest: str) -> str:
    """Where another host's check is kept."""
    path = PurePosixPath(unit)
    return str(path.parent / "hosts" / f"{path.stem}-{digest[:DIGITS]}.json")


def moved_aside(unit: str, place: str, name: str) -> str | None:
    """Name of a unit's file beside ``place``; None of a file that lies elsewhere."""
    if name == unit:
        return place
    raw = f"{raw_folder(Path(unit))}/"
    return f"{raw_folder(Path(place))}/{name.removeprefix(raw)}" if name.startswith(raw) else None


def alike(first: Any, second: Any) -> bool:
    """Whether two values are equal but for the folders that the project lay in: of absolute paths the last parts count.

    Evidence may have been carried on from where it was measured, so an archive does not know all of its folders.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(alike(value, second[key]) for key, value in first.items())
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, str) and isinstance(second, str) and first[:1] == second[:1] == "/":
        return first.split("/")[-END:] == second.split("/")[-END:]
    return type(first) is type(second) and bool(first == second)


def _equal(first: Any, second: Any) -> bool:
    try:
        return alike(first, second)
    except RecursionError:  # nobody's evidence
        return False


def says_the_same(ours: Path, theirs: Path) -> bool:
    """Whether two documents of evidence differ in when and in which folder they were measured, and in nothing else."""
    first, second = plain(ours), plain(theirs)
    if not isinstance(first, dict) or not isinstance(second, dict) or not {"schema_version", "stage"} <= set(first):
        return False
    return _equal({**first, **dict.fromkeys(TIMES)}, {**second, **dict.fromkeys(TIMES)})


def of_one_kind(ours: Path, theirs: Path) -> bool:
    """Whether two checks asked the same of their hosts, and found the same model."""
    first, second = plain(ours), plain(theirs)
    if not isinstance(first, dict) or not isinstance(second, dict):
        return False

    def digest(document: dict[str, Any]) -> Any:
        measured = document.get("measured")
        return measured.get("digest") if document.get("stage") == "model" and isinstance(measured, dict) else None

    return _equal([first.get("asked"), digest(first)], [second.get("asked"), digest(second)])


def taken_under(path: Path, name: str) -> Path | None:
    """The check ``name`` that the measurement ``path`` was made under: the one here, or another host's; None: neither.

    Both relative to the working folder. Without a record of it, the one here is taken for it.
    """
    digest = inputs_of(read_record(RECORDS, path.as_posix())).get(name)
    if digest is None or (Path(name).is_file() and digest_file(Path(name)) == digest):
        return Path(name)
    other = Path(aside(name, digest))
    return other if other.is_file() and digest_file(other) == digest else None


def checks_elsewhere(path: Path) -> list[str]:
    """Checks of its host that a measurement was made under and that are not here, nor beside another host's."""
    names = [name for name in inputs_of(read_record(RECORDS, path.as_posix())) if is_of_host(name)]
    return [name for name in names if taken_under(path, name) is None]
