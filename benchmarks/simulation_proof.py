"""Proof of the simulated KV schemes on an accelerator: the paged cache and the logits of a served model, per scheme.

    PYTHONPATH=pythonpath PYTHON benchmarks/simulation_proof.py --model FOLDER --output FILE.json

PYTHON has vLLM and sees the device; no network is used. For TRITON_ATTN (fp32) and FLASH_ATTN (bf16, it takes nothing
wider) every scheme of the registry is run with CUDA graphs as a server has them, and held against its definition:

* After every step, what the backend's cache holds of each request is compared value for value with
  ``Plane.round_trip`` of the keys and values that the model computed: prefill in chunks, decoding across whole windows,
  preempted requests and reused blocks among them.
* Logits are compared with those of a plain fp32 torch model that reads that cache: in fp32 within 1e-2 of
  their norm and with the same greedy tokens; in bf16 within 0.25, their median within 2e-2, and tokens are told, not
  judged.
* A scheme that differs in group, axis, window or maximum must be told by the cache, and in fp32 by the logits too.
* bf16 through the plugin is compared bit by bit with the same engine before the plugin is attached.
* The work of a decode step must not wait for the device (PyTorch's synchronisation check).

Several engines share the device, one in each of ``--workers`` processes per backend, and each runs several schemes; the
most important are the first of an engine: those that a wrong one is held against, then those that once failed. Where
exchanging the scheme of a running engine fails, or the scheme then has problems, the rest of its share goes on in a new
engine, that scheme first, and only what it gives there counts. An engine that says nothing for ``--ready-seconds``
while it starts, or ``--case-seconds`` while it runs a scheme, is ended, and the rest goes on in a new one, too; so it
does where an engine's process ends in the middle of a scheme.

OUTPUT is complete at any time (it is replaced every two seconds, and when this is told to end): ``verdicts`` by backend
and scheme, and ``rows``. What is not there after ``--seconds`` is listed as missing. A row with a problem says at which
step, layer, token and slot the cache first differed, and how much of it is as the model computed it. Numbers that JSON
does not have (a wrong scheme's difference can be infinite) are strings. Exit 0: all there and no problem.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/serve/kv"))

import cases
from adrbench.evidence import now, write_json
from adrbench.kernels.formats import schemes

ROOT = Path(__file__).resolve().parents[1]
KV = ROOT / "tests/serve/kv"
BACKENDS = {"TRITON_ATTN": "float32", "FLASH_ATTN": "bfloat16"}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # fp32 products in fp32: Triton's default on NVIDIA is TF32, whose last bits would hide what is compared.
    "TRITON_F32_DEFAULT": "ieee",
}


IMPORTANT = (
    "kivi4",
    "first256_int4",
    "kvquant4",
    "int8_per_token_head",
    "int4_hadamard",
    "int4_g32",
    "qserve_kv4",
    "fp8_per_token_head",
    "fp8_e4m3fnuz_per_token_head",
    "bf16",
    "atom_int4",
    "fp8_per_tensor",
    "int8_per_head",
    "first256_fp8",
)
"""What time is spent on first, in this order: what wrong schemes are held against, then what once failed."""


def shares(names: list[str], count: int) -> list[list[str]]:
    """Schemes by process, in the order in which they are run: the important ones, then what takes least time."""

    def rank(name: str) -> tuple[int, bool, str]:
        return IMPORTANT.index(name) if name in IMPORTANT else len(IMPORTANT), cases.windowed(name), name

    in_order = sorted(names, key=rank)
    return [in_order[number::count] for number in range(min(count, len(in_order)))]


def environment(threads: int = 1) -> dict[str, str]:
    """Of the processes that are started; the project's package is found from any folder."""
    path = os.pathsep.join(filter(None, (str(ROOT / "pythonpath"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}


class Worker:
    """One share: a process of tests/serve/kv/proof.py, and another one where that cannot go on.

    ``ready_s``, ``case_s``: how long the process may say nothing while it starts, and afterwards.
    """

    def __init__(
        self, label: str, spec: dict[str, Any], folder: Path, ready_s: float = 1e9, case_s: float = 1e9
    ) -> None:
        self.label, self.spec, self.shown, self.folder = label, spec, 0, folder
        self.ready_s, self.case_s = ready_s, case_s
        self.output, self.log = folder / f"{label}.jsonl", folder / f"{label}.log"
        self.start(spec["schemes"])

    def start(self, names: list[str]) -> None:
        specification = self.folder / f"{self.label}.json"
        specification.write_text(json.dumps(self.spec | {"output": str(self.output), "schemes": names}))
        with self.log.open("a") as log:
            command = [sys.executable, str(KV / "proof.py"), str(specification)]
            # A cache of its own: engines of one configuration that start together would read each other's half files.
            env = environment() | {"VLLM_CACHE_ROOT": str(self.folder / f"cache-{self.label}")}
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        self.lines, self.heard, self.quiet_s = len(self.rows()), time.monotonic(), self.ready_s

    def over(self) -> bool:
        """Whether all is done that can be; starts a new engine for the rest where the process cannot go on."""
        if self.process.poll() is None and self.silent():
            self.end(f"no result and no word for {self.quiet_s:.0f} s")
        elif self.process.poll() not in (None, 0, cases.NEW_ENGINE) and "begins" in (self.rows() or [{}])[-1]:
            self.end(f"the process ended with status {self.process.poll()}")
        elif self.process.poll() == cases.NEW_ENGINE and (rest := missing(self.spec, self.rows())):
            self.start(rest)
        return self.process.poll() is not None

    def silent(self) -> bool:
        """Whether the process has said nothing for longer than it may."""
        if (lines := len(self.rows())) > self.lines:
            self.lines, self.heard, self.quiet_s = lines, time.monotonic(), self.case_s
        return time.monotonic() - self.heard > self.quiet_s

    def end(self, reason: str) -> None:
        """End the process; what it was at has the problem ``reason``, and what is left gets a new engine."""
        self.process.kill()
        self.process.wait()
        absent = missing(self.spec, self.rows())
        row = {"scheme": absent[0] if absent else "", "problems": [reason], "log": self.last_words()}
        text = self.output.read_text() if self.output.is_file() else ""
        # A line that the process had no time to end is none, even where it could be read.
        cut = "" if not text or text.endswith("\n") else "(cut off)\n"
        with self.output.open("a") as stream:
            stream.write(cut + json.dumps(row) + "\n")
        if rest := missing(self.spec, self.rows()):
            self.start(rest)

    def rows(self) -> list[dict[str, Any]]:
        if not self.output.is_file():
            return []
        text = self.output.read_text()
        about = {key: self.spec[key] for key in ("part", "backend", "dtype", "graphs")} | {"worker": self.label}
        return [about | row for row in map(parsed, text[: text.rfind("\n") + 1].splitlines()) if row]

    def show_new(self) -> None:
        """Print the results that came since the last call."""
        rows = self.rows()
        for row in rows[self.shown :]:
            show(row)
        self.shown = len(rows)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def parsed(line: str) -> dict[str, Any]:
    """A result's line; nothing for one that its process could not end."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def strict(value: Any) -> Any:
    """The same with NaN and infinity as strings: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def specifications(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    """By label, what each process does."""
    common = {"model": str(arguments.model), "text": str(ROOT / "README.md"), "device": arguments.device}
    common |= {"scales": str(folder / "scales.json"), "graphs": not arguments.eager}
    found: dict[str, dict[str, Any]] = {}
    for backend in arguments.backends:
        one = common | {"backend": backend, "dtype": BACKENDS[backend]}
        for number, share in enumerate(shares(arguments.schemes, arguments.workers)):
            found[f"{backend}-{number}"] = one | {"part": "schemes", "schemes": share}
        found[f"{backend}-identity"] = one | {"part": "identity", "schemes": ["bf16"], "dtype": "bfloat16"}
    if arguments.device == "cuda":
        nothing = {"backend": "", "dtype": "bfloat16", "graphs": False}
        found["syncs"] = common | nothing | {"part": "syncs", "schemes": arguments.schemes}
    return found


def missing(spec: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """Schemes of a process without a result."""
    if spec["part"] == "identity":
        return [] if any("problems" in row for row in rows) else ["bf16"]
    there = {row.get("scheme") for row in rows if "problems" in row}
    return [name for name in spec["schemes"] if name not in there]


def show(row: dict[str, Any]) -> None:
    """One line a result."""
    if "begins" in row:
        return
    if "problems" not in row:
        ready = f"ready after {row['start_s']:.0f} s" if "start_s" in row else f"again in a new engine: {row['again']}"
        print(f"{row['worker']}: {ready}"[:600], flush=True)
        return
    cache, logits = (row.get("cache") or {}).get("right"), (row.get("logits") or {}).get("right")
    parts = [f"{row['part']} {row['backend']} {row.get('scheme', '')}", "ok" if not row["problems"] else "PROBLEM"]
    if cache:
        parts.append(f"cache {cache['differing']} of {cache['values']} differ, worst token {cache['worst_token']:.1%}")
    if logits:
        parts.append(f"logits {logits['difference']:.1e}, tokens {'same' if logits['same_tokens'] else 'differ'}")
    if "wall_s" in row:
        parts.append(f"{row['wall_s']:.0f} s")
    print("; ".join(parts + row["problems"])[:900], flush=True)


def collect(workers: dict[str, Worker], arguments: argparse.Namespace, began: float) -> dict[str, Any]:
    """Everything found so far, as the evidence document."""
    rows = [row for worker in workers.values() for row in worker.rows()]
    absent = {label: missing(worker.spec, worker.rows()) for label, worker in workers.items()}
    absent = {label: names for label, names in absent.items() if names}
    wrong = [row for row in rows if row.get("problems")]
    suspects = {*absent, *(row["worker"] for row in rows if row.get("problems") or "again" in row)}
    return {
        "arguments": {key: str(value) for key, value in vars(arguments).items()},
        "written_at": now(),
        "wall_s": time.monotonic() - began,
        "passed": not absent and not wrong,
        "results": sum("problems" in row for row in rows),
        "with_problems": len(wrong),
        "missing": absent,
        "verdicts": verdicts(workers),
        "logs": {label: workers[label].last_words() for label in sorted(suspects)},
        "rows": [row for row in rows if "begins" not in row],
    }


def verdicts(workers: dict[str, Worker]) -> dict[str, dict[str, Any]]:
    """By part and backend, then scheme: ``ok``, its problems, or ``missing``."""
    found: dict[str, dict[str, Any]] = {}
    for worker in workers.values():
        rows = worker.rows()
        there = found.setdefault(f"{worker.spec['part']} {worker.spec['backend']}".strip(), {})
        there |= dict.fromkeys(missing(worker.spec, rows), "missing")
        there |= {row.get("scheme", "bf16"): row["problems"] or "ok" for row in rows if "problems" in row}
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face model folder")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--schemes", nargs="+", default=sorted(schemes()))
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--workers", type=int, default=7, help="engines per backend")
    parser.add_argument("--seconds", type=float, default=465.0, help="end then, with what there is")
    parser.add_argument("--ready-seconds", type=float, default=240.0, help="an engine that starts may take so long")
    parser.add_argument("--case-seconds", type=float, default=120.0, help="so long may one scheme take")
    parser.add_argument("--eager", action="store_true", help="without graphs and compilation")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: logits only, to try the script")
    return parser.parse_args()


def main() -> int:
    arguments, began = parse(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines end, too
    with tempfile.TemporaryDirectory() as name:
        folder, limits = Path(name), (arguments.ready_seconds, arguments.case_seconds)
        specs = specifications(arguments, folder)
        workers = {label: Worker(label, spec, folder, *limits) for label, spec in specs.items()}
        part = folder / "scales.part"
        calibrate = [sys.executable, str(KV / "calibrate.py"), str(arguments.model), str(ROOT / "README.md"), str(part)]
        calibration = subprocess.Popen(calibrate, env=environment(threads=1 if arguments.device == "cpu" else 4))
        try:
            while True:
                if part.is_file() and calibration.poll() == 0:
                    part.rename(folder / "scales.json")
                for worker in workers.values():
                    worker.show_new()
                write_json(arguments.output, strict(collect(workers, arguments, began)))
                running = [worker for worker in workers.values() if not worker.over()]
                late = time.monotonic() - began > arguments.seconds
                if late or (not running and calibration.poll() is not None):
                    break
                time.sleep(2)
        finally:
            for process in [calibration, *(worker.process for worker in workers.values())]:
                process.kill()
                process.wait()
            for worker in workers.values():
                worker.show_new()
            found = collect(workers, arguments, began)
            write_json(arguments.output, strict(found))
    print(f"{found['results']} results, {found['with_problems']} with problems, missing: {found['missing']}")
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
