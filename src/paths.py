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


def here(path: str) -> Path:
    """Where a file or folder that evidence names is on this host.

    Evidence may have been measured elsewhere: of an absolute path outside the working folder and this project, the
    longest end of two parts or more that is below one of them; else the path itself.
    """
    found, places = Path(path), (Path.cwd(), ROOT)
    if not found.is_absolute() or any(found.is_relative_to(place) for place in places):
        return found
    parts = found.parts[1:]
    ends = (Path(*parts[start:]) for start in range(len(parts) - 1))
    return next((place / end for end in ends for place in places if (place / end).exists()), found)
