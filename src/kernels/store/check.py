"""The cases of store and load: codes and scales equal to the reference's, untouched slots untouched."""

from __future__ import annotations

from collections.abc import Callable

import torch
from adrbench.kernels.case import Case
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring, RingPages
from adrbench.kernels.store import launch, reference, windowed
from adrbench.kernels.store.window_launch import store_windowed
from adrbench.kernels.store.window_load import load_windowed

SHAPES = ((37, 3, 64, 16, 5), (203, 1, 128, 784, 2))
"""(tokens, KV heads, head_dim, page size, pages): none a multiple of the tile; 784 is Qwen3.5's page."""


RUNS = (130, 2, 64, 80, 3)
"""An even batch, so that its first prompt begins with a block; a page ends in half a block."""


def _slots(tokens: int, total: int) -> torch.Tensor:
    """Distinct slots, one row skipped: scattered; in batches of 64 and more, first two prompts in order,
    the second from the middle of a block, one with two rows exchanged. An odd batch begins with a skipped row."""
    slots = torch.randperm(total)[:tokens]
    if tokens >= 64:
        first = torch.arange(0, tokens // 2) - tokens % 2
        second = torch.arange(tokens // 2 + 7, tokens // 2 + 7 + tokens // 3)
        rest = torch.arange(second[-1] + 1, total)
        rest = rest[torch.randperm(len(rest))[: tokens - len(first) - len(second)]]
        second[[3, 4]] = second[[4, 3]]
        slots = torch.cat((first, second, rest))
    slots[5] = -1
    return slots


def _inputs(name: str, shape: tuple[int, ...]) -> tuple[PageLayout, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Random rows with outliers and a zero row, slots, and static scales."""
    tokens, heads, dim, page_size, pages = shape
    layout = PageLayout(scheme(name), heads, dim, page_size)
    key = torch.randn(tokens, heads, dim)
    value = torch.randn(tokens, heads, dim) * torch.rand(tokens, heads, 1) * 8
    key[3], value[4, 0, 7] = 0.0, 40.0
    slots = _slots(tokens, pages * page_size)
    scales = {}
    if layout.scheme.is_static:
        # Calibrated on half the range, so that values saturate too.
        top = layout.scheme.key.values.maximum
        scales["key_scale"] = key.abs().amax((0, 2)) / top / 2
        scales["value_scale"] = value.abs().amax((0, 2)) / top / 2
    return layout, {"key": key, "value": value, "slots": slots}, scales


def _on(device: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def _store(name: str, shape: tuple[int, ...]) -> Callable[[str], float]:
    """Error: bytes of the whole cache that differ from the reference's."""

    def run(device: str) -> float:
        layout, rows, scales = _inputs(name, shape)
        expected = PagedCache.allocate(layout, shape[4], "cpu")
        reference.store(expected, **rows, **scales)
        stored = PagedCache.allocate(layout, shape[4], device)
        launch.store(stored, **_on(device, rows), **_on(device, scales))
        return float((stored.buffer.cpu() != expected.buffer).sum().item())

    return run


def _cut(early: bool, heads: int, run: Callable[[str], float]) -> Callable[[str], float]:
    """``run`` with rows loaded before their slots, or not, and ``heads`` of a program."""

    def other(device: str) -> float:
        usual = launch.BLOCK_EARLY, launch.BLOCK_HEADS
        launch.BLOCK_EARLY, launch.BLOCK_HEADS = early, heads
        try:
            return run(device)
        finally:
            launch.BLOCK_EARLY, launch.BLOCK_HEADS = usual

    return other


def _load(name: str, shape: tuple[int, ...]) -> Callable[[str], float]:
    """Error: largest difference from the reference on a cache that the reference filled."""

    def run(device: str) -> float:
        layout, rows, scales = _inputs(name, shape)
        cache = PagedCache.allocate(layout, shape[4], "cpu")
        reference.store(cache, **rows, **scales)
        slots = rows["slots"][rows["slots"] >= 0]
        expected = reference.load(cache, slots, **scales)
        there = PagedCache(layout, cache.buffer.to(device))
        loaded = launch.load(there, slots.to(device), **_on(device, scales))
        return max(float((a.cpu() - b).abs().max().item()) for a, b in zip(loaded, expected, strict=True))

    return run


Calls = tuple[tuple[int, ...], ...]
"""New tokens of each sequence, call by call."""

WINDOWED_SHAPES: tuple[tuple[tuple[int, int, int], Calls], ...] = (
    # Prompts, chunks that end inside groups, one that completes nothing, a step that completes 128.
    ((1, 64, 64), ((37, 300), (0, 1), (90, 0), (1, 1), (130, 83))),
    # Steps of one token across the 128th and the 256th, beside a sequence that stays short.
    ((2, 128, 96), ((126, 255, 3), (1, 1, 1), (1, 1, 1), (1, 0, 1))),
)
"""((KV heads, head_dim, page size), calls)."""


def _windowed(name: str, shape: tuple[int, int, int], calls: Calls, dtype: torch.dtype) -> Callable[[str], float]:
    """Error: bytes of cache and ring that differ from those of whole requests stored at once.

    Every sequence's pages and ring row held another request before.
    """

    def run(device: str) -> float:
        layout = PageLayout(scheme(name), *shape)
        totals = [sum(column) for column in zip(*calls, strict=True)]
        width = -(-max(totals) // layout.page_size)
        pages = len(totals) * width + 1
        table = torch.randperm(pages)[: len(totals) * width].to(torch.int32).view(len(totals), width)
        rows = torch.randperm(len(totals) + 1)[: len(totals)].to(torch.int32)
        expected = (PagedCache.allocate(layout, pages, "cpu"), Ring.allocate(layout, len(totals) + 1, dtype, "cpu"))
        data = []
        for index, total in enumerate(totals):
            before = torch.randn(2, width * layout.page_size, *shape[:2]).to(dtype)
            windowed.store_request(*expected, int(rows[index]), before[0].float(), before[1].float(), table[index])
            found = torch.randn(2, total, *shape[:2]) * (1 + 30 * (torch.rand(2, 1, *shape[:2]) > 0.95))
            data.append((found + 5 * (torch.rand(2, 1, *shape[:2]) > 0.9)).to(dtype))
        stored = (
            PagedCache(layout, expected[0].buffer.to(device)),
            Ring(*(plane.to(device, copy=True) for plane in (expected[1].key, expected[1].value))),
        )
        if device == "cpu":
            stored = (PagedCache(layout, expected[0].buffer.clone()), stored[1])
        for index, both in enumerate(data):
            windowed.store_request(*expected, int(rows[index]), both[0].float(), both[1].float(), table[index])
        lengths = torch.zeros(len(totals), dtype=torch.int32)
        for call in calls:
            new = [both[:, int(n) : int(n) + more] for both, n, more in zip(data, lengths, call, strict=True)]
            lengths = lengths + torch.tensor(call, dtype=torch.int32)
            starts = torch.tensor([0, *call]).cumsum(0).to(torch.int32)
            key, value = torch.cat(new, 1).to(device)
            store_windowed(
                *stored, rows.to(device), key, value, table.to(device), starts.to(device), lengths.to(device), max(call)
            )
        wrong = (stored[0].buffer.cpu() != expected[0].buffer).sum()
        for have, want in zip((stored[1].key, stored[1].value), (expected[1].key, expected[1].value), strict=True):
            wrong += (have.cpu().view(torch.int16) != want.view(torch.int16)).sum()
        return float(wrong.item())

    return run


def _in_pages(name: str, shape: tuple[int, int, int], calls: Calls, dtype: torch.dtype) -> Callable[[str], float]:
    """Error: numbers that differ between a ring of its own and one in pages of the cache, as vLLM's backend keeps it:
    bytes of codes and scales after every call, and rows read back before each call, which the reference reads too.

    Every page held another request's rows, so its bytes are no numbers of the format.
    """

    def run(device: str) -> float:
        layout = PageLayout(scheme(name), *shape)
        totals = [sum(column) for column in zip(*calls, strict=True)]
        width, extra = -(-max(totals) // layout.page_size), layout.window_pages
        pages = torch.randperm(len(totals) * (width + extra) + 1)[:-1].to(torch.int32).view(len(totals), -1).to(device)
        table, rows = pages[:, extra:], torch.arange(len(totals), dtype=torch.int32, device=device)
        one, two = (PagedCache.allocate(layout, pages.numel() + 1, device, 0xFF) for _ in range(2))
        ring, own = Ring.allocate(layout, len(totals), dtype, device), RingPages(two, dtype)
        data = torch.randn(2, len(totals), max(totals), *shape[:2], device=device).to(dtype)
        lengths, wrong = torch.zeros(len(totals), dtype=torch.int32), 0
        for call in calls:
            before = lengths.clone()
            out = torch.full((2, int(before.sum()) + 1, *shape[:2]), float("nan"), dtype=dtype, device=device)
            first = (before.cumsum(0) - before).to(torch.int32)
            known = (table, before.to(device), first.to(device), out[0], out[1], int(before.max()))
            load_windowed(two, own, pages[:, :extra], *known)
            for i, (row, length) in enumerate(zip(first.tolist(), before.tolist(), strict=True)):
                if length:
                    expected = windowed.load_request(one, ring, i, length, table[i])
                    for got, want in zip(out[:, row : row + length], expected, strict=True):
                        wrong += int(((got.float() - want).abs() > 4e-3 * want.abs() + 1e-3).sum())
                        wrong += int(got.isnan().sum())
            new = [data[:, i, int(n) : int(n) + more] for i, (n, more) in enumerate(zip(lengths, call, strict=True))]
            lengths = lengths + torch.tensor(call, dtype=torch.int32)
            key, value = torch.cat(new, 1)
            starts = torch.tensor([0, *call]).cumsum(0).to(torch.int32).to(device)
            batch = (key, value, table, starts, lengths.to(device), max(call))
            store_windowed(one, ring, rows, *batch)
            store_windowed(two, own, pages[:, :extra], *batch)
            wrong += int((one.buffer[table.flatten().long()] != two.buffer[table.flatten().long()]).sum())
        return float(wrong)

    return run


SCHEMES = (
    "bf16",
    "int8_per_head",
    "int8_per_token_head",
    "int4_per_token_head",
    "int4_g32",
    "fp8_per_head",
    "fp8_per_token_head",
    "fp8_e4m3fnuz_per_head",
    "fp8_e5m2_per_head",
)


def cases() -> list[Case]:
    found = []
    for name in SCHEMES:
        values = scheme(name).key.values
        cast = (f"{values.name}:cast from fp32",) if values.is_float else ()
        read = (f"{values.name}:load",) if values.bits == 8 else ()
        for shape in SHAPES:
            label = f"{name}, {shape[0]} rows, {shape[1]} heads, D {shape[2]}, page {shape[3]}"
            found.append(Case("store", values.name, f"store {label}", _store(name, shape), needs=cast))
            found.append(Case("store", values.name, f"load {label}", _load(name, shape), needs=read))
    tokens, heads, dim, page, _ = SHAPES[1]
    other = "rows after slots" if launch.BLOCK_EARLY else "rows before slots"
    for name in ("int8_per_token_head", "int4_g32"):
        label = f"store {name}, {other}, {tokens} rows, {heads} heads, D {dim}, page {page}"
        run = _cut(not launch.BLOCK_EARLY, launch.BLOCK_HEADS, _store(name, SHAPES[1]))
        found.append(Case("store", scheme(name).key.values.name, label, run))
    # Programs of two heads, one of whose blocks is a run; the others are not, and the last is short.
    size = f"{RUNS[0]} rows, {RUNS[1]} heads, D {RUNS[2]}, page {RUNS[3]}"
    label = f"store int8_per_token_head, two heads a program, {size}"
    found.append(Case("store", "int8", label, _cut(launch.BLOCK_EARLY, 2, _store("int8_per_token_head", RUNS))))
    for layout, calls in WINDOWED_SHAPES:
        label = f"kivi4, {len(calls)} calls, {layout[0]} heads, D {layout[1]}, page {layout[2]}"
        found.append(Case("store", "int4", f"store {label}", _windowed("kivi4", layout, calls, torch.float16)))
        label = f"kivi4, newest tokens in pages, {layout[0]} heads, D {layout[1]}, page {layout[2]}"
        found.append(Case("store", "int4", f"store and load {label}", _in_pages("kivi4", layout, calls, torch.float16)))
    return found
