# ruff: noqa: E402
"""Run in the serving interpreter by test_kernels_splits: the model of decode's time and the benchmark, as JSON."""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import decode_problem
import decode_splits as splits
import torch
from adrbench.kernels.decode import launch, prediction
from adrbench.kernels.decode.config import Target, split_count
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PageLayout
from decode_timing import Timing

H200, UNIT = Target("cuda", 132), Target("cuda", 1)
SHAPES = {128: (32, 8), 256: (24, 4)}
LENGTHS = (512, 4096, 8192, 16384, 32768, 131072)
SEQUENCES = (*range(1, 65), 100, 128, 200, 256)
FITTED = ("decode_small", "decode_middle", "decode_main", "decode_large")
OTHERS = ("decode_one", "decode_main_run2", "decode_schemes_run3")


def layout_of(name: str, dim: int) -> PageLayout:
    return PageLayout(scheme(name), SHAPES[dim][1], dim, 64)


def modelled(name: str, dim: int, sequences: int, length: int) -> tuple[prediction.Launch, prediction.Pace]:
    found = prediction.launch_of(layout_of(name, dim), SHAPES[dim][0], sequences, length)
    assert found is not None
    return found


def errors(names: tuple[str, ...]) -> dict[str, Any]:
    """Of predictions against what an H200 measured with today's counts on pages of 64."""
    found = []
    for name in names:
        for row in json.loads((ROOT / f"docs/evidence/h200/{name}.json").read_text())["rows"]:
            _, _, name_of = row["provider"].partition("ours:")
            if not name_of or "median_us" not in row or scheme(name_of).key.values.bits == 4 or row["page"] != 64:
                continue
            case, pace = modelled(name_of, row["dim"], row["batch"], row["length"])
            count = split_count(row["batch"] * row["kv_heads"], row["length"], H200.units, pace.resident)
            found.append(prediction.predicted_us(case, row["batch"], count, pace, H200.units) / row["median_us"] - 1)
    return {"rms": math.sqrt(sum(e * e for e in found) / len(found)), "worst": max(map(abs, found)), "rows": len(found)}


def us(name: str, dim: int, real: int, sequences: int, length: int, count: int) -> float:
    case, pace = modelled(name, dim, sequences, length)
    return prediction.predicted_us(case, real, count, pace, H200.units)


def kinds() -> Iterator[tuple[str, int]]:
    yield from (("int8_per_token_head", 256), ("fp8_per_head", 128), ("bf16", 256))


def counts() -> list[dict[str, Any]]:
    """Today's count, the candidate's, and the candidate's that may take fewer, of every batch of a grid."""
    found = []
    for name, dim in kinds():
        for length in LENGTHS:
            for n in SEQUENCES:
                case, pace = modelled(name, dim, n, length)
                today = split_count(n * case.kv_heads, length, H200.units, pace.resident)
                taken = {"today": today} | {
                    rule: prediction.candidate(layout_of(name, dim), SHAPES[dim][0], n, length, H200, rule == "fewer")
                    for rule in ("candidate", "fewer")
                }
                full = {rule: us(name, dim, n, n, length, count) for rule, count in taken.items()}
                found.append({"scheme": name, "dim": dim, "length": length, "sequences": n, **taken, "full_us": full})
    return found


def pairs() -> dict[str, list[float]]:
    """Predictions beside times of docs/kernels.md, of launches that differ in their splits only."""
    name = "int8_per_token_head"
    return {
        "one": [us(name, 128, 1, 1, 32768, count) for count in (32, 64)],
        "many": [us(name, 128, 32, 32, 16384, count) for count in (4, 16)],
    }


def served() -> dict[str, list[float]]:
    """10 requests of 32k, 4 KV heads of 256, in a graph of 16 and alone: with 8 splits, with the candidate's."""
    found = {}
    for graph in (16, 10):
        taken = prediction.candidate(layout_of("int8_per_token_head", 256), 24, graph, 32768, H200)
        assert taken is not None
        found[str(graph)] = [us("int8_per_token_head", 256, 10, graph, 32768, count) for count in (8, taken)]
    return found


def slower() -> dict[str, bool]:
    """Whether the model's time grows with what should make it grow."""
    name, dim = "int8_per_token_head", 256
    length = [us(name, dim, 10, 10, n, 8) for n in range(4096, 40000, 512)]
    real = [us(name, dim, n, 64, 16384, 4) for n in range(1, 65)]
    padded = [us(name, dim, 8, n, 16384, 4) for n in range(8, 65)]
    return {
        "length": all(a <= b for a, b in itertools.pairwise(length)),
        "real": all(a < b for a, b in itertools.pairwise(real)),
        "padding": all(a < b for a, b in itertools.pairwise(padded)),
    }


def unknown() -> list[Any]:
    """Counts where nothing was measured: 4 bit, a window, another kind of device."""
    wanted = (("int4_per_token_head", H200), ("kivi4", H200), ("int8_per_token_head", Target("hip", 104)))
    return [prediction.candidate(layout_of(name, 128), 32, 10, 32768, target) for name, target in wanted]


def defaults() -> dict[str, Any]:
    """The benchmark's own cases, as its ``--predict`` sees them."""
    batches = [splits.Batch.of(text) for text in splits.default_batches()]
    rows = splits.predicted(batches, H200)
    return {
        "texts": splits.default_batches(), "read": [str(batch) for batch in batches],
        "groups": [len(list(splits.grouped(batches))), len({batch.group for batch in batches})],
        "spread": splits.Batch.of("bf16/d128/64/1000/2in4/spread").lengths,
        "shortest": min(splits.Batch.of(row["case"]).group.length // row["splits"] for row in rows),
        "powers": [row["splits"] & (row["splits"] - 1) == 0 for row in rows],
        "summary": splits.summary(rows)[0],
    }  # fmt: skip


def run(cases: list[str], seconds: float = 600.0) -> dict[str, Any]:
    """What the benchmark measures of small cases in the interpreter; only the clock is not real."""
    saved: list[int] = []
    found = splits.measure(
        [splits.Batch.of(text) for text in cases], UNIT, 4e12, time.monotonic() + seconds, 0.01,
        lambda results: saved.append(len(results.rows)),
    )  # fmt: skip
    return vars(found) | {"saved": saved, "summary": splits.summary(found.rows)}


def lossy(call: Any) -> Any:
    """``launch.decode`` that loses a little with five splits."""

    def decode(*args: Any, config: Any = None, out: Any = None, **rest: Any) -> Any:
        call(*args, config=config, out=out, **rest)
        return out.mul_(0.97) if config.splits == 5 else out

    return decode


def bench() -> dict[str, Any]:
    """Two cases: one of three sequences real, in two buffer sets; two of three real, of 422 and 1,007 tokens."""
    splits.HEADS["tiny"] = (4, 1, 128)
    decode_problem.DEVICE = "cpu"
    torch.bfloat16 = torch.float16  # what the interpreter can multiply
    sets: list[int] = []
    one, two = "int8_per_token_head/tiny/80/600/1in3", "int8_per_token_head/tiny/80/1300/2in3/spread"
    with (
        mock.patch.object(
            splits, "time_calls", lambda calls, _: sets.append(len(calls)) or Timing(20.0, 19.0, 21.0, 9)
        ),
        mock.patch.object(splits, "copies_for", lambda size: 2 if size < 200000 else 1),
        mock.patch.object(launch, "current_target", return_value=UNIT),
        mock.patch.object(launch, "decode", lossy(launch.decode)),
    ):
        found = {"run": run([one, two]), "buffers": sets, "late": run([one], -1.0)}
        with mock.patch.object(splits, "fill", side_effect=MemoryError("too large")):
            found["full"] = run([one, two])
    return found


if __name__ == "__main__":
    print(json.dumps({
        "fitted": errors(FITTED), "others": errors(OTHERS), "pairs": pairs(), "served": served(), "slower": slower(),
        "counts": counts(), "unknown": unknown(), "defaults": defaults(), "bench": bench(),
    }))  # fmt: skip
