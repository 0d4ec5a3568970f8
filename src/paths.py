"""Where the project's own folders are, relative to this file: no job depends on its working folder."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONPATH = ROOT / "pythonpath"
