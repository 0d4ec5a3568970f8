"""Benchmarks and probes run on hosts that the tests do not see: what they import from here must exist."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tests/serve/kv").glob("*.py")])
# Modules of the environments that these scripts run in, each with an interpreter of its own.
ELSEWHERE = {"numpy", "pandas", "scipy", "torch", "transformers", "triton", "vllm", "yaml", "pydantic", "safetensors"}
ELSEWHERE |= {"hta", "aiohttp", "psutil", "matplotlib", "flash_attn", "flashinfer", "snakemake"}


def defined(path: Path) -> set[str]:
    """Names that a module of this project offers at its top, submodules of a package among them."""
    names = {child.stem for child in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return names


def module_file(name: str, beside: Path) -> Path | None:
    """File of one of this project's modules; None when there is none."""
    first, _, rest = name.partition(".")
    folders = [ROOT / "src"] if first == "adrbench" else [beside.parent, ROOT / "benchmarks", ROOT / "tests/serve/kv"]
    parts = rest.split(".") if first == "adrbench" and rest else [] if first == "adrbench" else name.split(".")
    for folder in folders:
        base = folder.joinpath(*parts)
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_imports_exists(script):
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            wanted = {node.module: [alias.name for alias in node.names]}
        elif isinstance(node, ast.Import):
            wanted = {alias.name: [] for alias in node.names}
        else:
            continue
        for name, attributes in wanted.items():
            first = name.partition(".")[0]
            if first in ELSEWHERE or first in sys.stdlib_module_names:
                continue
            file = module_file(name, script)
            assert file is not None or (first != "adrbench" and importlib.util.find_spec(first)), f"no module {name}"
            missing = set(attributes) - defined(file) - {"*"} if file else set()
            assert not missing, f"{name} has no {sorted(missing)}"
