"""What simulating a KV scheme costs on decode: the step time with the plugin over the step time without it.

    PYTHONPATH=pythonpath PYTHON benchmarks/kv_simulation.py --model FOLDER --schemes kivi4 int8_per_token_head \
        --output results/<platform>/kv_simulation.json

PYTHON is an interpreter that has vLLM. Each arm (none, each scheme) is an engine in a process of its own; all stay
alive, and their repeats alternate, so that a drift of the host hits all arms alike. An arm takes ``--batch`` prompts
of ``--prompt`` random tokens into its cache once; one repeat is ``--steps`` further decode steps of all of them. The
ratio of each scheme is the median of the ratios of single rounds (each arm's repeat over that of none in the same
round), with the least and greatest beside it: ``within`` says whether the ratio keeps ``--target``, ``decided`` whether
every round says so.

OUTPUT is complete after every round. An arm that does not start in ``--ready-seconds``, dies, or takes longer than
``--repeat-seconds`` for a repeat is ended and named under ``failed``; the others go on. No round begins after
``--seconds``.

``--shape`` adds a model of that shape with random weights, ``--layers`` of them (fewer than the model has: less of it
fits several times into one device; what is not a layer then weighs more, so the ratio is a little too low). All
arms share the device: each takes its weights and the cache that its requests need. Static scales
are made from random rows of the model's shape: their values do not change the cost. Prompts are prefilled
``PREFILL_TOKENS`` a step (``--engine`` may say otherwise), so requests decode with different numbers of tokens behind
them; a repeat takes one more step of each, untimed, then the timed ones.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from adrbench.evidence import write_json
from adrbench.model import shapes

READY = "READY "
PREFILL_TOKENS = 4096
"""``max_num_batched_tokens`` where ``--engine`` does not say it."""
SPARE_TOKENS = 8
"""Of a request, that are never generated: an engine that schedules ahead may be a step or two before its answers."""
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "HF_HUB_OFFLINE": "1",
}


def attention_shape(model: Path) -> tuple[int, int, int]:
    """(layers, KV heads, head dimension) of a model folder."""
    config = json.loads((model / "config.json").read_text())
    config = config.get("text_config", config)
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return config["num_hidden_layers"], heads, dim


def calibration(model: Path, names: list[str], path: Path) -> None:
    """Calibration evidence of random rows, in the model's shape."""
    import torch
    from adrbench.kernels.formats import scheme

    layers, heads, dim = attention_shape(model)
    rows = torch.randn(512, heads, dim, generator=torch.Generator().manual_seed(0))
    found = {}
    for name in names:
        layer = scheme(name).calibrate(rows, rows)
        found[name] = {"layers": {str(i): layer for i in range(layers)}}
    path.write_text(json.dumps({"measured": {"schemes": found}}))


class Arm:
    """One engine in a process of its own; it starts at once, ``wait`` waits until its requests decode."""

    def __init__(self, label: str, name: str, asked: dict[str, Any], folder: Path) -> None:
        self.label, self.name, self.folder = label, name, folder / f"{label}-{name}"
        self.folder.mkdir()
        # A compile cache of its own: arms that start together would read each other's half files.
        env = {**os.environ, **ENVIRONMENT, "VLLM_CACHE_ROOT": str(self.folder / "cache")}
        if asked["simulation"] is not None:
            plugin = {"report": str(self.folder / "plugin.jsonl"), "kv_simulation": asked["simulation"]}
            env["ADRBENCH_PLUGIN"] = json.dumps(plugin)
        command = [sys.executable, __file__, "--worker", json.dumps(asked)]
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.facts: Any = None
        self.failed = ""
        self.times: dict[int, float] = {}
        self.said: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Answers go to ``said``, None at the end; the rest to the log."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                self.said.put(json.loads(line.removeprefix(READY)))
            else:
                self.log.write(line)
        self.log.flush()
        self.said.put(None)

    def answer(self, seconds: float) -> Any:
        """The next answer; None where none comes in time or the arm ended: it has then failed, and is ended."""
        try:
            found, reason = self.said.get(timeout=max(0.0, seconds)), "ended"
        except queue.Empty:
            found, reason = None, f"gave no answer in {seconds:.0f} s"
        if found is None:
            self.process.kill()
            end = (self.folder / "log").read_text(errors="replace")[-3000:]
            self.failed = f"arm {self.name} of {self.label} {reason}:\n{end}"
            print(self.failed, flush=True)
        return found

    def wait(self, seconds: float) -> bool:
        """Wait until the arm decodes; False where it does not: the others go on."""
        self.facts = self.answer(seconds)
        return not self.failed

    def repeat(self, number: int, seconds: float) -> None:
        """One repeat: seconds per decode step."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it ended; the answer says so
        step = self.answer(seconds)
        if step is not None:
            self.times[number] = float(step)

    def end(self) -> dict[str, Any] | None:
        """End the engine; what its plugin reported."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
        report = self.folder / "kv_simulation.json"
        return json.loads(report.read_text()) if report.is_file() else None


class Decoding:
    """Requests that decode together, stepped by hand."""

    def __init__(self, asked: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self.llm = LLM(model=asked["model"], **asked["engine"])
        vocabulary = self.llm.llm_engine.model_config.get_vocab_size()
        dice = random.Random(asked["seed"])
        new = asked["engine"]["max_model_len"] - asked["prompt"]
        sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)
        self.tokens: dict[str, int] = {}
        for number in range(asked["batch"]):
            ids = [dice.randrange(100, vocabulary) for _ in range(asked["prompt"])]
            self.tokens[str(number)] = 0
            self.llm.llm_engine.add_request(str(number), {"prompt_token_ids": ids}, sampling)

    def until(self, tokens: int) -> None:
        """Step until every request has generated so many tokens.

        Raises:
            RuntimeError: a request ended before.
        """
        while min(self.tokens.values()) < tokens:
            for output in self.llm.llm_engine.step():
                self.tokens[output.request_id.split("-")[0]] = len(output.outputs[0].token_ids)
                if output.finished:
                    raise RuntimeError(f"request {output.request_id} ended after {self.tokens} tokens")

    def repeat(self, steps: int) -> float:
        """Seconds per decode step, of ``steps`` steps of every request after one that is not timed."""
        first = min(self.tokens.values()) + 1
        self.until(first)
        began = time.perf_counter()
        self.until(first + steps)
        return (time.perf_counter() - began) / steps


def worker(asked: dict[str, Any]) -> None:
    """Serve repeats on stdin until it is closed."""
    import torch
    import vllm
    from adrbench import scratch

    scratch.for_this_process()
    decoding = Decoding(asked)
    decoding.until(asked["steps"])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    facts = {"vllm": vllm.__version__, "torch": torch.__version__, "device": device}
    print(READY + json.dumps(facts), flush=True)
    for _ in sys.stdin:
        print(READY + json.dumps(decoding.repeat(asked["steps"])), flush=True)


def generated_tokens(batch: int, prompt: int, steps: int, repeats: int, budget: int) -> int:
    """The most tokens that a request generates while all decode ``steps`` steps, then ``repeats`` repeats.

    Requests start ``stagger`` tokens apart at most: a step gives prompts what is left of ``budget`` tokens when every
    other request has decoded one.
    """
    stagger = -(-batch * prompt // max(1, budget - batch + 1))
    return stagger + steps + repeats * (1 + steps)


def engine(arguments: argparse.Namespace, model: Path, dummy: bool) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``: room for the requests, and on a GPU no more of it than they need."""
    wanted = {"max_num_batched_tokens": PREFILL_TOKENS} | json.loads(arguments.engine)
    tokens = generated_tokens(arguments.batch, arguments.prompt, arguments.steps, arguments.repeats,
                              wanted["max_num_batched_tokens"])  # fmt: skip
    length = arguments.prompt + tokens + SPARE_TOKENS
    found: dict[str, Any] = {
        "dtype": "bfloat16",
        "max_model_len": length,
        "max_num_seqs": arguments.batch,
        "enable_prefix_caching": False,
    }
    if dummy:
        found["load_format"] = "dummy"
    if arguments.device == "cuda":
        layers, heads, dim = attention_shape(model)
        needed = arguments.batch * (length + 64) * layers * heads * dim * 2 * 2
        found |= {
            "kv_cache_memory_bytes": int(needed * 1.05) + (64 << 20),
            "gpu_memory_utilization": 0.03,
            "compilation_config": {"cudagraph_capture_sizes": [1, arguments.batch]},
        }
    return found | wanted


def start(arguments: argparse.Namespace, label: str, model: Path, dummy: bool, folder: Path) -> list[Arm]:
    """The arms of one model."""
    from adrbench.kernels.formats import scheme

    names = [name for name in arguments.schemes if scheme(name).needs_calibration]
    scales = folder / f"{label}.scales.json"
    if names:
        calibration(model, names, scales)
    common = {name: getattr(arguments, name) for name in ("prompt", "steps", "batch", "seed")}
    common |= {"model": str(model), "engine": engine(arguments, model, dummy)}
    settings: dict[str, Any] = {"none": None}
    for name in arguments.schemes:
        settings[name] = {"scheme": name, "scales": str(scales) if name in names else None}
    return [Arm(label, name, common | {"simulation": wanted}, folder) for name, wanted in settings.items()]


def rows(arms: list[Arm], target: float) -> list[dict[str, Any]]:
    """One row an arm, of the rounds that it and the arm without a scheme ended."""
    plain = next((arm for arm in arms if arm.name == "none"), None)
    found = []
    for arm in arms:
        rounds = sorted(arm.times.keys() & plain.times.keys()) if plain else []
        if plain is None or not rounds:
            continue
        ratios = [arm.times[number] / plain.times[number] for number in rounds]
        ratio = statistics.median(ratios)
        found.append(
            {
                "scheme": arm.name,
                "step_ms": statistics.median(arm.times.values()) * 1e3,
                "rounds": len(rounds),
                "ratio": ratio,
                "least_ratio": min(ratios),
                "greatest_ratio": max(ratios),
                "ratios": ratios,
                "target": target,
                "within": ratio <= target,
                "decided": len({one <= target for one in ratios}) == 1,
                "report": None,
            }
        )
    return found


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All models: their arms start together, the rounds of one model at a time, the shape's first."""
    models = {}
    if arguments.shape:
        shape = shapes.write(arguments.shape, folder / arguments.shape, arguments.layers)
        models[arguments.shape] = (shape, True)
    if arguments.model:
        models["model"] = (Path(arguments.model), False)
    if not models:
        raise SystemExit("name a --model folder, a --shape, or both")
    began = time.monotonic()
    found: dict[str, Any] = {"asked": {key: str(value) for key, value in vars(arguments).items()}, "models": {}}
    started = {label: start(arguments, label, path, dummy, folder) for label, (path, dummy) in models.items()}
    try:
        for label, arms in started.items():
            one = found["models"][label] = {"layers": attention_shape(models[label][0])[0], "failed": {}, "rows": []}
            for arm in arms:
                arm.wait(arguments.ready_seconds - (time.monotonic() - began))
            one["ready_s"] = time.monotonic() - began
            one["host"] = next((arm.facts for arm in arms if arm.facts), None)
            for number in range(arguments.repeats):
                note(found, label, arms, arguments, began)
                if time.monotonic() - began > arguments.seconds:
                    break
                alive = [arm for arm in arms if not arm.failed]
                for arm in random.sample(alive, len(alive)):
                    arm.repeat(number, arguments.repeat_seconds)
            note(found, label, arms, arguments, began)
            show(label, one["rows"])
    finally:
        reports = {(label, arm.name): arm.end() for label, arms in started.items() for arm in arms}
        for label, one in found["models"].items():
            for row in one["rows"]:
                row["report"] = reports[label, row["scheme"]]
        if arguments.output:
            write_json(arguments.output, found)
    return found


def note(found: dict[str, Any], label: str, arms: list[Arm], arguments: argparse.Namespace, began: float) -> None:
    """What is known of a model so far, into ``found`` and the output file."""
    failed = {arm.name: arm.failed for arm in arms if arm.failed}
    found["models"][label] |= {"failed": failed, "rows": rows(arms, arguments.target)}
    found["wall_s"] = time.monotonic() - began
    if arguments.output:
        write_json(arguments.output, found)


def show(label: str, found: list[dict[str, Any]]) -> None:
    for row in found:
        span = f"{row['least_ratio']:.3f} to {row['greatest_ratio']:.3f} in {row['rounds']} rounds"
        kept = "" if row["decided"] else ", not in every round"
        kept = f"{'within' if row['within'] else 'beyond'} {row['target']:.2f}{kept}"
        print(f"{label} {row['scheme']:24} {row['step_ms']:8.2f} ms a step, {row['ratio']:.3f} x ({span}): {kept}",
              flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="Hugging Face model folder")
    parser.add_argument("--shape", choices=shapes.SHAPES, help="a model of this shape, random weights")
    parser.add_argument("--layers", type=int, help="layers of the shape; recorded")
    parser.add_argument("--schemes", nargs="*", default=["int8_per_token_head"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--engine", default="{}", help="arguments of vllm.LLM, as JSON")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--steps", type=int, default=32, help="decode steps of a repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--target", type=float, default=1.15, help="largest ratio that is good enough")
    parser.add_argument("--seconds", type=float, default=1e9, help="no round begins after so long")
    parser.add_argument("--ready-seconds", type=float, default=1e9, help="arms may take so long to start, all of them")
    parser.add_argument("--repeat-seconds", type=float, default=600.0, help="one repeat may take so long")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(json.loads(arguments.worker))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engines end, too
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments, Path(folder))
    incomplete = [label for label, one in found["models"].items() if one["failed"] or not one["rows"]]
    sys.exit(f"arms are missing: {', '.join(incomplete)}" if incomplete else 0)


if __name__ == "__main__":
    main()
