"""A small bundle, made by the project's own parts."""

from __future__ import annotations

import json
import platform
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import bundle_install
from bundle_pieces import Pieces, tree_members, write_component

PIECE = 60_000


def package(site: Path, name: str = "greet", version: str = "1.0") -> None:
    """An installed distribution with a console script, as pip leaves it in a folder."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("def main():\n    print('hello')\n")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = {name}:main\n")
    (info / "RECORD").write_text("")


def target_of_this_host() -> dict[str, str]:
    return {
        "name": "tiny",
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": platform.machine(),
        "glibc": platform.libc_ver()[1],
    }


def make_tiny(folder: Path, out: Path) -> dict[str, Any]:
    """A bundle of a project of two files, noise of several pieces, and one environment; its manifest."""
    project, data, environment = folder / "project", folder / "data", folder / "environment"
    if not folder.is_dir():
        (project / "sub").mkdir(parents=True)
        (project / "README.md").write_text("the project\n")
        (project / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
        (project / "sub" / "run.sh").chmod(0o755)
        data.mkdir()
        noise = random.Random(0)
        for number in range(4):
            (data / f"{number}.bin").write_bytes(noise.randbytes(PIECE * 2 // 3))
        package(environment / "site")
    out.mkdir(parents=True)
    pieces = Pieces(out, "tiny", PIECE)
    entries = {
        "project": ({"kind": "files", "into": "."}, project),
        "tool": ({"kind": "environment", "into": ".envs/tool", "host": {}, "check": "import greet"}, environment),
        "data": ({"kind": "files", "into": "models/noise"}, data),
    }
    manifest: dict[str, Any] = {"format": bundle_install.FORMAT, "target": target_of_this_host(), "components": {}}
    for name, (entry, source) in entries.items():
        members = list(tree_members(source))
        blocks = write_component(members, pieces, 2, 0)
        manifest["components"][name] = entry | {"files": len(members), "blocks": blocks}
    manifest["pieces"] = pieces.finish()
    (out / "manifest.json").write_text(json.dumps(manifest))
    shutil.copyfile(bundle_install.__file__, out / "install.py")
    return manifest
