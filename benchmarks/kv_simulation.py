"""What simulating a KV scheme costs on decode: the step time with the plugin over the step time without it.

    PYTHONPATH=pythonpath PYTHON benchmarks/kv_simulation.py --model FOLDER --schemes kivi4 int8_per_token_head \
        --output results/<platform>/kv_simulation.json

PYTHON is an interpreter that has vLLM. Each arm (none, each scheme) is an engine in a process of its own; all stay
alive, and their repeats alternate, so that a drift of the host hits all arms alike. An arm takes ``--batch`` prompts
of ``--prompt`` random tokens into its cache once; one repeat is ``--steps`` further decode steps of all of them. The
ratio of each scheme is that of the medians, with the least and greatest ratio of single repeats beside it.

``--shape`` adds a model of that shape with random weights, ``--layers`` of them (fewer than the model has: less of it
fits several times into one device; what is not a layer then weighs more, so the ratio is a little too low). All
arms share the device: each takes its weights and the cache that its requests need. Static scales
are made from random rows of the model's shape: their values do not change the cost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from adrbench.evidence import write_json
from adrbench.model import shapes

READY = "READY "
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
        self.times: list[float] = []

    def wait(self) -> bool:
        """Wait until the arm decodes; False where it ended instead: the others go on."""
        try:
            self.facts = self._answer()
        except RuntimeError as error:
            self.failed = str(error)
            print(self.failed, flush=True)
        return not self.failed

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                return json.loads(line.removeprefix(READY))
            self.log.write(line)
        self.log.flush()
        end = (self.folder / "log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"arm {self.name} of {self.label} ended:\n{end}")

    def repeat(self) -> None:
        """One repeat: seconds per decode step."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.times.append(float(self._answer()))

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


def worker(asked: dict[str, Any]) -> None:
    """Serve repeats on stdin until it is closed."""
    import torch
    import vllm

    decoding = Decoding(asked)
    done = asked["steps"]
    decoding.until(done)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    facts = {"vllm": vllm.__version__, "torch": torch.__version__, "device": device}
    print(READY + json.dumps(facts), flush=True)
    for _ in sys.stdin:
        done = max(decoding.tokens.values()) + 1
        decoding.until(done)
        began, first = time.perf_counter(), min(decoding.tokens.values())
        decoding.until(done + asked["steps"])
        step = (time.perf_counter() - began) / (min(decoding.tokens.values()) - first)
        print(READY + json.dumps(step), flush=True)


def engine(arguments: argparse.Namespace, model: Path, dummy: bool) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``: room for the requests, and on a GPU no more of it than they need."""
    length = arguments.prompt + (arguments.repeats + 2) * (arguments.steps + 4) + 64
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
            "max_num_batched_tokens": 4096,
            "compilation_config": {"cudagraph_capture_sizes": [1, arguments.batch]},
        }
    return found | json.loads(arguments.engine)


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


def alternate(arms: list[Arm], repeats: int) -> None:
    """The repeats of one model's arms in random order."""
    for _ in range(repeats):
        for arm in random.sample(arms, len(arms)):
            arm.repeat()


def rows(arms: list[Arm]) -> list[dict[str, Any]]:
    """One row an arm."""
    plain = next((arm for arm in arms if arm.name == "none"), None)
    found = []
    for arm in arms:
        if plain is None:
            break
        ratios = [a / b for a, b in zip(arm.times, plain.times, strict=True)]
        found.append(
            {
                "scheme": arm.name,
                "step_ms": statistics.median(arm.times) * 1e3,
                "ratio": statistics.median(arm.times) / statistics.median(plain.times),
                "least_ratio": min(ratios),
                "greatest_ratio": max(ratios),
                "report": None,
            }
        )
    return found


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All models: their arms start together, the repeats of one model at a time."""
    models = {"model": (Path(arguments.model), False)} if arguments.model else {}
    if arguments.shape:
        shape = shapes.write(arguments.shape, folder / arguments.shape, arguments.layers)
        models[arguments.shape] = (shape, True)
    if not models:
        raise SystemExit("name a --model folder, a --shape, or both")
    began = time.monotonic()
    found: dict[str, Any] = {"asked": {key: str(value) for key, value in vars(arguments).items()}, "models": {}}
    started = {label: start(arguments, label, path, dummy, folder) for label, (path, dummy) in models.items()}
    try:
        ready = {label: [arm for arm in arms if arm.wait()] for label, arms in started.items()}
        found["ready_s"] = time.monotonic() - began
        for label, arms in ready.items():
            failed = {arm.name: arm.failed for arm in started[label] if arm.failed}
            facts = {"layers": attention_shape(models[label][0])[0], "failed": failed, "rows": []}
            found["models"][label] = facts | {"host": arms[0].facts if arms else None}
            alternate(arms, arguments.repeats)
            found["models"][label]["rows"] = rows(arms)
            show(label, found["models"][label]["rows"])
            if arguments.output:
                write_json(arguments.output, found)
    finally:
        reports = {(label, arm.name): arm.end() for label, arms in started.items() for arm in arms}
    for label in started:
        for row in found["models"][label]["rows"]:
            row["report"] = reports[label, row["scheme"]]
    return found | {"wall_s": time.monotonic() - began}


def show(label: str, found: list[dict[str, Any]]) -> None:
    for row in found:
        span = f"{row['least_ratio']:.3f} to {row['greatest_ratio']:.3f}"
        print(f"{label} {row['scheme']:24} {row['step_ms']:8.2f} ms a step, {row['ratio']:.3f} x ({span})", flush=True)


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
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(json.loads(arguments.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments, Path(folder))
    if arguments.output:
        write_json(arguments.output, found)


if __name__ == "__main__":
    main()
