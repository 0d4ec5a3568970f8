"""Evidence that is computed from other evidence: it blocks no merge, as any host computes it again without a device.

What a job needs is in Snakemake's record of it: every job that measures may lease devices (``device_job`` and
``serving_job`` of rules/common.smk), the others are given no ``--devices``. The record has the digest of each input,
too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from adrbench.archive.records import RECORDS, read_record, recorded

LEASES = "--devices"


def measures(record: Any) -> bool | None:
    """Whether the job of a record may use a device; None where the record does not say."""
    shell = record.get("shellcmd") if isinstance(record, dict) else None
    return LEASES in shell.split() if isinstance(shell, str) else None


def is_computed(*records: Any) -> bool:
    """Whether a result is computed, by the records of its job that two hosts have; one may have none."""
    said = [measures(record) for record in records if record]
    return bool(said) and said.count(False) == len(said)


def inputs_of(record: Any) -> dict[str, str | None]:
    """Inputs of a record's job and their SHA-256; None where Snakemake kept none (files of more than 1 MB)."""
    names = record.get("input") if isinstance(record, dict) else None
    sums = record.get("input_checksums") if isinstance(record, dict) else None
    found = sums if isinstance(sums, dict) else {}
    return {
        name: str(found[name]).removeprefix("sha256:") if isinstance(found.get(name), str) else None
        for name in (names if isinstance(names, list) else [])
        if isinstance(name, str)
    }


def resting(
    units: Iterable[str], records: dict[str, Any], here: Callable[[str], str | None], packed: dict[str, str]
) -> set[str]:
    """Those of an archive's computed results whose inputs are, after the merge, those that they were computed from.

    Args:
        units: computed results that are missing here.
        here: digest of a file as it will be after the merge, ``units`` left out; None where it will be missing.
        packed: digests of the archive's files.
    """
    found = set(units)

    def rests(unit: str) -> bool:
        for name, digest in inputs_of(records.get(unit)).items():
            now = here(name) or (packed.get(name) if name in found else None)
            if now is None or now != (digest or packed.get(name)):
                return False
        return True

    while wrong := {unit for unit in found if not rests(unit)}:
        found -= wrong
    return found


def make_stale(base: Path, arriving: dict[str, str], times: dict[str, float]) -> list[str]:
    """Computed results and reports of this folder that were made from another content of what arrives.

    What is merged keeps the time at which it was measured, so that Snakemake would take them for newer than their
    inputs. They get a time before it, and Snakemake, which compares contents then, makes them again.

    Args:
        arriving: digests of files that are not here.
        times: their times.
    """
    found = []
    for output in sorted(recorded(base)):
        record, path = read_record(base / RECORDS, output), base / output
        if measures(record) is not False or not path.is_file():
            continue
        others = [name for name, digest in inputs_of(record).items() if arriving.get(name, digest) != digest]
        if others:
            before = min(times[name] for name in others) - 1
            os.utime(path, (before, before))
            found.append(output)
    return found


def plain(path: Path) -> Any:
    """A JSON document; None where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
