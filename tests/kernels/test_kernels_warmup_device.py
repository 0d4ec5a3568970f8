# ruff: noqa: E402
"""The warm-up of CUSTOM on a GPU: what Triton compiles or loads is counted, before and after it.

Runs where torch sees an accelerator and vLLM is installed, is skipped elsewhere. Each test clears the kernels that this
process has already, so the order of tests does not matter. Cannot prove: graphs, a whole server.
"""

import itertools
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no accelerator", allow_module_level=True)
pytest.importorskip("vllm")

sys.path.append(str(Path(__file__).parent))
import warmup_steps as served
from adrbench.kernels.backend import warmup
from adrbench.serve import plugin


@pytest.fixture
def fresh():
    """A process in which none of our kernels has been launched."""
    for kernel in warmup.kernels():
        kernel.device_caches.clear()


@pytest.fixture
def scheme(request, monkeypatch):
    settings = {"mechanism": "L3", "backend": "CUSTOM", "scheme": request.param}
    monkeypatch.setenv(plugin.VARIABLE, json.dumps(settings))
    return request.param


SCHEMES = ["int8_per_token_head", "int4_per_token_head", "int4_g32", "bf16", "kivi4"]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("scheme", SCHEMES, indirect=True)
def test_nothing_is_compiled_after_the_warm_up(scheme):
    worker, layer, builder = served.worker_of(scheme, "cuda")
    found = warmup.warm_up(worker)
    assert found.warmed["decode_combine_kernel"] >= 2
    assert int(layer.kv_cache[0].sum()) == 0, "the warm-up stored something"
    for seed, steps in enumerate(itertools.islice(served.mixes(1), 60)):
        served.serve(steps, layer, builder, seed)
    torch.cuda.synchronize()
    assert found.late == []


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("scheme", SCHEMES[:1], indirect=True)
def test_what_a_warm_up_leaves_out_is_seen(scheme, monkeypatch):
    complete = warmup.steps_of
    monkeypatch.setattr(warmup, "steps_of", lambda *a: [step for step in complete(*a) if not step.prompts])
    worker, layer, builder = served.worker_of(scheme, "cuda")
    found = warmup.warm_up(worker)
    served.serve([(700, 300)], layer, builder)
    assert "load_kernel" in found.late
