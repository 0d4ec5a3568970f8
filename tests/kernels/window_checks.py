# ruff: noqa: E402
"""Runs CUSTOM with KIVI-4 inside the Python sources of one vLLM version, in Triton's interpreter; prints JSON.

vLLM's own block manager and block tables give the pages. The sources' folder is on PYTHONPATH.
"""

import inspect
import json
import os
import sys
import types
from unittest import mock

SCHEME = "kivi4"
os.environ |= {
    "TRITON_INTERPRET": "1",
    "ADRBENCH_PLUGIN": json.dumps({"mechanism": "L3", "backend": "CUSTOM", "scheme": SCHEME}),
}
for name in ("gguf", "gguf.constants", "gguf.quants", "diskcache"):
    sys.modules.setdefault(name, mock.MagicMock())  # imported by vLLM, used by nothing here

import torch
from adrbench.kernels.decode.reference import attend
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring
from adrbench.kernels.store import windowed
from adrbench.serve import plugin
from backend_steps import attend_rows, metadata
from warmup_steps import bytes_changed

plugin._observe = lambda: None  # the platform here is the CPU's
plugin.register()

from adrbench.kernels.backend import attention
from adrbench.kernels.backend import windowed as backend
from adrbench.kernels.backend.metadata import CustomMetadataBuilder
from adrbench.kernels.backend.spec import PageSpec
from adrbench.kernels.backend.window_pages import WINDOW_PAGES_AT_MOST
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec
from vllm.v1.worker.block_table import BlockTable

PAGE, HEADS, KV_HEADS, DIM, LONGEST, BLOCKS = 64, 6, 2, 64, 448, 32
LAYOUT = PageLayout(scheme(SCHEME), KV_HEADS, DIM, PAGE)
SPEC = PageSpec(block_size=PAGE, num_kv_heads=KV_HEADS, head_size=DIM, dtype=torch.float16, scheme=SCHEME)


def of(function, **arguments):
    """A call with those of ``arguments`` that this version knows."""
    known = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in known})


def manager(enable_caching=False):
    config = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], SPEC)])
    return of(KVCacheManager, kv_cache_config=config, max_model_len=LONGEST, hash_block_size=PAGE,
              enable_caching=enable_caching)  # fmt: skip


def block_table(requests):
    return of(
        BlockTable, block_size=PAGE, max_num_reqs=requests, max_num_blocks_per_req=-(-LONGEST // PAGE),
        max_num_batched_tokens=512, pin_memory=False, device=torch.device("cpu"), kernel_block_size=PAGE,
        cp_kv_cache_interleave_size=1,
    )  # fmt: skip


class Server:
    """One layer served: vLLM's manager and tables, our backend."""

    def __init__(self):
        attention.attend_for = lambda _dim: ("torch", attend_rows)
        self.impl = backend.CustomWindowedImpl(HEADS, DIM, DIM**-0.5, KV_HEADS, None, None, "auto")
        self.manager, self.requests, self.rows = manager(), {}, {}
        # No bytes of an unwritten page are numbers, of codes or of the window.
        shape = backend.CustomBackend.get_kv_cache_shape(BLOCKS, PAGE, KV_HEADS, DIM)
        self.cache = torch.full(shape, 0xFF, dtype=torch.uint8)
        config = types.SimpleNamespace(
            model_config=types.SimpleNamespace(max_model_len=LONGEST), speculative_config=None,
            parallel_config=types.SimpleNamespace(decode_context_parallel_size=1),
        )  # fmt: skip
        self.builder = CustomMetadataBuilder(SPEC, ["layer"], config, torch.device("cpu"))

    def pages(self, name):
        return self.manager.get_block_ids(name)[0]

    def preempt(self, name):
        """Free a request's pages; it starts again from its first token."""
        request = self.requests.pop(name)
        self.manager.free(request)
        return request

    def step(self, pad=0, **new):
        """Serve ``new`` tokens of each named request, single ones first; the worst error of a row.

        ``pad``: empty requests after them, as a captured graph of more requests has.
        """
        names = sorted(new, key=lambda name: new[name] > 1)
        table, steps = block_table(len(names) + pad), []
        for row, name in enumerate(names):
            request = self.requests.setdefault(name, types.SimpleNamespace(
                request_id=name, num_computed_tokens=0, num_tokens=LONGEST, num_preemptions=0,
                skip_reading_prefix_cache=True,
            ))  # fmt: skip
            self.rows.setdefault(name, torch.randn(3, LONGEST, HEADS, DIM).half())
            before = request.num_computed_tokens
            assert self.manager.allocate_slots(request, new[name]) is not None, f"no pages for {name}"
            table.add_row(self.pages(name), row)
            steps.append((before, new[name]))
        live = [page for name in self.requests for page in self.pages(name)]
        assert len(live) == len(set(live)), "two requests share a page"
        table.commit_block_table(len(names) + pad)
        error = self._attend(names, [*steps, *[(0, 0)] * pad], table.get_device_tensor(len(names) + pad))
        for name in names:
            self.requests[name].num_computed_tokens += new[name]
        return error

    def _attend(self, names, steps, table):
        places = [(name, before + j) for name, (before, now) in zip(names, steps, strict=False) for j in range(now)]
        both = torch.zeros(len(places) + 3, 2 * KV_HEADS, DIM, dtype=torch.float16)
        query = torch.zeros(len(places) + 3, HEADS, DIM, dtype=torch.float16)
        for n, (name, t) in enumerate(places):
            query[n] = self.rows[name][0, t]
            both[n] = torch.cat((self.rows[name][1, t, :KV_HEADS], self.rows[name][2, t, :KV_HEADS]))
        output = torch.full((len(places) + 3, HEADS, DIM), float("nan"), dtype=torch.float16)
        step = metadata(self.builder, steps, table, torch.ones(len(places) + 3, dtype=torch.int64))
        key, value = both[:, :KV_HEADS], both[:, KV_HEADS:]
        assert step.window.data_ptr() == table.data_ptr(), "a captured graph would read a copy"
        self.impl.forward(None, query, key, value, self.cache, step, output)
        worst, n = 0.0, 0
        for name, (before, now) in zip(names, steps, strict=False):
            read = reader(self.rows[name], before + now if now == 1 else before)
            for t in range(before, before + now):
                rows = [torch.cat((x[:t], self.rows[name][i, len(x) : t + 1, :KV_HEADS].float()))
                        for i, x in zip((1, 2), read, strict=True)]  # fmt: skip
                rows = read if now == 1 else rows
                expected = attend(self.rows[name][0, t].float(), *rows, DIM**-0.5)
                worst = max(worst, float((output[n].float() - expected).norm() / expected.norm()))
                n += 1
        return worst


def dummy(server):
    """Bytes that a dummy step of vLLM changes, whose block table is still a live request's."""
    table = block_table(1)
    table.add_row(server.pages("a"), 0)
    table.commit_block_table(1)
    before, rows = server.cache.clone(), torch.ones(1, HEADS, DIM, dtype=torch.float16)
    step = metadata(server.builder, [(0, 1)], table.get_device_tensor(1), torch.full((1,), -1))
    server.impl.forward(None, rows, rows[:, :KV_HEADS], rows[:, :KV_HEADS], server.cache, step, rows.clone())
    return int((server.cache != before).sum())


def reader(rows, length):
    """Keys and values fp32 that a reader of a request of ``length`` tokens gets: the torch reference, all at once."""
    pages = torch.arange(-(-LONGEST // PAGE), dtype=torch.int32)
    cache, ring = PagedCache.allocate(LAYOUT, len(pages), "cpu"), Ring.allocate(LAYOUT, 1, torch.float16, "cpu")
    windowed.store_request(cache, ring, 0, *(x[:length, :KV_HEADS].float() for x in rows[1:]), pages)
    return windowed.load_request(cache, ring, 0, length, pages)


def served():
    """Worst error of each step, and what the pages did."""
    torch.manual_seed(0)
    server = Server()
    errors = [server.step(a=150, b=100), server.step(a=104, b=1), server.step(pad=2, a=1, b=1), server.step(a=1)]
    of_b = set(server.pages("b"))
    changed = dummy(server)
    held = {name: len(server.pages(name)) for name in "ab"}
    server.preempt("b")
    errors += [server.step(a=1, c=140), server.step(c=1, a=1)]  # a's keys 128 to 255 became codes; c has b's pages
    reused = len(of_b & set(server.pages("c")))
    server.preempt("a")
    errors += [server.step(c=1, b=131), server.step(c=1, b=1)]  # b again, from its first token
    for name in "bc":
        server.preempt(name)
    return {"errors": errors, "held": held, "dummy": changed, "reused": reused, "window": SPEC.window_pages,
            "free": server.manager.block_pool.get_num_free_blocks()}  # fmt: skip


def longest():
    """Columns that a request of the model's maximum length has in its row of a block table, and that there are."""
    server = Server()
    request = types.SimpleNamespace(request_id="x", num_computed_tokens=0, num_tokens=LONGEST, num_preemptions=0,
                                    skip_reading_prefix_cache=True)  # fmt: skip
    assert server.manager.allocate_slots(request, LONGEST) is not None
    table = block_table(1)
    table.add_row(server.pages("x"), 0)
    return [int(table.num_blocks_per_row[0]), table.block_table.np.shape[1]]


def refusal(call, *arguments):
    try:
        call(*arguments)
    except (ValueError, NotImplementedError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return ""


def refusals():
    from adrbench.kernels.backend.install import install
    from vllm.model_executor.layers.attention import Attention

    def spec(**changed):
        fields = {"speculative_config": None, "kv_transfer_config": None} | changed
        caching = fields.pop("enable_prefix_caching", False)
        cache = types.SimpleNamespace(block_size=64, enable_prefix_caching=caching)
        layer = types.SimpleNamespace(attn_backend=backend.CustomWindowedBackend, num_kv_heads=8, head_size=128,
                                      kv_cache_torch_dtype=torch.bfloat16)  # fmt: skip
        return Attention.get_kv_cache_spec(layer, types.SimpleNamespace(cache_config=cache, **fields))

    return {
        "none": type(spec()).__name__,
        "prefix": refusal(lambda: spec(enable_prefix_caching=True)),
        "manager": refusal(manager, True),
        "speculative": refusal(lambda: spec(speculative_config=object())),
        "transfer": refusal(lambda: spec(kv_transfer_config=object())),
        "kivi2": refusal(install, "kivi2"),
        "static": refusal(install, "int8_per_head"),
        "small": refusal(lambda: PageLayout(scheme(SCHEME), 1, 128, 32).window_pages),
    }


def pool():
    """Bytes of a page and of the longest request, and pages of windows, of an 8B model's layer."""
    base = {"block_size": 64, "num_kv_heads": 8, "head_size": 128, "dtype": torch.bfloat16}
    spec = PageSpec(**base, scheme=SCHEME)
    parallel = types.SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1)
    config = types.SimpleNamespace(model_config=types.SimpleNamespace(max_model_len=16384), parallel_config=parallel)
    shapes = [(heads, dim, page) for heads in range(1, 17) for dim in (64, 128, 256) for page in (64, 96, 1568)]
    most = max(PageLayout(scheme(SCHEME), *shape).window_pages for shape in shapes)
    return {"page": spec.page_size_bytes, "window": spec.window_pages, "longest": spec.max_memory_usage_bytes(config),
            "other": PageSpec(**base, scheme="int8_per_token_head").window_pages,
            "most": [most, WINDOW_PAGES_AT_MOST]}  # fmt: skip


assert AttentionBackendEnum.CUSTOM.get_class() is backend.CustomWindowedBackend
print(
    "RESULT"
    + json.dumps(
        {
            "served": served(),
            "longest": longest(),
            "refusals": refusals(),
            "pool": pool(),
            "warm-up": bytes_changed(SCHEME, attend_rows),
        }
    )
)
