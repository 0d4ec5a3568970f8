"""Behaviour checks: what vLLM's real platform code selects and refuses on a pretended architecture.

``behaviour_probe.py`` runs in the serving interpreter, from an unpacked wheel without compiled
parts. No device is involved: kernels, speed and stability stay unproven (unverified on DCU).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Literal

from adrbench.claims.registry import Context, Finding, Unverifiable, check
from adrbench.claims.tree import Tree

SCRIPT = Path(__file__).with_name("behaviour_probe.py")
TIMEOUT_S = 120.0

#: Variables of the caller that would change what the platform code selects.
SCRUBBED = ("VLLM_", "HIP_", "ROCR_", "CUDA_", "PYTHONPATH")

#: Key of the probe's answer that maps architectures to what is selected and refused there.
BACKENDS_ROW = "architectures"

Environment = Literal["none", "aiter", "unified"]


class Probe:
    """Runs the probe script once per tree and keeps its answer, or the reason why there is none."""

    def __init__(self, python: str | None):
        self.python = python
        self._answers: dict[Path, dict[str, Any] | str] = {}

    def rows(self, tree: Tree) -> dict[str, Any]:
        """The probe's whole answer for one tree.

        Raises:
            Unverifiable: there is no interpreter with torch, or the platform code does not run in it.
        """
        if self.python is None:
            raise Unverifiable("needs an interpreter with torch (serve_python)", "需要带 torch 的解释器 (serve_python)")
        if tree.root not in self._answers:
            self._answers[tree.root] = self._run(tree)
        answer = self._answers[tree.root]
        if isinstance(answer, str):
            raise Unverifiable(answer)
        return answer

    def _run(self, tree: Tree) -> dict[str, Any] | str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(SCRUBBED)} | {"OMP_NUM_THREADS": "1"}
        command = [str(self.python), str(SCRIPT), str(tree.root)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, cwd="/")
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the platform code of vLLM {tree.version} could not be run: {error}"
        if done.returncode == 0 and done.stdout.strip():
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            return answer
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return f"the platform code of vLLM {tree.version} does not run in {self.python}: {last}"


def _rows(context: Context) -> dict[str, Any]:
    if context.probe is None:
        raise Unverifiable("needs an interpreter with torch (serve_python)", "需要带 torch 的解释器 (serve_python)")
    return context.probe.rows(context.need_tree())


def is_error(answer: str) -> bool:
    """Whether a probe's answer is an error (``Type: text``) and not a backend's name."""
    return ": " in answer


def _ran(arch: str) -> str:
    return f"RocmPlatform run as {arch}"


PLATFORM = (
    "capability on_gfx9 on_mi3xx fp8_dtype supports_fp8 aiter_supported chosen candidates refused accepted explicit "
    "explicit_error explicit_fp8_error without_aiter_error"
)


@check("platform", kind="behaviour", gives=PLATFORM)
def platform(context: Context, arch: str, environment: Environment = "none", backend: str = "TRITON_ATTN") -> Finding:
    """One architecture: predicates, FP8 dtype, the automatic choice, and an explicit choice of ``backend``.

    ``accepted`` lists the ROCm backends whose explicit choice is accepted, ``refused`` the candidates
    that the automatic choice drops. ``*_error`` is None where the explicit choice is accepted, else vLLM's error text.
    """
    architectures = _rows(context)["architectures"]
    if arch not in architectures:
        raise Unverifiable(f"the probe does not pretend {arch}")
    row = architectures[arch]
    values = {k: row[k] for k in ("capability", "on_gfx9", "on_mi3xx", "fp8_dtype", "supports_fp8", "aiter_supported")}
    values |= {"chosen": row["chosen"][environment], "candidates": row[f"candidates_{environment}"]}
    values["accepted"] = [name for name, answer in row["explicit"].items() if not is_error(answer)]
    values |= {"refused": list(row[f"refused_{environment}"]), "explicit": row["explicit"][backend]}
    sources = {
        "explicit_error": "explicit",
        "explicit_fp8_error": "explicit_fp8",
        "without_aiter_error": "without_aiter",
    }
    values |= {name: row[key][backend] if is_error(row[key][backend]) else None for name, key in sources.items()}
    text = (
        f"{arch}: on_gfx9 {row['on_gfx9']}, on_mi3xx {row['on_mi3xx']}, fp8 {row['fp8_dtype']}; "
        f"environment {environment!r} selects {values['chosen']}; "
        f"explicit choice accepts {', '.join(values['accepted'])}; "
        f"--attention-backend {backend}: {values['explicit']}"
    )
    return Finding(values, text, _ran(arch))


@check(
    "platforms",
    kind="behaviour",
    gives="accepting refusing accepting_fp8 accepting_without_aiter chosen_on error fnuz_on gfx9_on mi3xx_on",
)
def platforms(context: Context, backend: str, environment: Environment = "none") -> Finding:
    """All pretended architectures: where an explicit choice is accepted, where the automatic one is ``backend``."""
    rows = _rows(context)["architectures"]

    def where(key: str) -> list[str]:
        return [arch for arch, row in rows.items() if not is_error(row[key][backend])]

    accepting = where("explicit")
    values: dict[str, Any] = {
        "accepting": accepting,
        "refusing": [a for a in rows if a not in accepting],
        "accepting_fp8": where("explicit_fp8"),
        "accepting_without_aiter": where("without_aiter"),
        "chosen_on": [a for a, row in rows.items() if row["chosen"][environment] == backend],
        "error": next((row["explicit"][backend] for row in rows.values() if is_error(row["explicit"][backend])), None),
        "fnuz_on": [a for a, row in rows.items() if row["fp8_dtype"].endswith("fnuz")],
        "gfx9_on": [a for a, row in rows.items() if row["on_gfx9"]],
        "mi3xx_on": [a for a, row in rows.items() if row["on_mi3xx"]],
    }
    text = (
        f"--attention-backend {backend} is accepted on {', '.join(accepting) or 'no architecture'}"
        + (f" and refused elsewhere ({values['error']})" if values["error"] else "")
        + f"; environment {environment!r} selects it on {', '.join(values['chosen_on']) or 'none'}"
    )
    return Finding(values, text, _ran("gfx90a ... gfx950"))


@check("backend-run", kind="behaviour", gives="per_head_scales block_accepted kernel_block")
def backend_run(context: Context, backend: str, block_size: int = 16) -> Finding:
    """A backend class asked directly: per-head scales, whether a block size is accepted, the kernel's block."""
    row = _rows(context)["backends"][backend]
    accepted = row["block_sizes"].get(str(block_size))
    if accepted is None:
        raise Unverifiable(f"the probe does not ask for block size {block_size}")
    kernel = row["kernel_block"].get(str(block_size), "")
    values = {
        "per_head_scales": row["per_head_scales"] == "True",
        "block_accepted": accepted == "True",
        "kernel_block": int(kernel) if kernel.isdigit() else None,
    }
    text = f"{backend}: per-head scales {row['per_head_scales']}, block size {block_size} accepted {accepted}"
    text += f", kernel block {kernel}" if kernel else ""
    return Finding(values, text, f"{backend} class asked")


@check("per-head-scales", kind="behaviour", gives="supporting asked")
def per_head_scales(context: Context) -> Finding:
    """Which ROCm backends take one scale per head. The flag's own scale is per tensor in all others."""
    rows = _rows(context)["backends"]
    supporting = [name for name, row in rows.items() if row["per_head_scales"] == "True"]
    text = f"per-head scales: {', '.join(supporting) or 'none'} of {', '.join(rows)}"
    return Finding({"supporting": supporting, "asked": list(rows)}, text, "backend classes asked")


@check("registry-run", kind="behaviour", gives="count custom_unregistered no_attention has_register_backend")
def registry_run(context: Context) -> Finding:
    """The attention registry, imported: member count, and what unusable members answer."""
    row = _rows(context)["registry"]
    return Finding(dict(row), "; ".join(f"{k}: {v}" for k, v in row.items()), "AttentionBackendEnum imported")


@check("cache-dtype-run", kind="behaviour", gives="accepted error")
def cache_dtype_run(context: Context, dtype: str) -> Finding:
    """``CacheConfig(cache_dtype=...)`` executed."""
    answer = _rows(context)["config"].get(f"cache_dtype_{dtype}")
    if answer is None:
        raise Unverifiable(f"the probe does not try cache_dtype {dtype!r}")
    accepted = not is_error(answer)
    first = " ".join(answer.split())
    return Finding(
        {"accepted": accepted, "error": None if accepted else first},
        f"CacheConfig(cache_dtype={dtype!r}): {first}",
        "CacheConfig executed",
    )
