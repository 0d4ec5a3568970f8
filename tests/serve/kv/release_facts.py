# ruff: noqa: E402
"""Whether a simulation lets go the cache that it was profiled with; prints JSON. A stand-in for vLLM wraps the worker.

``release_facts.py FOLDER``
"""

import gc
import json
import sys
import types
import weakref
from unittest import mock

import torch

module = types.ModuleType("vllm.v1.worker.worker_base")
module.WorkerWrapperBase = type("WorkerWrapperBase", (), {"__getattr__": lambda self, name: getattr(self.worker, name)})
for name in ("vllm", "vllm.v1", "vllm.v1.worker", module.__name__):
    sys.modules.setdefault(name, module)

from adrbench.serve.simulation import attach
from adrbench.serve.simulation.caches import PlainCache

with (
    mock.patch.object(torch.cuda, "is_available", return_value=True),
    mock.patch.dict("os.environ", ADRBENCH_KV_COMPILE="0"),
):
    for _ in range(2):
        attach.activate({"kv_simulation": {"scheme": "kivi4"}}, sys.argv[1])


def profile():
    cache = torch.zeros(3, 2, 64, 2, 64)
    state = attach.ACTIVE.simulation.layer("model.layers.0.attn", 0, 2, 64, torch.device("cpu"))
    state.cache = PlainCache(dict(zip(("key", "value"), cache.unbind(1), strict=True)))
    small.append(weakref.ref(state.cache.planes["key"]))
    return 7


small = []
wrapper = module.WorkerWrapperBase()
wrapper.worker = types.SimpleNamespace(determine_available_memory=profile)
with mock.patch.object(torch.cuda, "empty_cache") as emptied:
    answer = wrapper.determine_available_memory()
gc.collect()
print(json.dumps({"answer": answer, "gone": small[0]() is None, "emptied": emptied.call_count}))
