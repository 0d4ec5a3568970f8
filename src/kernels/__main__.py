"""The kernel check job: which formats this platform proves, case by case.

Specification: ``{"platform": name, "arch": text, "mode": "auto" | "interpreter" | "device"}``,
optionally ``"seed"``. Without an accelerator the kernels run in Triton's interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adrbench.evidence import Evidence, now, write
from adrbench.job import JobError, run, say
from adrbench.kernels.case import summarise
from adrbench.kernels.checks import run_checks

MODES = ("auto", "interpreter", "device")


def work(spec: dict[str, Any], output: Path) -> None:
    """Run every case and write the evidence.

    Raises:
        JobError: ``kernel-failed`` naming op, format, error and tolerance of each failed case.
    """
    started_at = now()
    mode = spec.get("mode", "auto")
    if mode not in MODES:
        raise JobError("bad-spec", f"kernels: mode is {mode!r}; use one of {', '.join(MODES)}")
    seed = int(spec.get("seed", 0))
    checked = run_checks(mode, seed, say)
    outcomes = list(checked.outcomes.values())
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        lines = [f"{o.op}, {o.format}, {o.case}: {o.reason} (tolerance {o.tolerance:g})" for o in failed]
        raise JobError(
            "kernel-failed", f"{len(failed)} of {len(outcomes)} kernel cases failed:\n  " + "\n  ".join(lines)
        )
    proved, not_proved = summarise(outcomes)
    measured = {
        "triton": checked.host["triton"],
        "mode": checked.host["mode"],
        "device": checked.host["device"],
        "cases": [outcome.as_json() for outcome in outcomes],
        "proved": proved,
        "not_proved": not_proved,
    }
    write(
        output,
        Evidence(
            stage="kernels",
            platform=spec["platform"],
            asked=spec,
            resolved=checked.host,
            measured=measured,
            started_at=started_at,
            finished_at=now(),
        ),
    )
    say(f"proved: {', '.join(proved) or 'nothing'}; not proved: {', '.join(not_proved) or 'nothing'}")


if __name__ == "__main__":
    run("kernels", work)
