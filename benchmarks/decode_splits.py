"""Split counts of decode attention side by side, powers of two and others; what today's rule and candidates take.

    python benchmarks/decode_splits.py --seconds 95 --workers 8 --output results/<platform>/decode_splits.json
    python benchmarks/decode_splits.py --predict        # what the model expects of the same cases; needs no GPU

A case is ``scheme/heads/page/length/REALinSEQUENCES``: a captured graph of SEQUENCES sequences of which REAL have
``length`` tokens and the others none; with ``/spread`` at its end, lengths from a tenth of ``length`` up. Each count is
compared with fp32 attention over the unquantised rows and timed as ``decode_attention.py`` does; today's count comes
first, and once more after the others (``again_us``: drift). ``rounds``: programs with tokens over those that the device
holds at once, which is known from what Triton compiled. The most important cases come first, none is begun that may end
after ``--seconds``, and the output is written after each.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent))

from adrbench.evidence import write_json
from adrbench.kernels.decode import launch, prediction
from adrbench.kernels.decode.config import MAX_SPLITS, LaunchConfig, Target, choose
from adrbench.kernels.decode.reference import attend
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.formats.served import scope_of
from adrbench.kernels.gate import inspect
from decode_attention import HEADS, copies_for
from decode_problem import Case
from decode_providers import Filled, fill
from decode_timing import ceilings, last_level_cache_bytes, time_calls
from decode_variants import message_of

LIMIT = 0.25
"""Largest relative error over the unquantised rows: storage in 4 bit costs 0.16 to 0.19."""

SHORTEST = 0.1
"""The shortest of lengths that are spread, as a share of the longest."""


@dataclass(frozen=True)
class Group:
    """Cases that read the same caches."""

    scheme: str
    heads: str
    page: int
    length: int

    def case(self, batch: int) -> Case:
        return Case(batch, self.length, *HEADS[self.heads])

    @property
    def layout(self) -> PageLayout:
        _, kv_heads, dim = HEADS[self.heads]
        return PageLayout(scheme(self.scheme), kv_heads, dim, self.page)


@dataclass(frozen=True)
class Batch:
    """A case: ``real`` of ``sequences`` have tokens."""

    group: Group
    real: int
    sequences: int
    spread: bool = False

    @classmethod
    def of(cls, text: str) -> Batch:
        name, heads, page, length, counts, *spread = text.split("/")
        real, _, sequences = counts.partition("in")
        batch = cls(Group(name, heads, int(page), int(length)), int(real), int(sequences or real), spread == ["spread"])
        if heads not in HEADS or not 0 < batch.real <= batch.sequences or spread not in ([], ["spread"]):
            raise ValueError(f"case {text!r}: use scheme/{'|'.join(HEADS)}/page/length/REALinSEQUENCES[/spread]")
        return batch

    def __str__(self) -> str:
        g = self.group
        end = "/spread" if self.spread else ""
        return f"{g.scheme}/{g.heads}/{g.page}/{g.length}/{self.real}in{self.sequences}{end}"

    @property
    def lengths(self) -> list[int]:
        """Tokens of each sequence, padding last."""
        shares = [1.0] * self.real
        if self.spread:
            shares = [SHORTEST + (1 - SHORTEST) * (i + 0.5) / self.real for i in range(self.real)]
            random.Random(5).shuffle(shares)
        return [max(1, int(self.group.length * share)) for share in shares] + [0] * (self.sequences - self.real)


def default_batches() -> list[str]:
    """Qwen3.5-27B's shape on the page that vLLM gives it, then the usual shape; long, short; other schemes in fewer."""
    equal = ("10in16", "10in10", "20in24", "12in12", "20in20", "24in24", "8in8", "32in32", "48in48")
    all_of = (*equal[:3], "10in16/spread", "16in16/spread", "24in24/spread", *equal[3:])
    few, known = ("10in16", "10in10", "20in24", "32in32"), ("32in32", "128in128", "1in1")
    wide, usual = "int8_per_token_head/d256/1600", "int8_per_token_head/d128/64"
    groups = [(wide, 32768, all_of), (usual, 32768, all_of), (wide, 8192, all_of), (usual, 8192, all_of)]
    groups += [(usual, 16384, known), (wide, 16384, known)]
    groups += [("bf16/d256/784", 32768, few), ("int4_per_token_head/d128/64", 32768, few)]
    groups += [(wide, 4096, equal), (usual, 4096, equal)]
    others = ("int4_per_token_head/d256/64", "bf16/d128/64", "int8_per_token_head/d256/64")
    groups += [(name, 32768, few) for name in others]
    return [f"{name}/{length}/{batch}" for name, length, batches in groups for batch in batches]


def occupancy(config: LaunchConfig, layout: PageLayout, heads: int, call: Callable[[], object]) -> int | None:
    """Programs of the partial kernel that a unit holds, of what ``call`` launches; None where nothing is compiled."""
    kernel, _ = launch.launched(layout, heads, config, "cuda")
    if not isinstance(kernel, triton.JITFunction):
        return None
    found: list[Any] = []
    run = kernel.run
    kernel.run = lambda *a, **k: found.append(run(*a, **k)) or found[-1]
    try:
        call()
    finally:
        del kernel.run  # the class has it
    return inspect.programs_per_unit(found[-1].n_regs, found[-1].metadata.shared, config.warps)


@dataclass(frozen=True)
class Rules:
    """What is known of a case before it is timed. ``takes``: counts by rule: ``today``'s, the ``candidate``'s, and
    ``fewer``, the candidate's if it may take fewer splits than today's. ``resident``: programs a unit."""

    batch: Batch
    config: LaunchConfig
    takes: dict[str, int]
    resident: int
    units: int
    expected: tuple[prediction.Launch, prediction.Pace] | None

    @classmethod
    def of(cls, batch: Batch, target: Target, config: LaunchConfig, resident: int | None) -> Rules:
        what = (batch.group.layout, HEADS[batch.group.heads][0], batch.sequences, batch.group.length)
        expected = prediction.launch_of(*what)
        takes = {"today": config.splits}
        for rule, fewer in (("candidate", False), ("fewer", True)):
            if (count := prediction.candidate(*what, target, fewer)) is not None:
                takes[rule] = count
        known = resident or (expected[1].resident if expected else 1)
        return cls(batch, config, takes, known, target.units, expected)

    def counts(self) -> list[int]:
        """Counts to compare, today's first: the rules', today's half and double, and those that fill one to four rounds
        with the real sequences and with the whole graph's."""
        _, kv_heads, _ = HEADS[self.batch.group.heads]
        today, slots = self.takes["today"], self.resident * self.units
        found = {
            slots * rounds // (sequences * kv_heads)
            for rounds in (1, 2, 3, 4)
            for sequences in (self.batch.real, self.batch.sequences)
        }
        found |= {*self.takes.values(), today // 2, today * 2}
        most = max(today, min(MAX_SPLITS, self.batch.group.length // prediction.LEAST_TOKENS))
        return [today, *sorted(count for count in found if 1 <= count <= most and count != today)]

    def facts(self, splits: int) -> dict[str, Any]:
        """What a row says of a count beside its time."""
        _, kv_heads, _ = HEADS[self.batch.group.heads]
        used = [prediction.cut(length, splits, self.config.tile)[1] for length in self.batch.lengths if length]
        programs, expected = sum(used) * kv_heads, None
        if self.expected and not self.batch.spread:
            found, pace = self.expected
            expected = round(prediction.predicted_us(found, self.batch.real, splits, pace, self.units), 1)
        return {
            "case": str(self.batch), "splits": splits, "programs": programs, "resident": self.resident,
            "rounds": round(programs / (self.resident * self.units), 2), "predicted_us": expected,
            "rules": [rule for rule, count in self.takes.items() if count == splits],
        }  # fmt: skip


def answers(batch: Batch) -> dict[int, torch.Tensor]:
    """fp32 attention ``[heads, dim]`` of the first and the last real sequence; zeros for the last of the padding."""
    case, found = batch.group.case(batch.sequences), {}
    q = case.queries()
    for index in {0, batch.real - 1}:
        key, value = (rows[: batch.lengths[index]] for rows in case.rows(index))
        found[index] = attend(q[index], key, value, case.softmax_scale)
    if batch.real < batch.sequences:
        found[batch.sequences - 1] = torch.zeros_like(found[0])
    return found


def error_of(out: torch.Tensor, expected: dict[int, torch.Tensor]) -> float:
    """The worst of ||out - fp32|| / ||fp32||; of padding the norm itself. NaN where something was not written."""
    worst = 0.0
    for index, answer in expected.items():
        difference, size = float((out[index].float() - answer).norm()), float(answer.norm())
        value = difference / (size or 1.0)
        worst = value if value != value else max(worst, value)
    return worst


def timed(
    filled: Filled, config: LaunchConfig, lengths: Sequence[int], expected: dict[int, torch.Tensor], allowed: float,
    budget_s: float,
) -> dict[str, Any]:  # fmt: skip
    """Error and time of one launch, or why there is no time; ``allowed``: its largest error."""
    found: dict[str, Any] = {}
    try:
        prepared = filled.prepare(config, lengths)
        for call in prepared.calls:
            call()
        error = error_of(prepared.out, expected)
        if not error <= allowed:
            return {"failed": f"error {error:.3g} is above {allowed:.3g}"}
        found["error"] = error
        timing = time_calls(prepared.calls, budget_s)
    except Exception as problem:
        return found | {"failed": message_of(problem)}
    return found | {
        "median_us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us, "samples": timing.samples,
        "buffers": len(prepared.calls), "bytes": prepared.bytes, "bytes_per_s": prepared.bytes / timing.median_us * 1e6,
    }  # fmt: skip


def show(row: dict[str, Any]) -> None:
    head = f"{row['case']:<52} {row['splits']:4d} splits {row['programs']:6d} programs {row['rounds']:6.2f} rounds"
    expected = f"{row['predicted_us']:7.1f}" if row["predicted_us"] is not None else "      -"
    if "median_us" in row:
        spread = (row["high_us"] - row["low_us"]) / row["median_us"] * 100
        text = (
            f"{row['median_us']:8.1f} us (predicted {expected}, spread {spread:3.1f} %)  "
            f"{row['bytes_per_s'] / 1e12:5.3f} TB/s, {row['of_read_ceiling'] * 100:3.0f} %  error {row['error']:.4f}"
        )
    else:
        text = row.get("failed") or f"predicted {expected} us"
    print(f"{head}  {text}  {' '.join(row['rules'])}", flush=True)


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each case: today's, the candidate's and the least time, measured or (``--predict``) predicted."""
    found = []
    for case, mine in itertools.groupby(rows, key=lambda row: row["case"]):
        known = [row for row in mine if row.get("median_us", row.get("predicted_us")) and "failed" not in row]
        times = {row["splits"]: row.get("median_us", row["predicted_us"]) for row in known}
        taken = {rule: row["splits"] for row in known for rule in row["rules"]}
        if "today" not in taken:
            continue
        least = min(times, key=lambda count: times[count])
        line = {"case": case, "least": least, "least_us": times[least]}
        for rule, count in sorted(taken.items()):
            line |= {rule: count, f"{rule}_us": times[count]}
        found.append(line)
    return found


def show_summary(lines: Sequence[dict[str, Any]]) -> None:
    for line in lines:
        text = "  ".join(
            f"{rule} {line[rule]:3d}: {line[f'{rule}_us']:7.1f} us ({line[f'{rule}_us'] / line['least_us'] - 1:+5.1%})"
            for rule in ("today", "candidate", "fewer")
            if rule in line
        )
        print(f"{line['case']:<52} least {line['least']:3d}: {line['least_us']:7.1f} us  {text}", flush=True)


def filled_for(batches: Sequence[Batch]) -> Filled:
    """The caches of a group's cases: of the most sequences, in as many buffer sets as the fewest need."""
    group, real = batches[0].group, [batch.real for batch in batches]
    return fill(group.scheme, group.case(max(real)), group.page, copies_for(size_of(group, min(real))))


def size_of(group: Group, real: int) -> int:
    """Bytes of codes, at least, that ``real`` sequences read."""
    bits = scheme(group.scheme).key.values.bits
    _, kv_heads, dim = HEADS[group.heads]
    return 2 * real * group.length * kv_heads * dim * bits // 8


def grouped(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    for _, found in itertools.groupby(batches, key=lambda batch: batch.group):
        yield list(found)


@dataclass
class Results:
    """What has been measured. ``failed``: cases without rows, and why; ``not_begun``: cases that time was short for."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    not_begun: list[str] = field(default_factory=list)


def measure(
    batches: Sequence[Batch], target: Target, ceiling: float, end: float, budget_s: float,
    save: Callable[[Results], None],
) -> Results:  # fmt: skip
    """Time the cases group by group until ``end`` (``time.monotonic``); ``save`` is called after each."""
    found, longest = Results(not_begun=[str(batch) for batch in batches]), 2.0
    for group in grouped(batches):
        filled = None
        for batch in group:
            began = time.monotonic()
            if began + longest > end:
                return found
            try:
                filled = filled or filled_for(group)
                found.rows += measured(batch, filled, target, ceiling, budget_s)
            except Exception as problem:
                found.failed[str(batch)] = message_of(problem)
                print(f"{batch} failed: {found.failed[str(batch)]}", flush=True)
            found.not_begun.remove(str(batch))
            save(found)
            longest = max(longest, time.monotonic() - began)
        del filled
        gc.collect()
        torch.cuda.empty_cache()
    return found


def measured(batch: Batch, filled: Filled, target: Target, ceiling: float, budget_s: float) -> list[dict[str, Any]]:
    """The rows of one case, shown as they come; today's count is the first, and timed again after the others."""
    group, heads = batch.group, HEADS[batch.group.heads][0]
    part = filled.part(batch.real, min(len(filled.caches), copies_for(size_of(group, batch.real))))
    config = launch.config_of(group.layout, batch.sequences, group.length)
    resident = occupancy(config, group.layout, heads, part.prepare(config, batch.lengths).calls[0])
    rules, expected, allowed = Rules.of(batch, target, config, resident), answers(batch), LIMIT
    rows: list[dict[str, Any]] = []
    for splits in rules.counts():
        cut = replace(config, splits=splits)
        row = rules.facts(splits) | timed(part, cut, batch.lengths, expected, allowed, budget_s)
        if "median_us" in row:
            row["of_read_ceiling"] = row["bytes_per_s"] / ceiling
        allowed = min(allowed, row.get("error", LIMIT) * 1.1 + 1e-3)  # what storage costs, every count has alike
        show(row)
        rows.append(row)
    if "median_us" in rows[0]:
        again = timed(part, config, batch.lengths, expected, allowed, budget_s)
        rows[0]["again_us"] = again.get("median_us")
        print(f"{rows[0]['case']:<52} {config.splits:4d} splits again: {again}"[:140], flush=True)
    return rows


def predicted(batches: Sequence[Batch], target: Target) -> list[dict[str, Any]]:
    """The rows that ``--predict`` shows: counts and predictions of the schemes that the model knows."""
    rows = []
    for batch in batches:
        heads, _, _ = HEADS[batch.group.heads]
        if batch.spread or prediction.launch_of(batch.group.layout, heads, batch.sequences, batch.group.length) is None:
            continue
        rules = Rules.of(batch, target, table_config(batch, target), None)
        rows += [rules.facts(splits) for splits in rules.counts()]
    return rows


def table_config(batch: Batch, target: Target) -> LaunchConfig:
    """``launch.config_of`` for a device that is not there."""
    layout = batch.group.layout
    programs, bits, scope = batch.sequences * layout.kv_heads, layout.scheme.key.values.bits, scope_of(layout.scheme)
    return choose(bits, layout.head_dim, programs, batch.group.length, target, scope, layout.page_size)


def prime(kinds: Sequence[tuple[str, str, int]]) -> None:
    """Compile what the cases of (scheme, heads, page) launch, into Triton's cache on disk."""
    for name, heads, page in kinds:
        group = Group(name, heads, page, 512)
        filled = fill(name, group.case(1), page, 1)
        config = launch.config_of(group.layout, 1, group.length)
        for power in range(MAX_SPLITS.bit_length()):
            filled.prepare(replace(config, splits=1 << power)).calls[0]()
    ceilings(1 << 22)


def compile_ahead(batches: Sequence[Batch], workers: int, limit_s: float) -> None:
    """``prime`` in processes side by side, so that no case waits for the compiler; ended after ``limit_s``."""
    began = time.monotonic()
    kinds = list(dict.fromkeys((b.group.scheme, b.group.heads, b.group.page) for b in batches))
    shares = [kinds[i::workers] for i in range(min(workers, len(kinds)))]
    command = [sys.executable, __file__, "--prime"]
    running = [subprocess.Popen([*command, json.dumps(share)], stdout=subprocess.DEVNULL) for share in shares]
    codes: list[int | None] = []
    for process in running:
        try:
            codes.append(process.wait(max(0.1, began + limit_s - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            codes.append(None)
    print(f"compiled ahead in {time.monotonic() - began:.0f} s, exits {codes}", flush=True)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON with every row, a summary of each case, and the ceilings")
    parser.add_argument("--cases", nargs="+", help="all of ``default_batches`` where none is named")
    parser.add_argument("--seconds", type=float, default=100.0, help="for everything, compiling included")
    parser.add_argument("--budget", type=float, default=0.02, help="seconds of graph replays a count")
    parser.add_argument("--workers", type=int, default=0, help="processes that compile ahead; 0: as it is needed")
    parser.add_argument("--predict", action="store_true", help="only what the model expects, of an H200's 132 units")
    parser.add_argument("--prime", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    began, args = time.monotonic(), parse(arguments)
    if args.prime:
        prime(json.loads(args.prime))
        return
    batches = [Batch.of(text) for text in args.cases or default_batches()]
    if args.predict:
        rows = predicted(batches, Target("cuda", 132))
        for row in rows:
            show(row)
        show_summary(summary(rows))
        return
    properties = torch.cuda.get_device_properties(0)
    target = Target("hip" if torch.version.hip else "cuda", properties.multi_processor_count)
    if args.workers:
        compile_ahead(batches, args.workers, args.seconds / 2)
    top = ceilings()
    host = {"device": properties.name, "units": target.units, "l2_bytes": last_level_cache_bytes(),
            "torch": torch.__version__, "triton": triton.__version__}  # fmt: skip
    print(f"{host}\nread {top['read_bytes_per_s'] / 1e12:.3f} TB/s", flush=True)

    def save(found: Results) -> None:
        if args.output:
            facts = {"host": host, "ceilings": top, "arguments": arguments, "summary": summary(found.rows)}
            write_json(args.output, facts | vars(found))

    found = measure(batches, target, top["read_bytes_per_s"], began + args.seconds, args.budget, save)
    show_summary(summary(found.rows))
    print(f"{len(found.not_begun)} cases not begun; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
