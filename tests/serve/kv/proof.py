"""One engine on an accelerator, scheme after scheme: its cache after every step and its logits, against the definition.

    python proof.py SPECIFICATION

SPECIFICATION (JSON): ``model``, ``text``, ``scales`` (calibration file, waited for where a scheme needs it),
``backend``, ``dtype``, ``device`` (``cuda``, or ``cpu`` without the check of the cache), ``graphs``, ``schemes``,
``output``, ``part`` (``schemes``, ``identity`` or ``syncs``). One JSON line a result is appended to ``output``, and one
(``begins``) before each: whoever started it ends what takes too long.

Between two schemes the simulation is exchanged and, with ``graphs``, captured anew by vLLM's own ``capture_model``.
No server does that. What goes wrong after it is therefore no result: the process ends with ``cases.NEW_ENGINE`` and a
line ``again``, and whoever started it gives the scheme an engine of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import cases
import compare
import held
import reference
import torch
import watch
from adrbench import scratch
from adrbench.kernels.formats import scheme
from adrbench.serve.simulation import attach
from adrbench.serve.simulation.caches import PlainCache, plain_cache, plane_dimension
from adrbench.serve.simulation.engine import Simulation
from adrbench.serve.simulation.one_launch import OneLaunch, takes
from adrbench.serve.simulation.windows import Step

EVERY = 4
"""Of the decode steps every so manieth is computed by the reference; the cache is compared after every step."""


def engine(spec: dict[str, Any]) -> dict[str, Any]:
    """Arguments of ``vllm.LLM``."""
    found = cases.ENGINE | cases.POOL | {"dtype": spec["dtype"], "model": spec["model"]}
    if spec["device"] == "cuda":
        found |= {
            "attention_backend": spec["backend"],
            "kv_cache_memory_bytes": 1 << 28,
            "gpu_memory_utilization": 0.04,
        }
    if spec["graphs"]:
        return found | {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 64]}}
    return found | {"enforce_eager": True}


class Bench:
    """A running engine, and the plain torch model beside it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.dtype = spec, getattr(torch, spec["dtype"])
        self.rows = watch.Rows(Path(spec["model"]), cases.ENGINE["max_num_batched_tokens"], self.dtype, spec["device"])
        from vllm import LLM

        scratch.for_this_process()
        self.llm = LLM(**engine(spec))
        self.runner = watch.runner_of(self.llm)
        self.steps = watch.Steps(self.runner, self.rows)
        self.text = self.llm.get_tokenizer().encode(Path(spec["text"]).read_text())
        self.reference = reference.load(spec["model"], spec["device"])
        if spec["device"] == "cuda" and self.backend.get_name() != spec["backend"]:
            raise RuntimeError(f"vLLM resolved {self.backend.get_name()}, asked was {spec['backend']}")

    @property
    def backend(self) -> Any:
        return self.runner.attn_groups[0][0].backend

    def arm(self, settings: dict[str, Any] | None) -> None:
        """Exchange the simulation, and capture graphs with it."""
        attach.ACTIVE.simulation = None
        if settings is not None:
            attach.activate({"kv_simulation": settings}, None)
        self.capture()

    def capture(self) -> None:
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(self.runner.vllm_config):
            for group in self.runner.attn_groups:
                for one in group:
                    attach.prepare_layers(one.layer_names, self.runner.vllm_config, self.runner.device)
            if self.spec["graphs"]:
                from vllm.compilation.cuda_graph import CUDAGraphWrapper

                torch.cuda.synchronize()
                CUDAGraphWrapper.clear_all_graphs()
                # A pool of their own: one whose graphs are all gone cannot be captured into again.
                pool = torch.cuda.graph_pool_handle()
                for wrapper in list(CUDAGraphWrapper._all_instances):
                    wrapper.graph_pool = pool
                self.runner.capture_model()

    def caches(self) -> list[list[torch.Tensor]] | None:
        """Keys and values of each layer's cache; None for a layout of its own."""
        dimension = plane_dimension(self.backend)
        if self.spec["device"] == "cpu" or dimension is None:
            return None
        layers = self.runner.compilation_config.static_forward_context
        named = sorted((attach._number(layer), layer) for layer in layers.values() if hasattr(layer, "kv_cache"))
        tensors = [layer.kv_cache if torch.is_tensor(layer.kv_cache) else layer.kv_cache[0] for _, layer in named]
        return [list(plain_cache(tensor, dimension).planes.values()) for tensor in tensors]

    def run(self, name: str, prompts: list[list[int]], new_tokens: int, definitions: dict[str, Any]) -> dict[str, Any]:
        """One batch of requests; what the cache held is judged beside it."""
        planes, check = self.caches(), None
        self.steps.graphs.clear()
        if planes is not None:
            wanted = {k: held.Definition(v, len(planes), self.spec["device"]) for k, v in definitions.items()}
            check = held.CacheCheck(planes, wanted, lambda request: list(self.runner.requests[request].block_ids[0]))
        self.steps.after = check.step if check else None
        ran = watch.generate(self.llm, self.steps, {"prompts": prompts, "new_tokens": new_tokens}, self.text)
        self.steps.after = None
        logits = {}
        for label, settings in definitions.items():
            asked = settings | {"live": name}
            with torch.inference_mode():
                found = reference.of_case(self.reference, asked, ran, self.dtype, EVERY)
            logits[label] = compare.compare(ran, found)
        return {"cache": check.found if check else None, "logits": logits, "graphs": dict(self.steps.graphs)}


def one_scheme(bench: Bench, name: str) -> dict[str, Any]:
    """Everything about one scheme."""
    scales = bench.spec["scales"]
    right = cases.settings(name, scales)
    wrong = {k: cases.settings(other, scales, extra) for k, (live, other, extra) in cases.WRONG.items() if live == name}
    windowed = cases.windowed(name)
    prompts, tokens = (cases.LONG, cases.DECODED_TOKENS) if windowed else (cases.SHORT, 24)
    found = bench.run(name, prompts, tokens, {"right": right} | wrong)
    simulation = attach.ACTIVE.simulation
    problems = cases.verdict(bench.spec, found)
    if name in cases.PREEMPTED:
        crowded = bench.run(name, cases.CROWDED, cases.CROWDED_TOKENS, {"right": right})
        again = bench.run(name, cases.AFTERWARDS, 8, {"right": right})
        problems += cases.verdict(bench.spec, crowded) + cases.verdict(bench.spec, again)
        if not crowded["logits"]["right"]["restarts"]:
            problems.append("the pool was large enough for all: nothing was preempted")
        found |= {"preempted": crowded, "afterwards": again}
    assert simulation is not None
    facts = {key: simulation.counts.facts.get(key) for key in ("readers", "one_launch", "layers")}
    facts["implementation"] = simulation.counts.facts.get("backend")
    seen, quantised = simulation.counts.read()
    return found | facts | {"tokens_seen": seen, "tokens_quantised": quantised, "problems": problems}


def schemes(spec: dict[str, Any], report: Any) -> None:
    """All schemes of the specification in one engine; the first is the one it was started with."""
    from vllm import LLM  # noqa: F401  # takes about as long as the calibration that is then waited for

    first = spec["schemes"][0]
    wait_for_scales(spec, first)
    os.environ["ADRBENCH_PLUGIN"] = json.dumps({"kv_simulation": cases.settings(first, spec["scales"])})
    began = time.monotonic()
    try:
        bench = Bench(spec)
    except Exception as error:
        report({"scheme": first, "first": True, "problems": [f"no engine: {told(error)}"]})
        raise SystemExit(cases.NEW_ENGINE) from error
    report({"start_s": time.monotonic() - began, "backend": bench.backend.get_name()} | versions(spec["device"]))
    for number, name in enumerate(spec["schemes"]):
        began = time.monotonic()
        report({"begins": name})
        try:
            if number:
                wait_for_scales(spec, name)
                bench.arm(cases.settings(name, spec["scales"]))
            found = one_scheme(bench, name)
        except Exception as error:
            traceback.print_exc()
            found = {"problems": [told(error)]}
        found = {"scheme": name, "first": number == 0, "wall_s": time.monotonic() - began} | found
        if number and found["problems"]:
            found["again"] = found.pop("problems")
            report(found)
            raise SystemExit(cases.NEW_ENGINE)
        report(found)


def versions(device: str) -> dict[str, str]:
    import vllm

    name = torch.cuda.get_device_name() if device == "cuda" else device
    return {"vllm": vllm.__version__, "torch": torch.__version__, "device": name}


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


def wait_for_scales(spec: dict[str, Any], name: str) -> None:
    while cases.calibrated(name) and not Path(spec["scales"]).is_file():
        time.sleep(0.5)


def identity(spec: dict[str, Any], report: Any) -> None:
    """bf16 through the plugin against the same engine before the plugin was attached: bit by bit."""
    bench = Bench(spec)
    case = {"prompts": cases.SHORT, "new_tokens": 24}
    bench.steps.graphs.clear()
    before = watch.generate(bench.llm, bench.steps, case, bench.text)
    attach.activate({"kv_simulation": {"scheme": "bf16"}}, None)
    attach.attach(bench.backend)
    bench.capture()
    after = watch.generate(bench.llm, bench.steps, case, bench.text)
    equal = all(torch.equal(a, b) for a, b in zip(before["logits"], after["logits"], strict=True))
    found = {"logits_equal": equal, "tokens_equal": before["tokens"] == after["tokens"]}
    seen = attach.ACTIVE.simulation.counts.read()[0] if attach.ACTIVE.simulation else 0
    problems = [name for name, value in found.items() if not value]
    problems += [] if seen else ["the plugin saw no token"]
    if spec["graphs"] and not bench.steps.graphs.get("FULL"):
        problems.append("no decode step replayed a full graph")
    report(found | {"tokens_seen": seen, "graphs": bench.steps.graphs, "problems": problems})


class Lengths:
    """Attention metadata of a decode step."""

    def __init__(self, lengths: list[int], blocks: int, device: str) -> None:
        count = len(lengths)
        self.query_start_loc = torch.arange(count + 1, dtype=torch.int32, device=device)
        self.seq_lens = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.block_table = torch.arange(1, count * blocks + 1, dtype=torch.int32, device=device).view(count, blocks)
        self.max_query_len = 1


def no_syncs(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """Whether a decode step's work, its index arithmetic included, waits for the device anywhere."""
    device, heads, dim = spec["device"], 8, 128
    settings, rows = cases.settings(name, spec["output"] + f".{name}.scales"), torch.randn(512, heads, dim)
    layers = {str(layer): scheme(name).calibrate(rows, rows) for layer in range(2)}
    if settings["scales"]:
        document = {"measured": {"schemes": {name: {"layers": layers}}}}
        Path(settings["scales"]).write_text(json.dumps(document))
    simulation = Simulation(settings, None, False)
    states = [simulation.layer(f"model.layers.{i}.attn", i, heads, dim, torch.device(device)) for i in range(2)]
    cache = torch.randn(80, 2, 16, heads, dim, dtype=torch.bfloat16, device=device)
    slots = torch.arange(16, 20, device=device)
    key, value = (torch.randn(4, heads, dim, dtype=torch.bfloat16, device=device) for _ in range(2))
    for state in states:
        state.cache = PlainCache(dict(zip(("key", "value"), cache.unbind(1), strict=True)))
    ways: list[OneLaunch | None] = [None, None]
    if simulation.windowed and takes(simulation.scheme):
        ways.append(OneLaunch(simulation.scheme))
        if problem := ways[-1].trial(heads, dim, 16, torch.bfloat16, torch.device(device)):
            raise RuntimeError(f"one launch: {problem}")
    steps = [Lengths([128, 256, 300, 1], 19, device) for _ in ways]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for simulation.one_launch, step in zip(ways, steps, strict=True):
            for state in states:
                if simulation.windowed:
                    simulation.count(state, slots, simulation.replace(state, step, 16, False))
                else:
                    simulation.count(state, slots)
                    simulation.rows(state, key, value)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"windowed": simulation.windowed, "one_launch": ways[-1] is not None}


def syncs(spec: dict[str, Any], report: Any) -> None:
    assert Step.of(Lengths([1], 1, spec["device"])).longest_query == 1
    for name in spec["schemes"]:
        try:
            found: dict[str, Any] = no_syncs(spec, name) | {"problems": []}
        except RuntimeError as error:
            found = {"problems": [str(error)[:500]]}
        report({"scheme": name} | found)


def main(path: str) -> None:
    spec = json.loads(Path(path).read_text())

    def report(found: dict[str, Any]) -> None:
        with open(spec["output"], "a") as stream:
            stream.write(json.dumps(found) + "\n")

    try:
        {"schemes": schemes, "identity": identity, "syncs": syncs}[spec["part"]](spec, report)
    except Exception as error:
        report({"problems": [told(error)]})
        raise


if __name__ == "__main__":
    main(sys.argv[1])
