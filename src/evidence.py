"""Evidence: the one JSON document that every measuring job writes, and how it is read back.

A report looks numbers up in evidence and nowhere else, so a document says what was asked, what
vLLM (or the host) resolved it to, what was measured, and the digests of the raw files it rests on.

Only the standard library and pydantic are imported: this module runs inside every stage's own
interpreter, a vendor's vLLM image included.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1

Stage = Literal[
    "device", "model", "kernels", "serve", "integrate", "eval", "agreement", "memory", "calibrate", "profile", "claims"
]


class EvidenceError(ValueError):
    """An evidence file is missing, damaged, or of a schema this version does not know."""


class Evidence(BaseModel):
    """One measurement.

    ``asked`` is the job's specification, ``resolved`` what the system made of it (backend, KV
    dtype, block size, versions), ``measured`` the result with units in the key names
    (``_ms``, ``_s``, ``_bytes``, ``_per_s``). ``files`` maps a raw file's path, relative to the
    evidence file's raw folder, to its SHA-256.
    """

    # "constants" keeps NaN for write_json to refuse; pydantic would turn it into null without a word.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    schema_version: int = SCHEMA_VERSION
    stage: Stage
    platform: str
    arm: str | None = None
    round: int | None = None
    tier: str | None = None
    asked: dict[str, Any] = Field(default_factory=dict)
    resolved: dict[str, Any] = Field(default_factory=dict)
    measured: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)
    started_at: str
    finished_at: str


# Wall clock and monotonic clock at one moment: later times of this process are counted on the monotonic one.
_ANCHOR = datetime.now(timezone.utc), time.monotonic()


def now() -> str:
    """UTC time in ISO 8601 with milliseconds.

    A wall clock that is set while a job runs (NTP, an operator) must not make it end before it began: the minutes
    of a start, which decisions weigh, are the difference of two such times.
    """
    began, reading = _ANCHOR
    return (began + timedelta(seconds=time.monotonic() - reading)).isoformat(timespec="milliseconds")


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text, whatever their key order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def digest_tree(*roots: Path, suffixes: tuple[str, ...] = (".py",)) -> str:
    """One digest over the names and contents of all files with ``suffixes`` below ``roots``.

    Snakemake does not see a change in an imported module, so the code that a measurement depends
    on enters its rule as this digest.
    """
    h = hashlib.sha256()
    for root in roots:
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in suffixes)
        for path in files:
            name = path.relative_to(root) if root.is_dir() else path.name
            h.update(f"{root.name}/{name}\0".encode())
            h.update(path.read_bytes())
    return h.hexdigest()[:16]


def write_text(path: Path, text: str) -> None:
    """Write atomically: a reader sees the old file or the new one, never half of either."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Atomic, sorted, and strict: NaN and infinity are refused rather than written as non-JSON."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def raw_folder(path: Path) -> Path:
    """Folder of an evidence file's raw files: the same name without ``.json``, beside it."""
    return Path(path).with_suffix("")


def digest_raw(path: Path, names: list[str]) -> dict[str, str]:
    """Digests of raw files, named relative to the raw folder of the evidence file ``path``."""
    folder = raw_folder(path)
    return {name: digest_file(folder / name) for name in sorted(names)}


def not_finite(value: Any, where: str = "") -> str | None:
    """Where a document first holds NaN or infinity, as ``measured.ttft_ms.p50 is nan``; None where all is finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} is {value}"
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found = (not_finite(inner, f"{where}.{key}" if where else str(key)) for key, inner in items)
    return next((one for one in found if one), None)


def write(path: Path, evidence: Evidence) -> None:
    """Write one evidence file atomically.

    Raises:
        EvidenceError: the document holds NaN or infinity, which is no JSON; naming file and key.
    """
    document = evidence.model_dump(mode="json")
    if bad := not_finite(document):
        raise EvidenceError(
            f"{path}: {bad}: not JSON compliant, and no measurement; see the job's raw files, then rerun it"
        )
    write_json(path, document)


def read(path: Path) -> Evidence:
    """Read one evidence file.

    Raises:
        EvidenceError: naming the file, when it is missing, not JSON, of an unknown schema
            version, or does not fit the schema.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EvidenceError(f"{path}: no such evidence file; rerun the job that writes it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(f"{path}: not valid JSON ({error}); delete it and rerun its job") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise EvidenceError(
            f"{path}: schema_version is {version!r}, this version reads {SCHEMA_VERSION}; "
            "rerun its job or use the adrbench that wrote it"
        )
    try:
        return Evidence.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EvidenceError(f"{path}: {where}: {first['msg']}") from None


def verify_files(path: Path) -> list[str]:
    """Raw files of an evidence file that are missing or changed; empty when all is well."""
    evidence, folder, bad = read(path), raw_folder(path), []
    for name, digest in evidence.files.items():
        raw = folder / name
        if not raw.is_file():
            bad.append(f"{raw}: missing")
        elif digest_file(raw) != digest:
            bad.append(f"{raw}: changed since it was measured")
    return bad
