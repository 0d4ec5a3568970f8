"""Run in the serving interpreter by test_serve_simulation: a paged backend of few lines under random schedules.

The backend stands for those whose caches are plain (FLASH_ATTN, TRITON_ATTN), for one in a layout of its own
(CPU_ATTN) and for one that writes inside ``forward`` (CPU_ATTN of 0.18.1). Requests arrive, grow by chunks, are
preempted and start again, and their blocks are reused. After each step every request's tokens are read from the
cache by its block table and compared with ``Plane.round_trip`` of what was written: the definition. Prints JSON.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from adrbench.kernels.formats import scheme, schemes
from adrbench.serve.simulation import attach, engine, one_launch, windows

HEADS, DIM, BLOCK, BLOCKS = 2, 32, 16, 96


@dataclass
class Metadata:
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    max_query_len: int


def planes(shape: str, kv_cache: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keys and values of a cache as views ``[blocks, block, heads, dim]``."""
    if shape == "packed":
        # [blocks, heads, block, 2 * dim]: all keys of a block and head, then its values
        return tuple(p.transpose(1, 2) for p in kv_cache.view(BLOCKS, HEADS, 2 * BLOCK, DIM).chunk(2, 2))
    if shape == "writes-in-forward":
        return tuple(p.transpose(1, 2) for p in kv_cache.unbind(0))  # [2, blocks, heads, block, dim]
    return kv_cache.unbind(0 if shape == "planes-first" else 1)


SHAPES = {
    "planes-first": (2, BLOCKS, BLOCK, HEADS, DIM),
    "blocks-first": (BLOCKS, 2, BLOCK, HEADS, DIM),
    "packed": (BLOCKS, HEADS, BLOCK, 2 * DIM),
    "writes-in-forward": (2, BLOCKS, HEADS, BLOCK, DIM),
}


def put(shape: str, kv_cache: torch.Tensor, key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor) -> None:
    """A backend's writer: rows of non-negative slots."""
    kept = slots >= 0
    for plane, rows in zip(planes(shape, kv_cache), (key, value), strict=True):
        plane[slots[kept] // BLOCK, slots[kept] % BLOCK] = rows[: len(slots)][kept]


def make_backend(shape: str, name: str = "PLAIN_ATTN") -> Any:
    """A backend class with its own implementation class, as ``attach`` patches classes."""

    class Builder:
        def __init__(self, spec: Any, layer_names: list[str], vllm_config: Any, device: Any) -> None:
            self.device = device

        def build(self, *args: Any) -> str:
            return "built"

    class Impl:
        attn_type, kv_sharing_target_layer_name = "decoder", None

        def forward(self, layer: Any, query: Any, key: Any, value: Any, kv_cache: Any, attn_metadata: Any) -> Any:
            if shape == "writes-in-forward":
                put(shape, kv_cache, key, value, attn_metadata.slot_mapping)
            return kv_cache

    if shape != "writes-in-forward":

        def update(self: Any, layer: Any, key: Any, value: Any, kv_cache: Any, slot_mapping: Any) -> None:
            put(shape, kv_cache, key, value, slot_mapping)

        Impl.do_kv_cache_update = update

    class Backend:
        forward_includes_kv_cache_update = shape == "writes-in-forward"
        get_name = staticmethod(lambda: "CPU_ATTN" if shape in ("packed", "writes-in-forward") else name)
        is_mla = staticmethod(lambda: False)
        get_impl_cls = staticmethod(lambda: Impl)
        get_builder_cls = staticmethod(lambda: Builder)

        @staticmethod
        def get_kv_cache_shape(blocks: int, block: int, heads: int, size: int, dtype: str = "auto") -> tuple[int, ...]:
            named = {BLOCKS: blocks, BLOCK: block, HEADS: heads, DIM: size, 2: 2, 2 * DIM: 2 * size}
            shown = {"planes-first": (2, BLOCKS, BLOCK, "heads", DIM), "blocks-first": (BLOCKS, 2, BLOCK, "heads", DIM)}
            return tuple(heads if part == "heads" else named[part] for part in shown.get(shape, SHAPES[shape]))

    return Backend


class Pool:
    """Free blocks; block 0 is never given out, as in vLLM."""

    def __init__(self, dice: random.Random) -> None:
        self.free = list(range(1, BLOCKS))
        dice.shuffle(self.free)


@dataclass(eq=False)
class Request:
    key: torch.Tensor
    value: torch.Tensor
    length: int = 0
    blocks: tuple[int, ...] = ()


def grow(request: Request, tokens: int, pool: Pool) -> bool:
    needed = -(-(request.length + tokens) // BLOCK) - len(request.blocks)
    if needed > len(pool.free):
        return False
    request.blocks += tuple(pool.free.pop() for _ in range(needed))
    return True


def give_back(request: Request, pool: Pool) -> None:
    pool.free += request.blocks
    request.blocks, request.length = (), 0


def step_metadata(batch: list[tuple[Request, int]], padding: int) -> Metadata:
    slots, starts = [], [0]
    for request, tokens in batch:
        position = torch.arange(request.length, request.length + tokens)
        slots.append(torch.tensor(request.blocks)[position // BLOCK] * BLOCK + position % BLOCK)
        starts.append(starts[-1] + tokens)
    table = torch.zeros(len(batch) + padding, BLOCKS, dtype=torch.int32)
    for row, (request, _) in enumerate(batch):
        table[row, : len(request.blocks)] = torch.tensor(request.blocks, dtype=torch.int32)
    lengths = torch.tensor([r.length + n for r, n in batch] + [0] * padding, dtype=torch.int32)
    starts += [starts[-1]] * padding
    return Metadata(torch.tensor(starts, dtype=torch.int32), lengths, table, torch.cat(slots), max(n for _, n in batch))


def run(
    name: str,
    shape: str,
    dtype: torch.dtype,
    fixed: bool,
    seed: int,
    parameters: Any = None,
    launch: type[one_launch.OneLaunch] | None = None,
) -> dict[str, Any]:
    """One random schedule; how many steps and reads differed from the definition. ``fixed``: all steps take the form
    that decode steps have on a GPU, with ``launch`` as one launch of its kernel."""
    dice = random.Random(seed)
    torch.manual_seed(seed)
    rows = torch.randn(2, 512, HEADS, DIM)
    calibrated = calibration(name, rows)
    attach.ACTIVE.simulation = None
    attach.activate({"kv_simulation": {"scheme": name, "scales": calibrated, "parameters": parameters or {}}}, None)
    simulation = attach.ACTIVE.simulation
    simulation.one_launch = launch(simulation.scheme) if launch else None
    backend = make_backend(shape)
    attach.attach(backend)
    impl, layer = backend.get_impl_cls()(), SimpleNamespace(
        layer_name="model.layers.0.self_attn.attn", num_kv_heads=HEADS, head_size=DIM
    )  # fmt: skip
    cache = torch.full(SHAPES[shape], 777.0, dtype=dtype)
    waiting = [
        Request(torch.randn(n, HEADS, DIM).to(dtype), torch.randn(n, HEADS, DIM).to(dtype))
        for n in (1, 33, 127, 129, 256, 257, 300, 64, 200)
    ]
    pool, running, found = Pool(dice), [], {"steps": 0, "reads": 0, "wrong": 0, "preempted": 0, "seen": 0}
    saved = engine.takes_fixed_size
    engine.takes_fixed_size = lambda *_: fixed
    try:
        while waiting or running:
            if waiting and len(running) < 3:
                running.append(waiting.pop(0))
            batch = []
            for request in list(running):
                left = request.key.shape[0] - request.length
                tokens = min(left, dice.choice((1, 1, 5, 16, 64, 130)))
                if dice.random() < 0.04 and request.length:
                    give_back(request, pool)
                    found["preempted"] += 1
                elif grow(request, tokens, pool):
                    batch.append((request, tokens))
            if not batch:
                continue
            metadata = step_metadata(batch, padding=dice.choice((0, 2)))
            key, value = (
                torch.cat([getattr(r, which)[r.length : r.length + n] for r, n in batch]) for which in ("key", "value")
            )
            if not backend.forward_includes_kv_cache_update:
                impl.do_kv_cache_update(layer, key, value, cache, metadata.slot_mapping)
            impl.forward(layer, None, key, value, cache, metadata)
            found["steps"] += 1
            found["seen"] += len(key)
            for request, tokens in batch:
                request.length += tokens
                found["reads"] += 1
                found["wrong"] += not read_equals(simulation, request, planes(shape, cache))
                if request.length == request.key.shape[0]:
                    give_back(request, pool)
                    running.remove(request)
    finally:
        engine.takes_fixed_size = saved
    counted = simulation.counts.read()
    return found | {"counted": counted[0] == found["seen"], "quantised": counted[1]}


def read_equals(simulation: engine.Simulation, request: Request, shown: tuple[torch.Tensor, ...]) -> bool:
    layer = next(iter(simulation.layers.values()))
    position = torch.arange(request.length)
    block = torch.tensor(request.blocks)[position // BLOCK]
    for which, plane in zip(("key", "value"), shown, strict=True):
        original = getattr(request, which)[: request.length]
        wanted = getattr(simulation.scheme, which).round_trip(original, getattr(layer, which)).to(plane.dtype)
        if not torch.equal(plane[block, position % BLOCK], wanted):
            return False
    return True


# Scales that static schemes are read from; it goes with this process.
SCALES = tempfile.TemporaryDirectory(prefix="kv-scales-")


def calibration(name: str, rows: torch.Tensor) -> str | None:
    if not (scheme(name).needs_calibration or scheme(name).is_static):
        return None
    path = Path(SCALES.name) / f"{name}.json"
    layers = {"0": scheme(name).calibrate(rows[0], rows[1])}
    path.write_text(json.dumps({"measured": {"schemes": {name: {"layers": layers}}}}))
    return str(path)


def refusals() -> dict[str, str]:
    """What ``attach`` and the builder refuse, by case."""
    found = {}

    def refuse(label: str, settings: dict[str, Any], config: dict[str, Any] | None = None, **backend: Any) -> None:
        attach.ACTIVE.simulation = None
        try:
            attach.activate({"kv_simulation": settings}, None)
            made = make_backend("planes-first", backend.get("name", "PLAIN_ATTN"))
            if "mla" in backend:
                made.is_mla = staticmethod(lambda: True)
            if "shape" in backend:
                made.get_kv_cache_shape = staticmethod(lambda *_: backend["shape"])
            attach.attach(made)
            layer = SimpleNamespace(
                layer_name="model.layers.0.attn", num_kv_heads=HEADS, head_size=backend.get("dim", DIM)
            )
            engine_config = SimpleNamespace(
                cache_config=SimpleNamespace(cache_dtype="auto", enable_prefix_caching=False),
                parallel_config=SimpleNamespace(decode_context_parallel_size=1),
                speculative_config=None,
                compilation_config=SimpleNamespace(static_forward_context={layer.layer_name: layer}),
            )
            for path, value in (config or {}).items():
                owner, _, field = path.rpartition(".")
                setattr(getattr(engine_config, owner) if owner else engine_config, field, value)
            made.get_builder_cls()(None, [layer.layer_name], engine_config, torch.device("cpu"))
            found[label] = "accepted"
        except ValueError as error:
            found[label] = str(error)

    refuse("plain", {"scheme": "kivi4"})
    refuse("mla", {"scheme": "int8_per_token_head"}, mla=True)
    refuse("argument-reader", {"scheme": "kivi4"}, name="ROCM_ATTN")
    refuse("argument-reader-without-window", {"scheme": "int8_per_token_head"}, name="ROCM_ATTN")
    refuse("unknown-layout", {"scheme": "kivi4"}, shape=(2, 7, 16 * 5 * 64))
    refuse("prefix-caching", {"scheme": "kivi4"}, {"cache_config.enable_prefix_caching": True})
    refuse("prefix-caching-by-position", {"scheme": "first256_int4"}, {"cache_config.enable_prefix_caching": True})
    refuse("speculative", {"scheme": "kivi4"}, {"speculative_config": object()})
    refuse("twice", {"scheme": "kivi4"}, {"cache_config.cache_dtype": "fp8_e4m3"})
    refuse("context-parallel", {"scheme": "bf16"}, {"parallel_config.decode_context_parallel_size": 2})
    refuse("head-dim", {"scheme": "int4_g32"}, dim=80)
    refuse("no-scales", {"scheme": "int8_per_head"})
    refuse("missing-file", {"scheme": "int8_per_head", "scales": "/nonexistent.json"})
    refuse("unknown-parameter", {"scheme": "kivi4", "parameters": {"grup": 1}})
    other = calibration("int8_per_head", torch.randn(2, 64, HEADS + 1, DIM))
    refuse("other-heads", {"scheme": "int8_per_head", "scales": other})
    refuse("other-scheme", {"scheme": "int8_per_tensor", "scales": other})
    return found


def recorded() -> dict[str, Any]:
    """A recorder beside a simulation: are its rows those that the model computed, without padding?"""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.pt"
        attach.ACTIVE.simulation = None
        settings = {"kv_simulation": {"scheme": "int4_g32"}, "kv_record": {"file": str(file), "tokens": 20}}
        attach.activate(settings, folder)
        backend = make_backend("blocks-first")
        attach.attach(backend)
        impl, cache = backend.get_impl_cls()(), torch.zeros(SHAPES["blocks-first"])
        rows = torch.randn(2, 2, 2, 16, HEADS, DIM)  # layer, step, key or value
        layers = [
            SimpleNamespace(layer_name=f"model.layers.{i}.attn", num_kv_heads=HEADS, head_size=DIM) for i in (0, 1)
        ]
        for layer in layers:
            attach._state(layer, torch.device("cpu"))
        slots = torch.tensor([*range(16, 30), -1, -1])
        for step in (0, 1):
            for i, layer in enumerate(layers):
                impl.do_kv_cache_update(layer, *rows[i, step], cache, slots)
        attach.ACTIVE.recorder = None
        found = torch.load(file)
        wanted = torch.cat((rows[:, 0, :, :14], rows[:, 1, :, :6]), 2)
        equal = all(
            torch.equal(found[i][which], wanted[i, j]) for i in (0, 1) for j, which in enumerate(("key", "value"))
        )
        attach.ACTIVE.simulation.counts.flush()
        report = json.loads((Path(folder) / engine.REPORT).read_text())
    return {"equal": equal, "report": report}


def broken() -> dict[str, int]:
    """Wrong reads of a simulation with a fault in it."""
    found, saved = {}, windows.quantised_end
    try:
        windows.quantised_end = lambda plane, lengths: saved(plane, lengths - 1)
        found["wrong-window"] = run("kivi4", "blocks-first", torch.float32, False, 1)["wrong"]
        windows.quantised_end = lambda plane, lengths: torch.zeros_like(lengths)
        found["no-requantisation"] = run("kivi4", "blocks-first", torch.float32, False, 1)["wrong"]
    finally:
        windows.quantised_end = saved
    return found | {"one-launch": run("kivi4", "planes-first", torch.float32, True, 1, launch=ShortWindow)["wrong"]}


class ShortWindow(one_launch.OneLaunch):
    """A kernel that takes the newest 64 values for old ones."""

    def __init__(self, scheme: Any) -> None:
        super().__init__(scheme)
        self.fixed["V_RESIDUAL"] //= 2


def main() -> None:
    torch.set_num_threads(1)
    attach._write_0181 = lambda key, value, cache, slots, _: put("writes-in-forward", cache, key, value, slots)
    runs = {}
    for name in schemes():
        runs[f"{name}-blocks"] = run(name, "blocks-first", torch.float32, False, 1)
        runs[f"{name}-packed"] = run(name, "packed", torch.bfloat16, False, 4)
        runs[f"{name}-writes-in-forward"] = run(name, "writes-in-forward", torch.float32, False, 5)
        runs[f"{name}-fixed"] = run(name, "planes-first", torch.bfloat16, True, 2)
    changed = {"group": 32, "step": 64, "residual": 7}
    runs["kivi4-group64"] = run("kivi4", "planes-first", torch.float32, False, 3, changed)
    one = one_launch.OneLaunch
    for name in ("kivi4", "kivi2", "first256_int4"):
        runs[f"{name}-one-launch"] = run(name, "planes-first", torch.bfloat16, True, 6, launch=one)
        runs[f"{name}-one-launch-blocks"] = run(name, "blocks-first", torch.float32, True, 7, launch=one)
    runs["kivi4-group64-one-launch"] = run("kivi4", "blocks-first", torch.float16, True, 3, changed, one)
    print(json.dumps({"runs": runs, "refusals": refusals(), "broken": broken(), "recorded": recorded()}))


if __name__ == "__main__":
    main()
