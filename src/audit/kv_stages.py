"""Replays, their comparison and the memory arithmetic, computed again from raw files and evidence."""

from __future__ import annotations

from pathlib import Path

from adrbench.agreement.__main__ import RAW
from adrbench.agreement.__main__ import measured as replay_figures
from adrbench.agreement.compare import compared
from adrbench.agreement.replay import Replay
from adrbench.agreement.spec import CompareSpec
from adrbench.audit.finding import Outcome, compare
from adrbench.evidence import Evidence, raw_folder
from adrbench.memory.__main__ import measured as memory_figures
from adrbench.memory.spec import MemorySpec
from adrbench.paths import here


def agreement(path: Path, document: Evidence) -> Outcome:
    """Perplexity of a replay from its log-probabilities; of the comparison, every figure from the replays."""
    if document.tier == "compare":
        found = {"arms": compared(CompareSpec.model_validate(document.asked))}
    else:
        found = replay_figures(Replay.load(raw_folder(path) / RAW))
    return compare(str(path), document.measured, found, "measured")


def memory(path: Path, document: Evidence) -> Outcome:
    """Layouts and pools, from the model's shape and the evidence that names the pools."""
    asked = {key: value for key, value in document.asked.items() if key != "identity"}
    if not here(asked["model"]).exists():
        return Outcome(skipped=[f"{path}: {asked['model']} is not on this host"])
    asked |= {"model": str(here(asked["model"]))}
    asked |= {"cited": {name: str(here(folder)) for name, folder in asked.get("cited", {}).items()}}
    return compare(str(path), document.measured, memory_figures(MemorySpec.model_validate(asked)), "measured")
