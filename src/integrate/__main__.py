"""Exercise one way of putting a backend into vLLM, as far as the platform goes (ADR 0011, block A).

    python -m adrbench.integrate --spec JSON --output results/<platform>/integrate/<name>.json

Specification: ``platform``, ``name``, ``kind`` and ``server``. Kinds: ``mechanism`` starts the server and
compares its greedy answers with the baseline's (``reference``: an evidence file of the baseline);
``refusal`` expects the start to fail with the text ``expect_failure`` (a smoke test that passes by
failing as it should); ``blocked`` records why the platform cannot run it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.evidence import Evidence, now
from adrbench.job import JobError, run, say
from adrbench.serve.answers import equal_answers, greedy_answers
from adrbench.serve.server import serving
from adrbench.serve.spec import weight_notes


def exercise(spec: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Start the server with the mechanism; what resolved, and how its answers compare with the baseline's."""
    reference = evidence.read(Path(spec["reference"]))
    with serving(spec["server"], folder / "server") as server:
        answers = greedy_answers(server)
    expected = reference.measured["answers"]
    equal = equal_answers(answers, expected)
    say(f"{spec['name']}: {equal} of {len(expected)} answers equal the baseline's")
    measured = {
        "answers": answers,
        "answers_equal": equal,
        "answers_compared": len(expected),
        "ignored": server.resolved["ignored_backend_flag"],
        "changed": server.resolved["attention_backend"] != reference.resolved["attention_backend"],
        "start_s": server.start_s,
    }
    return server.resolved, measured


def refuse(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Start a server that must refuse, and look for the reason it must give.

    Raises:
        JobError: ``no-refusal`` when it starts, ``other-refusal`` when it fails for another reason.
    """
    try:
        with serving(spec["server"], folder / "server") as server:
            started = server.resolved["attention_backend"]
    except JobError as error:
        if error.reason != "server-start":
            raise
        log = (folder / "server" / "server.log").read_text(errors="replace")
        match = re.search(spec["expect_failure"], log, re.DOTALL)
        if not match:
            raise JobError(
                "other-refusal",
                f"arm {spec['name']}: the start failed, but without {spec['expect_failure']!r}: {error}",
            ) from None
        return {"refused": True, "text": match.group(0)[:500]}
    raise JobError("no-refusal", f"arm {spec['name']}: the server started (backend {started}) where it must refuse")


def work(spec: dict[str, Any], output: Path) -> None:
    began, folder = now(), evidence.raw_folder(output)
    resolved: dict[str, Any] = {}
    measured: dict[str, Any]
    if spec["kind"] == "blocked":
        measured = {"blocked": spec["reason"]}
    elif spec["kind"] == "refusal":
        measured = refuse(spec, folder)
    else:
        resolved, measured = exercise(spec, folder)
    logs = [name for name in ("server/server.log", "server/plugin.jsonl") if (folder / name).is_file()]
    document = Evidence(
        stage="integrate",
        platform=spec["platform"],
        arm=spec["name"],
        asked=spec,
        resolved=resolved,
        measured=measured,
        files=evidence.digest_raw(output, logs),
        notes=weight_notes(spec.get("server", {}).get("args", [])),
        started_at=began,
        finished_at=now(),
    )
    evidence.write(output, document)


if __name__ == "__main__":
    run("integrate", work)
