"""Folders of results as jobs leave them: evidence with raw files, a refusal, a converted model."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.archive.pack import FORMAT, MANIFEST
from adrbench.evidence import Evidence


def write_evidence(path: Path, stage: Any = "serve", value: float = 1.0, raw: dict[str, str] | None = None) -> Path:
    """One evidence file and its raw files."""
    folder = evidence.raw_folder(path)
    for name, text in (raw or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    times = {"started_at": "2026-11-30T00:00:00.000+00:00", "finished_at": "2026-11-30T00:01:00.000+00:00"}
    files = evidence.digest_raw(path, list(raw or {}))
    evidence.write(path, Evidence(stage=stage, platform="cpu", measured={"x": value}, files=files, **times))
    return path


def write_results(base: Path) -> Path:
    """Results of platform cpu: a device, two rounds, a refusal, a model; and a verdict, which is derived."""
    results = base / "results/cpu"
    write_evidence(results / "device.json", "device")
    write_evidence(results / "serve/auto/r1/short.json", raw={"bench.json": "{}", "deep/er.txt": "x" * 1000})
    write_evidence(results / "serve/auto/r2/short.json", value=2.0, raw={"bench.json": "[]"})
    (results / "rejected").mkdir()
    (results / "rejected/serve-1.json").write_text(json.dumps({"stage": "serve", "reason": "client-bound"}))
    (results / "decide").mkdir()
    (results / "decide/adr0011.json").write_text("{}")
    (base / "models/cpu").mkdir(parents=True)
    (base / "models/cpu/model.safetensors").write_bytes(bytes(range(256)))
    return base


def content(base: Path) -> dict[str, bytes]:
    """All files of results and models, by name."""
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for top in ("results", "models")
        for path in (base / top).rglob("*")
        if path.is_file()
    }


DATA = b'{"stage": "serve", "schema_version": 1}'
UNIT = "results/cpu/serve.json"


def member(name: str, data: bytes = DATA, **attributes) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, data if info.isreg() else b""


def forged(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], units=None, manifest=None) -> Path:
    """An archive whose manifest names ``units`` (default: every member, with its right digest)."""
    if units is None:
        units = {UNIT: {UNIT: hashlib.sha256(DATA).hexdigest()}}
    text = {"format": FORMAT, "root": "/r", "folder": "/r", "units": units, "records": {}} | (manifest or {})
    with tarfile.open(path, "w:xz", preset=0) as tar:
        for info, data in [member(MANIFEST, json.dumps(text).encode()), *members]:
            tar.addfile(info, io.BytesIO(data))
    return path
