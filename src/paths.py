"""Where the project's own folders are, relative to this file: no job depends on its working folder."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONPATH = ROOT / "pythonpath"


def interpreter(value: str) -> str:
    """Path of an interpreter; ``@FILE`` is read from a file of ``{"python": ...}``, where Snakemake makes environments.

    Raises:
        ValueError: the file does not say.
    """
    if not value.startswith("@"):
        return value
    try:
        return str(json.loads(Path(value[1:]).read_text(encoding="utf-8"))["python"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{value[1:]} names no interpreter ({error!r}); rerun the rule that writes it") from None
