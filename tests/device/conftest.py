"""The ``fake_host`` fixture; see ``device_fakes.py``."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from adrbench.device import probe

# Test modules are imported by path, so a helper beside them has to be made importable (its name is unique).
sys.path.append(str(Path(__file__).parent))

from device_fakes import RECORDED, REPLAYS, FakeHost, device_fp8


@pytest.fixture
def fake_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], FakeHost]:
    """Build a host by its recorded name, or an empty one; it is then the only host that this process sees."""

    def build(name: str | None) -> FakeHost:
        here = tmp_path / (name or "empty")
        root, folder = here / "root", RECORDED / (name or "")
        (here / "bin").mkdir(parents=True)
        (root / "proc").mkdir(parents=True)
        for file in ("proc/cpuinfo", "proc/meminfo", "proc/loadavg"):
            shutil.copy("/" + file, root / file)
        said = json.loads((folder / "serving.json").read_text()) if name else {}
        test = said.pop("test", {"paths": [], "declared": {"vendor": "cpu", "arch": os.uname().machine}})
        for path in test["paths"]:
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).touch()
        host = FakeHost(here / "bin", root, here / "python", said, test["declared"])
        if name:
            said["fp8"] = device_fp8(test["fp8_dtype"])
            for program in REPLAYS:
                host.replay(program, folder)
            host.answer(said)
        monkeypatch.setenv("PATH", str(host.bin))
        monkeypatch.setattr(probe, "ROOT", root)
        return host

    return build
