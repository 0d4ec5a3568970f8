"""Running the probe: its answer is read, kept and shielded from the caller; a failure becomes a reason.

The real probe runs in test_claims_facts.py; here a script stands in for the interpreter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adrbench.claims.behaviour import Probe, is_error
from adrbench.claims.registry import CHECKS, Context, Finding, Unverifiable
from adrbench.claims.tree import Tree

REFUSAL = "ValueError: Selected backend FAST is not valid. Reason: ['compute capability not supported']"


def row(accepts_fast: bool, fp8: str) -> dict[str, Any]:
    answers = {"SLOW": "SLOW", "FAST": "FAST" if accepts_fast else REFUSAL}
    facts = {"capability": "9.0", "on_gfx9": True, "on_mi3xx": accepts_fast, "fp8_dtype": fp8, "supports_fp8": False}
    chosen = {"none": "SLOW", "aiter": "FAST" if accepts_fast else "SLOW", "unified": "SLOW"}
    lists = {f"candidates_{e}": ["SLOW"] for e in chosen} | {f"refused_{e}": {} for e in chosen}
    explicit = {"explicit": answers, "explicit_fp8": answers, "without_aiter": answers, "chosen": chosen}
    return facts | lists | explicit | {"aiter_supported": True}


ANSWER = {
    "architectures": {"gfx1": row(True, "float8_e4m3fnuz"), "gfx2": row(False, "float8_e4m3fn")},
    "backends": {"SLOW": {"per_head_scales": "False", "block_sizes": {"16": "True"}, "kernel_block": {"16": "16"}}},
    "registry": {"count": 2, "custom_unregistered": "x", "no_attention": "y", "has_register_backend": False},
    "config": {"cache_dtype_int8": "ValidationError: no\n  such type"},
}


class Canned:
    """A probe with this answer."""

    def rows(self, tree: Tree) -> dict[str, Any]:
        return ANSWER


@pytest.fixture
def ask(make_tree: Callable[..., Tree]) -> Callable[..., Finding]:
    context = Context(data=Path(), tree=make_tree(), probe=Canned())
    return lambda name, **arguments: CHECKS[name].run(context, arguments)


def test_one_architecture(ask: Callable[..., Finding]) -> None:
    good, bad = (ask("platform", arch=a, backend="FAST", environment="aiter").values for a in ("gfx1", "gfx2"))
    assert (good["explicit_error"], good["chosen"], good["accepted"]) == (None, "FAST", ["SLOW", "FAST"])
    assert (bad["explicit_error"], bad["chosen"], bad["accepted"]) == (REFUSAL, "SLOW", ["SLOW"])


def test_all_architectures(ask: Callable[..., Finding]) -> None:
    found = ask("platforms", backend="FAST", environment="aiter").values
    assert (found["accepting"], found["refusing"], found["chosen_on"]) == (["gfx1"], ["gfx2"], ["gfx1"])
    assert (found["error"], found["fnuz_on"]) == (REFUSAL, ["gfx1"])


def test_classes_registry_and_config(ask: Callable[..., Finding]) -> None:
    assert ask("backend-run", backend="SLOW").values["kernel_block"] == 16
    assert ask("per-head-scales").values == {"supporting": [], "asked": ["SLOW"]}
    assert ask("registry-run").values["count"] == 2
    assert ask("cache-dtype-run", dtype="int8").values == {"accepted": False, "error": "ValidationError: no such type"}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("platform", {"arch": "gfx9"}, "does not pretend gfx9"),
        ("backend-run", {"backend": "SLOW", "block_size": 24}, "does not ask for block size 24"),
        ("cache-dtype-run", {"dtype": "int2"}, "does not try cache_dtype 'int2'"),
    ],
)
def test_what_the_probe_did_not_ask_is_unverified(
    ask: Callable[..., Finding], name: str, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(Unverifiable, match=text):
        ask(name, **arguments)


def interpreter(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_answer_is_the_last_line_and_asked_once(tmp_path: Path, make_tree: Callable[..., Tree]) -> None:
    log = tmp_path / "asked"
    python = interpreter(tmp_path, f"echo WARNING; echo x >> {log}; echo '{json.dumps({'a': 1})}'")
    probe, tree = Probe(python), make_tree()
    assert probe.rows(tree) == probe.rows(tree) == {"a": 1}
    assert log.read_text() == "x\n"


def test_the_callers_settings_do_not_reach_the_platform_code(
    tmp_path: Path, make_tree: Callable[..., Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_ROCM_USE_AITER", "HIP_VISIBLE_DEVICES", "PYTHONPATH"):
        monkeypatch.setenv(name, "set")
    python = interpreter(tmp_path, 'echo "[\\"$VLLM_ROCM_USE_AITER$HIP_VISIBLE_DEVICES$PYTHONPATH\\"]"')
    assert Probe(python).rows(make_tree()) == [""]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("echo 'ModuleNotFoundError: No module named torch' >&2; exit 1", "does not run in .*No module named torch"),
        ("exit 3", "does not run in .*exit 3"),
        ("true", "does not run in"),
    ],
)
def test_a_probe_that_fails_leaves_a_reason(
    tmp_path: Path, make_tree: Callable[..., Tree], body: str, text: str
) -> None:
    with pytest.raises(Unverifiable, match=text):
        Probe(interpreter(tmp_path, body)).rows(make_tree())


def test_no_interpreter(make_tree: Callable[..., Tree]) -> None:
    tree = make_tree()
    with pytest.raises(Unverifiable, match="serve_python"):
        Probe(None).rows(tree)
    with pytest.raises(Unverifiable, match="could not be run"):
        Probe("/no/such/python").rows(tree)
    with pytest.raises(Unverifiable, match="serve_python"):
        CHECKS["per-head-scales"].run(Context(data=Path(), tree=tree), {})


def test_errors_are_told_from_names() -> None:
    assert is_error(REFUSAL)
    assert not is_error("TRITON_ATTN")
