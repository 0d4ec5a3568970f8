"""Runs the check cases in a process of its own and reports each on one line of JSON.

``python -m adrbench.kernels.worker`` reads ``{"mode": ..., "done": {case id: outcome}}`` from
standard input. A compiler may abort the whole process on one conversion (Triton 3.6 does on
fp8e4b8 for gfx90a): the parent then records that case and starts another worker with what is done.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from adrbench.job import PR_SET_PDEATHSIG, prctl
from adrbench.kernels.case import Case, Outcome, blocked, judge


def resolve_mode(mode: str) -> tuple[str, str]:
    """(``interpreter`` or ``device``, torch device name); sets TRITON_INTERPRET before triton is imported.

    Raises:
        RuntimeError: ``device`` is asked for and torch sees none.
    """
    import torch

    present = torch.cuda.is_available()
    if mode == "device" and not present:
        raise RuntimeError("mode is 'device' but torch sees no accelerator; use 'auto' or 'interpreter'")
    if mode == "interpreter" or not present:
        os.environ["TRITON_INTERPRET"] = "1"
        return "interpreter", "cpu"
    os.environ.pop("TRITON_INTERPRET", None)
    return "device", "cuda"


def device_name(mode: str) -> str:
    """The accelerator's name, or the CPU's."""
    if mode == "device":
        import torch

        return str(torch.cuda.get_device_name())
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = [line.partition(":")[2].strip() for line in f if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else os.uname().machine


def all_cases() -> list[Case]:
    """Every case; primitives first, because the others rest on them. Triton is imported here."""
    from adrbench.kernels.atomics import check as atomics
    from adrbench.kernels.decode import check as decode
    from adrbench.kernels.dot_scaled import check as dot_scaled
    from adrbench.kernels.primitives import check as primitives
    from adrbench.kernels.store import check as store

    return [case for module in (primitives, store, atomics, dot_scaled, decode) for case in module.cases()]


def _emit(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def _attempt(case: Case, device: str, seed: int) -> tuple[float | None, str]:
    """(error, "") of a case that returned, (None, what was raised) otherwise."""
    import torch

    torch.manual_seed(seed)
    try:
        return float(case.run(device)), ""
    except Exception as error:
        deepest: BaseException = error
        while deepest.__cause__ is not None:
            deepest = deepest.__cause__
        lines = [line.strip() for line in str(deepest).splitlines() if line.strip()] or ["no message"]
        # A CompilationError shows a source excerpt first and its message last.
        text = lines[-1] if "Compilation" in type(deepest).__name__ else lines[0]
        return None, f"{type(deepest).__name__}: {text[:300]}"


def run_cases(cases: list[Case], outcomes: dict[str, Outcome], device: str, seed: int, interpreted: bool) -> None:
    """Run, in order, the cases that have no outcome yet; add each outcome and report it."""
    for case in cases:
        if case.id in outcomes:
            continue
        outcome = blocked(case, outcomes)
        if outcome is None:
            _emit(kind="start", id=case.id)
            error, problem = _attempt(case, device, seed)
            outcome = judge(case, error, problem, interpreted)
        outcomes[case.id] = outcome
        _emit(kind="outcome", outcome=outcome.as_json())


def main() -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    asked = json.load(sys.stdin)
    mode, device = resolve_mode(asked["mode"])
    import torch
    import triton

    torch.set_num_threads(1)
    _emit(kind="host", mode=mode, device=device_name(mode), triton=triton.__version__, torch=torch.__version__)
    outcomes = {name: Outcome(**fields) for name, fields in asked["done"].items()}
    cases = all_cases()
    _emit(kind="plan", cases=[[case.op, case.format, case.case, case.tolerance] for case in cases])
    run_cases(cases, outcomes, device, asked["seed"], mode == "interpreter")
    _emit(kind="end")


if __name__ == "__main__":
    main()
