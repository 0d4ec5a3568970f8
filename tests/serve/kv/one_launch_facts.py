"""Run in the serving interpreter by test_serve_simulation_one_launch: the kernel of ``one_launch.py`` in Triton's
interpreter, against ``Plane.read_back``. Prints JSON: by case, what an engine's trial says; whether caches fit."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from adrbench.kernels.formats import scheme, schemes
from adrbench.serve.simulation import attach
from adrbench.serve.simulation.caches import MirrorCache, PlainCache
from adrbench.serve.simulation.engine import Simulation
from adrbench.serve.simulation.one_launch import OneLaunch, takes
from adrbench.serve.simulation.windows import Step
from torch.utils._python_dispatch import TorchDispatchMode

CPU = torch.device("cpu")
HARD = {
    "outliers": lambda x: x.view(-1)[::97].fill_(1e4),
    "tiny": lambda x: x.mul_(1e-7),
    "zeros": lambda x: x[:, :, ::2].zero_(),
    "constant": lambda x: x.fill_(-0.3),
    "large": lambda x: x.mul_(1e38),
    "nan": lambda x: x.view(-1)[::1013].fill_(float("nan")),
    "inf": lambda x: x.view(-1)[::1013].fill_(float("inf")),
    "minus-inf": lambda x: x.view(-1)[::1013].fill_(float("-inf")),
}


class Hard(OneLaunch):
    """A launcher whose trial has rows that are hard."""

    data = "nan"

    def trial_step(self, *args: Any) -> tuple[PlainCache, Step]:
        cache, step = super().trial_step(*args)
        for plane in cache.planes.values():
            rows = plane.clone(memory_format=torch.contiguous_format)
            HARD[self.data](rows)
            plane.copy_(rows)
        return cache, step


def wrong(name: str, **fixed: Any) -> str:
    """The trial of a kernel with other compile-time arguments."""
    launch = OneLaunch(scheme(name))
    launch.fixed |= fixed
    return launch.trial(1, 64, 16, torch.float32, CPU)


def trials() -> dict[str, str]:
    found = {}
    for name in ("kivi4", "kivi2", "first256_int4"):
        found[f"{name} 1x256, page 48"] = OneLaunch(scheme(name)).trial(1, 256, 48, torch.float32, CPU)
        found[f"{name} 3x32, page 16"] = OneLaunch(scheme(name)).trial(3, 32, 16, torch.bfloat16, CPU)
    found["kivi4 1x128, page 64"] = OneLaunch(scheme("kivi4")).trial(1, 128, 64, torch.float16, CPU)
    for data in HARD:
        launch = Hard(scheme("kivi4"))
        launch.data = data
        found[f"kivi4 {data}"] = launch.trial(1, 64, 16, torch.bfloat16, CPU)
    return found


def fallback() -> dict[str, Any]:
    """What an engine does whose trial of the kernel fails."""
    simulation = Simulation({"scheme": "kivi4"}, None, True)
    assert simulation.one_launch is not None
    simulation.one_launch.fixed["K_STEPS"] = 14.0
    state = simulation.layer("model.layers.0.attn", 0, 2, 64, CPU)
    for readers in simulation.readers.values():
        readers.compiled = False  # nothing is to be compiled here
    simulation.warm_up(state, 2, 64, 16, torch.float32)
    return {"one_launch": simulation.one_launch, "fact": simulation.counts.facts["one_launch"]}


def switched() -> list[bool]:
    """Whether an engine on a GPU would take the kernel: by default, where it is asked for, where it is turned off."""
    found, available = [], torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        os.environ.pop(attach.ONE_LAUNCH_VARIABLE, None)
        for value in ("", "1", "0"):
            os.environ |= {attach.ONE_LAUNCH_VARIABLE: value} if value else {}
            attach.activate({"kv_simulation": {"scheme": "kivi4"}}, None)
            found.append(attach.ACTIVE.simulation.one_launch is not None)
    finally:
        torch.cuda.is_available = available
    return found


def fits() -> dict[str, bool]:
    launch = OneLaunch(scheme("kivi4"))
    cache, step = launch.trial_step(2, 64, 16, torch.float32, CPU)
    odd, _ = launch.trial_step(2, 96, 16, torch.float32, CPU)
    apart = PlainCache({which: torch.zeros(9, 16, 64, 2).transpose(2, 3) for which in ("key", "value")})
    across = Step(step.starts, step.old, step.new, step.block_table.T.contiguous().T, 1)
    return {
        "plain": launch.fits(cache, step),
        "head_dim 96": launch.fits(odd, step),
        "rows in pieces": launch.fits(apart, step),
        "mirror": launch.fits(MirrorCache(9, 16, 2, 64, torch.float32), step),
        "table across": launch.fits(cache, across),
    }


def empty() -> bool:
    """A step without requests changes nothing."""
    launch = OneLaunch(scheme("kivi4"))
    cache, _ = launch.trial_step(2, 64, 16, torch.float32, CPU)
    before = cache.planes["key"].clone()
    none = torch.zeros(1, dtype=torch.int32)
    launch.replace(cache, Step(none, none[:0], none[:0], none.view(1, 1)[:0], 0))
    return torch.equal(cache.planes["key"], before)


class Operators(TorchDispatchMode):
    """Counts operators that compute: on a GPU each launches a kernel, views do not."""

    views = ("view", "slice", "select", "expand", "unsqueeze", "split", "unbind", "empty", "lift", "detach", "alias")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not any(view in str(function) for view in self.views)
        return function(*args, **(kwargs or {}))


def operators(name: str, one: bool) -> list[int]:
    """Operators of the first and of the second layer of a decode step, and the kernel's launches in both."""
    simulation = Simulation({"scheme": name}, None, False)
    launched: list[Any] = []
    if one:
        simulation.one_launch = OneLaunch(scheme(name))
        simulation.one_launch.replace = lambda *asked: launched.append(asked)
    layers = [simulation.layer(f"model.layers.{i}.attn", i, 2, 64, CPU) for i in range(2)]
    lengths = torch.arange(3000, 3032, dtype=torch.int32)
    starts, table = torch.arange(33, dtype=torch.int32), torch.zeros(32, 200, dtype=torch.int32)
    step = SimpleNamespace(query_start_loc=starts, seq_lens=lengths, block_table=table, max_query_len=1)
    found = []
    for layer in layers:
        layer.cache = PlainCache({which: torch.zeros(1, 16, 2, 64) for which in ("key", "value")})
        with Operators() as counted:
            simulation.replace(layer, step, 16, capturing=True)
        found.append(counted.count)
    return [*found, len(launched)]


def main() -> None:
    torch.set_num_threads(1)
    faults = {
        "another number of steps": wrong("kivi4", K_STEPS=14.0),
        "a window of keys less": wrong("kivi4", K_STEP=64),
        "values one token early": wrong("kivi4", V_RESIDUAL=127),
        "no first tokens": wrong("first256_int4", K_SINK=0),
        "another group": wrong("kivi4", V_GROUP=16),
        "no kernel": wrong("kivi4", V_GROUP=0),
    }
    taken = [name for name in schemes() if takes(scheme(name))]
    document = {"takes": taken, "trials": trials(), "faults": faults, "fits": fits(), "empty": empty()}
    document["operators"] = {form: operators("kivi4", form == "one launch") for form in ("ranges", "one launch")}
    print(json.dumps(document | {"fallback": fallback(), "switched": switched()}))


if __name__ == "__main__":
    main()
