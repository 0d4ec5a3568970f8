"""How often the decision rule errs, how often it finds a true gain, and what its intervals cover.

    PYTHONPATH=pythonpath python benchmarks/decide_simulation.py --experiments 2000 --output decide_simulation.json
    PYTHONPATH=pythonpath python benchmarks/decide_simulation.py --fit results/cpu/serve

The second form fits the noise to recorded server starts and simulates with that.

Experiments are those of ``decide_experiment.py``, their noise that of ``decide_noise.py``. A false switch is counted
where any look called an option better that is not. Each rate is printed with its 95 % Clopper-Pearson interval. What
the model leaves out (neighbours that come and go, a clock that throttles one arm only) the simulation cannot show.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from adrbench.decide.intervals import compare
from adrbench.decide.planning import rounds_needed
from adrbench.evidence import write_text
from decide_experiment import BASELINE, Design, Values, adaptive, decide, measure
from decide_noise import Noise, fit_noise, recorded
from scipy.stats import beta


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
