"""The compile gate as a job: ``python -m adrbench.kernels.gate --spec JSON --output FILE``.

Specification: ``{"platform": name, "targets": ["gfx90a", ...], "variants": [0, 1, ...]}``, the last
two optional. Evidence: one row per variant and target with registers, spills, shared memory,
occupancy, load widths, matrix instructions, instructions per element, and what it failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from adrbench import scratch
from adrbench.evidence import Evidence, now, write
from adrbench.job import JobError, run, say
from adrbench.kernels.gate.variants import TARGETS, VARIANTS, limits, not_served

TARGET_TIMEOUT_S = 600.0


def judge(row: dict[str, Any], index: int, target: str) -> list[str]:
    """What a compiled variant fails, in words; empty when it passes."""
    if "error" in row:
        return [row["error"]]
    allowed, faults = limits(VARIANTS[index], target), []
    if row["spills"]:
        faults.append(f"spills {row['spills']} bytes or registers")
    if row["registers"] > allowed.registers:
        faults.append(f"{row['registers']} registers, limit {allowed.registers}")
    if row.get("float_to_byte"):
        # No kernel converts to bytes: ptxas 12.8 does so where a register that floating point wrote is stored as one.
        faults.append(f"{row['float_to_byte']} conversions of floating point to bytes (docs/kernels.md, traps)")
    if not VARIANTS[index].hot:
        return faults  # memory and a few conversions: no hot loop to judge
    if row["byte_loads"] or not row["wide_loads"]:
        faults.append(f"loads are not 16 bytes wide: {row['loads']}")
    if not row["matrix"]:
        faults.append("no matrix instruction in the hot loop")
    if row["per_element"] > allowed.per_element:
        faults.append(f"{row['per_element']} instructions per element, budget {allowed.per_element}")
    return faults


def compile_target(target: str, indices: list[int]) -> list[dict[str, Any]]:
    """Rows of one target, from a process of its own; a death costs the variant it died on."""
    rows: list[dict[str, Any]] = []
    todo = [index for index in indices if not not_served(VARIANTS[index], target)]
    while todo:
        command = [sys.executable, "-m", "adrbench.kernels.gate.compile", target, *map(str, todo)]
        # This process owns the compiler's cache: one that dies could not remove its own.
        with scratch.folder() as cache:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TARGET_TIMEOUT_S,
                env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
            )
        messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        results = [message for message in messages if "index" in message]
        rows += results
        todo = todo[len(results) :]
        if done.returncode == 0:
            break
        if not messages:
            raise JobError("gate-worker", f"{target}: nothing was compiled: {done.stderr.strip()[-500:]}")
        name = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
        fatal = next((line for line in done.stderr.splitlines() if "LLVM ERROR" in line or "Assertion" in line), "")
        rows.append({"index": todo.pop(0), "error": f"the compiler died ({name}) {fatal[:200]}"})
    return rows


def table(targets: list[str], indices: list[int]) -> list[dict[str, Any]]:
    """All rows, judged; pairs that the hardware does not serve carry the reason instead."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        compiled = dict(zip(targets, pool.map(lambda target: compile_target(target, indices), targets), strict=True))
    rows = []
    for target in targets:
        found = {row.pop("index"): row for row in compiled[target]}
        for index in indices:
            row = {"variant": VARIANTS[index].name, "scheme": VARIANTS[index].scheme, "target": target}
            if index in found:
                faults = judge(found[index], index, target)
                rows.append(row | found[index] | {"status": "failed" if faults else "passed", "faults": faults})
            else:
                reason = not_served(VARIANTS[index], target)
                rows.append(row | {"status": "not-served", "faults": [], "reason": reason})
    return rows


def work(spec: dict[str, Any], output: Path) -> None:
    """Compile, judge, and write the evidence.

    Raises:
        JobError: ``gate-failed`` naming each variant and target with its faults; ``gate-worker``.
    """
    started_at = now()
    targets = list(spec.get("targets", TARGETS))
    rows = table(targets, list(spec.get("variants", range(len(VARIANTS)))))
    for row in rows:
        detail = row.get("reason") or "; ".join(row["faults"]) or f"{row['registers']} registers"
        if row.get("per_element") is not None:
            detail += f", {row['per_element']} per element"
        say(f"{row['status']:<10} {row['target']:<7} {row['variant']}: {detail}")
    failed = [f"{row['target']}, {row['variant']}: {'; '.join(row['faults'])}" for row in rows if row["faults"]]
    if failed:
        raise JobError(
            "gate-failed", f"{len(failed)} of {len(rows)} compiled variants failed:\n  " + "\n  ".join(failed)
        )
    versions = sorted({row["triton"] for row in rows if "triton" in row})
    write(
        output,
        Evidence(
            stage="kernels",
            platform=spec["platform"],
            asked=spec,
            resolved={"triton": versions[0] if versions else None},
            measured={"rows": rows},
            started_at=started_at,
            finished_at=now(),
        ),
    )


if __name__ == "__main__":
    run("kernels.gate", work)
