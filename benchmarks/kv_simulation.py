"""What simulating a KV scheme costs on decode: the step time with the plugin over the step time without it.

    PYTHONPATH=pythonpath PYTHON benchmarks/kv_simulation.py --model FOLDER --schemes kivi4 int8_per_token_head \
        --output results/<platform>/kv_simulation.json

PYTHON is an interpreter that has vLLM. Each arm (none, bf16, each scheme) is an engine in a process of its
own; all stay alive, and their repeats alternate, so that a drift of the host hits all arms alike. One repeat
generates ``--new`` tokens for ``--batch`` prompts of ``--prompt`` random tokens and, apart from that, one token: the
difference over the steps between is the step time. The ratio of each scheme is that of the medians, with the
least and greatest ratio of single repeats beside it.

On a GPU all engines share it: give each its part by ``--engine '{"gpu_memory_utilization": 0.15, "load_format":
"dummy"}'``. Static scales are made from random rows of the model's shape: their values do not change the cost.
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

ENGINE = {"dtype": "bfloat16", "max_model_len": 2048, "enable_prefix_caching": False}
READY = "READY "


def calibration(model: Path, names: list[str], path: Path) -> None:
    """Calibration evidence of random rows, in the model's shape."""
    import torch
    from adrbench.kernels.formats import scheme

    config = json.loads((model / "config.json").read_text())
    config = config.get("text_config", config)
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    rows = torch.randn(512, heads, dim, generator=torch.Generator().manual_seed(0))
    found = {}
    for name in names:
        layer = scheme(name).calibrate(rows, rows)
        found[name] = {"layers": {str(i): layer for i in range(config["num_hidden_layers"])}}
    path.write_text(json.dumps({"measured": {"schemes": found}}))


class Arm:
    """One engine in a process of its own."""

    def __init__(self, name: str, asked: dict[str, Any], folder: Path) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        env = {**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
        if asked["simulation"] is not None:
            plugin = {"report": str(self.folder / "plugin.jsonl"), "kv_simulation": asked["simulation"]}
            env["ADRBENCH_PLUGIN"] = json.dumps(plugin)
        command = [sys.executable, __file__, "--worker", json.dumps(asked)]
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.facts = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(READY):
                return json.loads(line.removeprefix(READY))
            self.log.write(line)
        raise SystemExit(f"arm {self.name} ended; {self.folder / 'log'} says why")

    def repeat(self) -> float:
        """Seconds per decode step of one repeat."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self._answer())

    def end(self) -> dict[str, Any] | None:
        """End the engine; what its plugin reported."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(120)
        report = self.folder / "kv_simulation.json"
        return json.loads(report.read_text()) if report.is_file() else None


def worker(asked: dict[str, Any]) -> None:
    """Serve repeats on stdin until it is closed."""
    import torch
    import vllm
    from vllm import LLM, SamplingParams

    llm = LLM(model=asked["model"], **asked["engine"])
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    dice = random.Random(asked["seed"])
    prompts = [
        {"prompt_token_ids": [dice.randrange(100, vocabulary) for _ in range(asked["prompt"])]}
        for _ in range(asked["batch"])
    ]

    def seconds(new: int) -> float:
        sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True)
        began = time.perf_counter()
        llm.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - began

    seconds(asked["new"])
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(READY + json.dumps({"vllm": vllm.__version__, "torch": torch.__version__, "device": device}), flush=True)
    for _ in sys.stdin:
        step = (seconds(asked["new"]) - seconds(1)) / (asked["new"] - 1)
        print(READY + json.dumps(step), flush=True)


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from adrbench.kernels.formats import scheme

    names = [name for name in arguments.schemes if scheme(name).needs_calibration]
    scales = folder / "scales.json"
    if names:
        calibration(Path(arguments.model), names, scales)
    common = {name: getattr(arguments, name) for name in ("model", "prompt", "new", "batch", "seed")}
    common["engine"] = ENGINE | json.loads(arguments.engine)
    settings: dict[str, Any] = {"none": None, "bf16": {"scheme": "bf16"}}
    for name in arguments.schemes:
        settings[name] = {"scheme": name, "scales": str(scales) if name in names else None}
    arms = [Arm(name, common | {"simulation": wanted}, folder) for name, wanted in settings.items()]
    times: dict[str, list[float]] = {arm.name: [] for arm in arms}
    for _ in range(arguments.repeats):
        for arm in random.sample(arms, len(arms)):
            times[arm.name].append(arm.repeat())
    rows = []
    for arm in arms:
        ratios = [a / b for a, b in zip(times[arm.name], times["none"], strict=True)]
        rows.append(
            {
                "scheme": arm.name,
                "step_ms": statistics.median(times[arm.name]) * 1e3,
                "ratio": statistics.median(times[arm.name]) / statistics.median(times["none"]),
                "least_ratio": min(ratios),
                "greatest_ratio": max(ratios),
                "report": arm.end(),
            }
        )
    return {"asked": common | {"repeats": arguments.repeats}, "host": arms[0].facts, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="Hugging Face model folder")
    parser.add_argument("--schemes", nargs="*", default=["int8_per_token_head"])
    parser.add_argument("--engine", default="{}", help="arguments of vllm.LLM, as JSON")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=65, help="tokens generated")
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
    for row in found["rows"]:
        span = f"{row['least_ratio']:.3f} to {row['greatest_ratio']:.3f}"
        print(f"{row['scheme']:28} {row['step_ms']:8.2f} ms a step, {row['ratio']:.3f} x ({span})")
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
