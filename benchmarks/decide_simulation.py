"""How often the decision rule errs, how often it finds a true gain, and what its intervals cover.

    PYTHONPATH=pythonpath python benchmarks/decide_simulation.py --experiments 2000 --output decide_simulation.json
    PYTHONPATH=pythonpath python benchmarks/decide_simulation.py --fit results/cpu/serve

The second form fits the noise to recorded server starts and simulates with that.

Simulated server starts go through the code that real evidence goes through (``adrbench.decide``). The
noise of one start is log-normal with heavy tails (Student's t with ``tail_df`` degrees of freedom, scaled
to ``sd``), on a machine that drifts by ``drift`` over the whole run. Adaptive runs go through the stage's own status
and stopping rule; a false switch is counted where any look called an option better that is not. Each rate is printed
with its 95 % Clopper-Pearson interval. What the model leaves out (neighbours that come and go, a clock that throttles
one arm only) the simulation cannot show.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from adrbench import evidence
from adrbench.decide import interleave, status, stopping
from adrbench.decide.intervals import Comparison, compare
from adrbench.decide.multiplicity import holm
from adrbench.decide.noise import of_comparison, own_spread
from adrbench.decide.objective import gain_verdict
from adrbench.decide.planning import rounds_needed
from adrbench.decide.sequential import look_confidence
from adrbench.decide.verdict import ObjectiveResult, OptionResult
from adrbench.evidence import write_text
from scipy.stats import beta
from scipy.stats import t as student

BASELINE = "baseline"
Values = dict[str, dict[int, float]]


@dataclass(frozen=True)
class Noise:
    """Noise of one metric between server starts, on the log scale."""

    sd: float
    tail_df: float = 4.0
    drift: float = 0.05

    def draw(self, rng: np.random.Generator, size: int, scatter: np.ndarray | float = 1.0) -> np.ndarray:
        """Deviations of ``size`` consecutive starts; ``scatter`` multiplies the spread of each, not the drift."""
        heavy = rng.standard_t(self.tail_df, size) * math.sqrt((self.tail_df - 2) / self.tail_df)
        return self.sd * scatter * heavy + self.drift * np.linspace(0, 1, size)


def fit_noise(series: Sequence[Sequence[float]]) -> Noise:
    """Noise of recorded starts: one series per arm, tier and metric, in the order in which they ran.

    Each series is stripped of its own level and linear trend and scaled to unit spread for the tails; the
    spread and the trend are the medians over series. Tails are a maximum-likelihood fit of Student's t.

    Raises:
        ValueError: no series has the 4 starts that a level, a trend and a spread need.
    """
    spreads, trends, scaled = [], [], []
    for values in series:
        if len(values) < 4:
            continue
        logs, time_axis = np.log(values), np.linspace(0, 1, len(values))
        slope, level = np.polyfit(time_axis, logs, 1)
        residual = logs - level - slope * time_axis
        spread = math.sqrt(float(residual @ residual) / (len(values) - 2))
        if spread > 0:
            spreads.append(spread)
            trends.append(abs(float(slope)))
            scaled += (residual / spread).tolist()
    if not spreads:
        raise ValueError("at least 4 recorded starts of one arm are needed to fit the noise")
    tail_df = float(student.fit(scaled, floc=0.0)[0])
    return Noise(float(np.median(spreads)), min(max(tail_df, 3.0), 100.0), float(np.median(trends)))


def recorded(folder: Path) -> list[list[float]]:
    """Series of output throughput and median TTFT of every arm and tier below ``results/<platform>/serve``."""
    found: dict[tuple[str | None, str | None, str], list[tuple[str, float]]] = {}
    for path in sorted(folder.glob("*/r*/*.json")):
        document = evidence.read(path)
        for metric, value in (
            ("output_tokens_per_s", document.measured["output_tokens_per_s"]),
            ("ttft_ms", document.measured["ttft_ms"]["p50"]),
        ):
            found.setdefault((document.arm, document.tier, metric), []).append((document.started_at, value))
    return [[value for _, value in sorted(runs)] for runs in found.values()]


@dataclass(frozen=True)
class Design:
    """What is run and how it is decided."""

    gains: tuple[float, ...]  # true gain of each option over the baseline, as a fraction
    rounds: int = 5
    control: int = 2  # runs of the baseline per block
    scatter: float = 1.0  # spread of the options' starts relative to the baseline's
    minimum_gain: float = 0.05
    rule: str = "estimate"
    confidence: float = 0.95

    @cached_property
    def arms(self) -> dict[str, int]:
        """Arm -> rounds."""
        return {BASELINE: self.control * self.rounds} | {f"option{i}": self.rounds for i in range(len(self.gains))}

    @cached_property
    def blocks(self) -> dict[tuple[str, int], int]:
        """(arm, round) -> block."""
        number = interleave.count(self.arms)
        return {(arm, r): interleave.block(r, n, number) for arm, n in self.arms.items() for r in range(1, n + 1)}

    def place(self, arm: str, number: int) -> int:
        """Block of a run."""
        return self.blocks[arm, number]


def measure(design: Design, noise: Noise, rng: np.random.Generator) -> Values:
    """One experiment: every start in its interleaved order; arm -> round -> value."""
    order = interleave.plan(design.arms, int(rng.integers(1 << 30)))
    true = {BASELINE: 0.0} | {f"option{i}": math.log1p(gain) for i, gain in enumerate(design.gains)}
    values: Values = {arm: {} for arm in design.arms}
    scatter = np.array([1.0 if arm == BASELINE else design.scatter for arm, _ in order])
    for (arm, number), deviation in zip(order, noise.draw(rng, len(order), scatter), strict=True):
        values[arm][number] = 100.0 * math.exp(true[arm] + float(deviation))
    return values


def until(values: Values, design: Design, blocks: int) -> Values:
    """What exists after the first blocks."""
    return {arm: {r: v for r, v in rounds.items() if design.place(arm, r) <= blocks} for arm, rounds in values.items()}


@dataclass(frozen=True)
class Judged:
    """Verdict of every option and its comparison, by the functions that the decide stage uses."""

    verdicts: dict[str, str]
    found: dict[str, Comparison]


def decide(values: Values, design: Design, confidence: float, family: int | None = None) -> Judged:
    """Verdict of every option.

    Args:
        family: options that the error is shared among, when some have been dropped before.
    """
    where = design.place
    options = [arm for arm in values if arm != BASELINE]
    found: dict[str, Comparison] = {arm: compare(values, arm, BASELINE, confidence, where) for arm in options}
    tested = 1.0 if design.rule == "estimate" else 1.0 + design.minimum_gain
    raw = {arm: found[arm].p_value(tested) for arm in options}
    dropped = {f"dropped{i}": 1.0 for i in range((family or 0) - len(options))}
    adjusted = holm(raw | dropped)
    spread = own_spread(values[BASELINE], partial(where, BASELINE))
    verdicts = {
        arm: gain_verdict(
            found[arm],
            of_comparison(spread, found[arm], confidence, len(values[arm]), len(values[BASELINE])),
            adjusted[arm],
            design.minimum_gain,
            design.rule,
            confidence,
        )
        for arm in options
    }
    return Judged(verdicts, found)


def _result(arm: str, verdict: str) -> OptionResult:
    """An option without gates, as the status and the stopping rule read it."""
    goal = ObjectiveResult.model_construct(
        metric="rate", verdict=verdict, gain=0.0, gain_low=None, gain_high=None, noise=0.0, rounds_needed=2, needs=None
    )
    return OptionResult.model_construct(
        name=arm, arm=arm, state="measured", reason=None, violations=[], gates=[], objective=goal,
        eligible=verdict in ("better", "baseline"), p_value=None,
    )  # fmt: skip


@dataclass(frozen=True)
class Adaptive:
    """Outcome of one adaptive run: the option of the status line, options that some look called better, starts."""

    option: str | None
    better: frozenset[str]
    starts: int


def adaptive(values: Values, design: Design, first: int = 2) -> Adaptive:
    """Looks after every round from ``first``; the status and the stopping rule of the decide stage."""
    looks = list(range(first, design.rounds + 1))
    options = [arm for arm in values if arm != BASELINE]
    out: dict[str, OptionResult] = {}
    better: set[str] = set()
    used: set[tuple[str, int]] = set()
    arms: Sequence[str] = [BASELINE, *options]
    for now in looks:
        present = {arm: rounds for arm, rounds in until(values, design, now).items() if arm in arms}
        used |= {(arm, r) for arm, rounds in present.items() for r in rounds}
        confidence = look_confidence(looks, now, design.confidence)
        judged = decide(present, design, confidence, family=len(options))
        better |= {arm for arm, verdict in judged.verdicts.items() if verdict == "better"}
        out |= {arm: _result(arm, "worse") for arm, verdict in judged.verdicts.items() if verdict == "worse"}
        results = [_result(BASELINE, "baseline")]
        results += [out.get(arm) or _result(arm, judged.verdicts[arm]) for arm in options]

        def may_exceed(arm: str, other: str, now: Values = present, confidence: float = confidence) -> bool:
            high = compare(now, arm, other, confidence, design.place).log.high
            return high is None or math.expm1(min(high, 700.0)) > design.minimum_gain

        found, _ = status.decide(results, set(values), set(), design.minimum_gain, may_exceed)
        after = stopping.step(results, BASELINE, found.word == "Proposed", now, looks[-1], {}, None)
        if after.stop:
            return Adaptive(found.option, frozenset(better), len(used))
        arms = after.arms
    raise AssertionError("the last look stops")


def rate(hits: int, trials: int) -> dict[str, float]:
    """A proportion with its 95 % Clopper-Pearson interval."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta.ppf(0.975, hits + 1, trials - hits))
    return {"rate": hits / trials, "low": low, "high": high, "trials": trials}


def outcomes(design: Design, noise: Noise, experiments: int, seed: int) -> dict[str, Any]:
    """How often some option without a true gain wins, and how often the best one wins; with and without looks."""
    rng = np.random.default_rng(seed)
    null = [f"option{i}" for i, gain in enumerate(design.gains) if gain <= 0]
    best = f"option{int(np.argmax(design.gains))}"
    counts = {"false_switch": 0, "false_switch_adaptive": 0, "power": 0, "power_adaptive": 0}
    used = 0
    for _ in range(experiments):
        values = measure(design, noise, rng)
        plain = decide(values, design, design.confidence).verdicts
        looked = adaptive(values, design)
        used += looked.starts
        counts["false_switch"] += any(plain[arm] == "better" for arm in null)
        counts["false_switch_adaptive"] += any(arm in looked.better for arm in null)
        counts["power"] += plain[best] == "better"
        counts["power_adaptive"] += looked.option == best
    kept = {k: n for k, n in counts.items() if ("false" in k and null) or ("power" in k and max(design.gains) > 0)}
    grid = sum(design.arms.values()) * experiments
    return {k: rate(n, experiments) for k, n in kept.items()} | {"adaptive_share_of_grid": used / grid}


def request_coverage(
    statistic: Callable[[np.ndarray], float], requests: int, rounds: int, noise: Noise, experiments: int, seed: int
) -> dict[str, float]:
    """Coverage of the interval of a ratio of a statistic of requests (true ratio 1.3), over rounds of two arms.

    Requests of one start are log-normal around its level with 2 % of slow ones (three times as long).
    """
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(experiments):
        starts = np.exp(noise.draw(rng, 2 * rounds).reshape(rounds, 2))
        values: Values = {"arm": {}, BASELINE: {}}
        for number in range(rounds):
            for position, (arm, scale) in enumerate((("arm", 1.3), (BASELINE, 1.0))):
                slow = np.where(rng.random(requests) < 0.02, 3.0, 1.0)
                times = scale * starts[number, position] * slow * np.exp(0.2 * rng.standard_normal(requests))
                values[arm][number] = statistic(times)
        log = compare(values, "arm", BASELINE, 0.95).log
        hits += log.low is not None and log.high is not None and log.low <= math.log(1.3) <= log.high
    return rate(hits, experiments)


def coverage(experiments: int, seed: int) -> dict[str, Any]:
    """Coverage of medians, throughput and P99 with 5 rounds."""
    noise = Noise(0.04)
    statistics: dict[str, tuple[Callable[[np.ndarray], float], int]] = {
        "median of 200 requests": (lambda x: float(np.median(x)), 200),
        # Requests per second of one connection; as a time per request, so that the true ratio is 1.3 here too.
        "throughput of 200 requests": (lambda x: float(x.mean()), 200),
        "P99 of 50 requests": (lambda x: float(np.percentile(x, 99)), 50),
        "P99 of 200 requests": (lambda x: float(np.percentile(x, 99)), 200),
    }
    return {
        name: request_coverage(function, requests, 5, noise, experiments, seed)
        for name, (function, requests) in statistics.items()
    }


def planner(experiments: int, seed: int) -> list[dict[str, Any]]:
    """Rounds that the planner names for a true gain, and the power that those rounds have in simulation."""
    found = []
    for gain in (0.05, 0.075, 0.10):
        for sd in (0.02, 0.04):
            rounds = rounds_needed(math.log1p(gain), sd * math.sqrt(2), 0.95)
            if rounds is None:
                continue
            design = Design((gain,), rounds=rounds, control=1, minimum_gain=0.0)
            rng, hits = np.random.default_rng(seed), 0
            for _ in range(experiments):
                values = measure(design, Noise(sd), rng)
                log = compare(values, "option0", BASELINE, 0.95, design.place).log
                hits += log.low is not None and log.low > 0
            found.append({"gain": gain, "sd": sd, "rounds": rounds, "power": rate(hits, experiments)})
    return found


NOISES: tuple[Noise, ...] = (Noise(0.02), Noise(0.04), Noise(0.10, drift=0.2))
SCENARIOS: dict[str, Design] = {
    "A/A, three options": Design((0.0, 0.0, 0.0)),
    "A/A, three options, 10 rounds": Design((0.0, 0.0, 0.0), rounds=10),
    "A/A, three options that scatter twice as much": Design((0.0, 0.0, 0.0), scatter=2.0),
    "10 % gain, one option": Design((0.10,)),
    "10 % gain, one of three": Design((0.10, 0.0, 0.0)),
    "10 % gain, one of three, lower bound above 5 %": Design((0.10, 0.0, 0.0), rule="lower_bound"),
    "10 % gain, one option, no second baseline run": Design((0.10,), control=1),
    "10 % gain, one of three, 10 rounds": Design((0.10, 0.0, 0.0), rounds=10),
    "15 % gain, 5 % and 20 % loss, 10 rounds": Design((0.15, -0.05, -0.20), rounds=10),
    "20 %, 10 % and 30 % loss, 10 rounds": Design((-0.20, -0.10, -0.30), rounds=10),
}


# Plans that an adaptive run is for: what it saves is told over these, each with the same weight.
ADAPTIVE = tuple(name for name in SCENARIOS if name.endswith("10 rounds"))


def rows(noises: Sequence[Noise]) -> list[tuple[str, Noise]]:
    """Scenario and noise of every row; power is not asked for at the third noise, where nobody would expect it."""
    return [
        (name, noise)
        for name, design in SCENARIOS.items()
        for noise in (noises if max(design.gains) <= 0 else noises[:2])
    ]


def run(experiments: int, seed: int, noises: Sequence[Noise], output: Path | None) -> dict[str, Any]:
    """The whole table; rows that ``output`` holds already are kept, so that a run that was stopped goes on."""
    table: list[dict[str, Any]] = []
    if output is not None and output.is_file():
        found = json.loads(output.read_text(encoding="utf-8"))
        table = found["outcomes"] if (found["seed"], found["experiments"]) == (seed, experiments) else []
    result: dict[str, Any] = {"seed": seed, "experiments": experiments, "outcomes": table}
    done = {(row["scenario"], row["noise"]["sd"]) for row in table}
    for name, noise in rows(noises):
        if (name, noise.sd) in done:
            continue
        began = time.process_time()
        row = outcomes(SCENARIOS[name], noise, experiments, seed)
        table.append({"scenario": name, "design": asdict(SCENARIOS[name]), "noise": asdict(noise)} | row)
        print(f"{name}, SD {noise.sd:.0%}: {summary(row)} ({time.process_time() - began:.0f} s of CPU)", flush=True)
        _write(output, result)
    shares = [
        row["adaptive_share_of_grid"] for row in table if row["scenario"] in ADAPTIVE and row["noise"]["sd"] < 0.1
    ]
    if shares:
        result["adaptive_mean_share"] = float(np.mean(shares))
        print(f"adaptive runs of 10 rounds: {np.mean(shares):.2f} of the full grid's server starts", flush=True)
    result["coverage"] = coverage(experiments, seed)
    for name, found in result["coverage"].items():
        print(f"coverage, {name}: {found['rate']:.3f} [{found['low']:.3f}, {found['high']:.3f}]", flush=True)
    result["planner"] = planner(experiments, seed)
    for row in result["planner"]:
        power = row["power"]
        print(
            f"planner, gain {row['gain']:.1%}, SD {row['sd']:.0%}: {row['rounds']} rounds, "
            f"power {power['rate']:.3f} [{power['low']:.3f}, {power['high']:.3f}]",
            flush=True,
        )
    _write(output, result)
    return result


def _write(output: Path | None, result: Mapping[str, Any]) -> None:
    if output is not None:
        write_text(output, json.dumps(result, indent=1) + "\n")


def summary(result: Mapping[str, Any]) -> str:
    parts = [f"{k} {v['rate']:.3f} [{v['low']:.3f}, {v['high']:.3f}]" for k, v in result.items() if isinstance(v, dict)]
    return ", ".join([*parts, f"share of the grid {result['adaptive_share_of_grid']:.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20260609)
    parser.add_argument("--output", type=Path, help="JSON file to write; an unfinished one is gone on with")
    parser.add_argument("--fit", type=Path, help="folder of recorded serving evidence to take the noise from")
    parser.add_argument("--noise-of", type=Path, help="an earlier table whose noise to take (that of its first row)")
    arguments = parser.parse_args()
    noises = NOISES
    if arguments.noise_of:
        noises = (Noise(**json.loads(arguments.noise_of.read_text(encoding="utf-8"))["outcomes"][0]["noise"]),)
    if arguments.fit:
        noises = (fit_noise(recorded(arguments.fit)),)
        print(f"noise of {arguments.fit}: {noises[0]}", flush=True)
    run(arguments.experiments, arguments.seed, noises, arguments.output)


if __name__ == "__main__":
    main()
