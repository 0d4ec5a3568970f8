"""Provide the model: convert the embedded one, write a shape, or check a folder that the platform names.

    python -m adrbench.model --spec JSON --output results/<platform>/model.json

Specification: ``platform``, ``source`` (``embedded`` | ``folder`` | ``shape``), ``folder``, ``wheel`` (embedded: the
package file), ``shape`` (its name), ``serve_python``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.evidence import Evidence, now
from adrbench.job import JobError, run, say
from adrbench.model import shapes
from adrbench.model.folder import check_folder
from adrbench.model.provide import MADE, building, make
from adrbench.paths import interpreter
from adrbench.serve.process import job_environment
from adrbench.serve.server import OFFLINE

PROMPT, EXPECTED_ANSWER = "The capital of France is", "Paris"


def greedy_answer(python: str, folder: Path) -> str:
    """The model's greedy continuation by transformers in the serving interpreter.

    Raises:
        JobError: ``answer`` when it cannot be had.
    """
    argv = [python, "-m", "adrbench.model.answer", str(folder), PROMPT, "8"]
    done = subprocess.run(argv, env=job_environment(OFFLINE), capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    if done.returncode or not lines:
        raise JobError("answer", f"transformers could not run the model ({done.returncode}): {done.stderr[-800:]}")
    return str(json.loads(lines[-1].removeprefix("ANSWER ")))


def work(spec: dict[str, Any], output: Path) -> None:
    began, folder = now(), Path(spec["folder"])
    if spec["source"] in MADE:
        with building(folder) as fresh:
            make(spec, fresh)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    facts = check_folder(folder)
    if facts["dummy"] and not spec["dummy_allowed"]:
        raise JobError(
            "bad-model", f"{folder} holds no *.safetensors; copy the weights, or pass --load-format dummy in serve.args"
        )
    answer = None
    if spec["source"] == "embedded":
        answer = greedy_answer(interpreter(spec["serve_python"]), folder)
        say(f"{PROMPT!r} -> {answer!r}")
        if EXPECTED_ANSWER not in answer:
            raise JobError(
                "answer",
                f"{PROMPT!r} was continued by {answer!r}, without {EXPECTED_ANSWER!r}: the conversion is wrong",
            )
    evidence.write(
        output,
        Evidence(
            stage="model",
            platform=spec["platform"],
            asked=spec,
            resolved={"folder": str(folder)},
            measured=facts | {"greedy_prompt": PROMPT, "greedy_answer": answer},
            notes=[shapes.RANDOM_WEIGHTS] if facts["dummy"] else [],
            started_at=began,
            finished_at=now(),
        ),
    )


if __name__ == "__main__":
    run("model", work)
