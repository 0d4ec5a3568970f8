"""The cases of decode attention against the fp32 reference over the same cache.

Error: ||out - ref|| / ||ref||, the worst sequence. The cache is filled by the torch reference, so a
fault of the store kernel cannot hide here; every page is poisoned before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from adrbench.kernels.case import Case
from adrbench.kernels.decode import launch, reference
from adrbench.kernels.decode.config import LaunchConfig
from adrbench.kernels.formats import scheme
from adrbench.kernels.formats.layout import PagedCache, PageLayout, Ring
from adrbench.kernels.store import reference as store
from adrbench.kernels.store import windowed


@dataclass(frozen=True)
class Shape:
    """One problem: query heads, KV heads, dimension, page size, and each sequence's length."""

    heads: int
    kv_heads: int
    dim: int
    page_size: int
    lengths: tuple[int, ...]

    def __str__(self) -> str:
        lengths = "+".join(map(str, self.lengths))
        return f"{self.heads}/{self.kv_heads} heads, D {self.dim}, page {self.page_size}, L {lengths}"


@dataclass(frozen=True)
class Problem:
    """Random inputs of one shape, on one device."""

    q: torch.Tensor
    cache: PagedCache
    table: torch.Tensor
    lengths: torch.Tensor
    scales: dict[str, torch.Tensor]
    key: list[torch.Tensor]
    value: list[torch.Tensor]
    ring: Ring | None = None
    rows: torch.Tensor | None = None

    def attend(self, config: LaunchConfig | None) -> torch.Tensor:
        """The kernel's output, written over NaN."""
        out = torch.full_like(self.q, float("nan"))
        scale = self.q.shape[2] ** -0.5
        if self.ring is None or self.rows is None:
            launch.decode(self.q, self.cache, self.table, self.lengths, scale, **self.scales, out=out, config=config)
        else:
            launch.decode_windowed(
                self.q, self.cache, self.ring, self.rows, self.table, self.lengths, scale, out=out, config=config
            )
        return out

    def expected(self) -> torch.Tensor:
        """fp32 attention over what the cache (and the ring) holds."""
        scale = self.q.shape[2] ** -0.5
        if self.ring is None or self.rows is None:
            return reference.decode(self.q, self.cache, self.table, self.lengths, scale, **self.scales)
        outs = []
        for index, (row, length) in enumerate(zip(self.rows.tolist(), self.lengths.tolist(), strict=True)):
            key, value = windowed.load_request(self.cache, self.ring, row, length, self.table[index])
            outs.append(reference.attend(self.q[index], key, value, scale))
        return torch.stack(outs)


def build(name: str, shape: Shape, dtype: torch.dtype, device: str, fill: int = 0xA5) -> Problem:
    """Fill a shuffled cache, poisoned with byte ``fill``, of scheme ``name`` with random rows, some outliers."""
    layout = PageLayout(scheme(name), shape.kv_heads, shape.dim, shape.page_size)
    per_sequence = [-(-length // shape.page_size) for length in shape.lengths]
    width, pages = max(1, *per_sequence), sum(per_sequence) + 3
    order = torch.randperm(pages).to(torch.int32)
    # Entries past a sequence's pages point far outside the cache: reading through one is a fault.
    table = torch.full((len(shape.lengths), width), 1 << 24, dtype=torch.int32)
    cache, start = PagedCache.allocate(layout, pages, device, fill), 0
    key, value, slots = [], [], []
    for index, length in enumerate(shape.lengths):
        table[index, : per_sequence[index]] = order[start : start + per_sequence[index]]
        start += per_sequence[index]
        rows = torch.randn(2, length, shape.kv_heads, shape.dim, device=device)
        rows *= 1 + 3 * (torch.rand(2, length, shape.kv_heads, 1, device=device) > 0.97)
        key.append(rows[0].to(dtype).float())
        value.append(rows[1].to(dtype).float())
        slots.append(reference.slots_of(table[index], length, shape.page_size).to(device))
    scales = {}
    if layout.scheme.is_static:
        top = layout.scheme.key.values.maximum
        for side, rows_of in (("key_scale", key), ("value_scale", value)):
            scales[side] = torch.cat(rows_of).abs().amax((0, 2)).clamp(min=1e-3) / top
    ring, rows = None, None
    if layout.windowed:
        order = torch.randperm(len(shape.lengths) + 1)[: len(shape.lengths)]
        ring, rows = Ring.allocate(layout, len(order) + 1, dtype, device), order.to(torch.int32).to(device)
        for index, row in enumerate(order.tolist()):
            windowed.store_request(cache, ring, row, key[index], value[index], table[index].to(device))
    else:
        store.store(cache, torch.cat(key), torch.cat(value), torch.cat(slots), **scales)
    q = torch.randn(len(shape.lengths), shape.heads, shape.dim, device=device).to(dtype)
    lengths = torch.tensor(shape.lengths, dtype=torch.int32, device=device)
    return Problem(q, cache, table.to(device), lengths, scales, key, value, ring, rows)


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """Worst over sequences of ||out - expected|| / ||expected||; an empty sequence must be zero."""
    difference = (out.float() - expected).flatten(1).norm(dim=1)
    size = expected.flatten(1).norm(dim=1)
    return float((difference / torch.where(size > 0, size, torch.ones_like(size))).max().item())


def run(name: str, shape: Shape, config: LaunchConfig | None, dtype: torch.dtype) -> Callable[[str], float]:
    """A case's function."""

    def error(device: str) -> float:
        problem = build(name, shape, dtype, device)
        return relative_error(problem.attend(config), problem.expected())

    return error


ODD_LENGTHS = (1, 16, 17, 63, 65, 0, 130)

SHAPES = (
    (Shape(4, 1, 128, 16, (37, 5)), LaunchConfig(64, 4, 3, 1)),
    (Shape(6, 1, 64, 64, ODD_LENGTHS), LaunchConfig(64, 4, 3, 2)),
    (Shape(6, 1, 256, 784, (785, 100)), LaunchConfig(64, 4, 3, 4)),
)

TOLERANCES = {"int8": 2e-3, "int4": 2e-3, "bf16": 6e-3, "fp8_e4m3fn": 8e-3, "fp8_e4m3fnuz": 8e-3, "fp8_e5m2": 3e-2}
"""Rounding of q and P to two codes each, of the output to 16 bit, and of fp8 sums in the matrix unit."""

ONE_CODE = {"int4_g32": 4e-2}
"""Schemes whose P has one code: 0.03 was seen where outliers set the largest weight; storage alone costs 0.08."""


UNPACKED = 4e-3
"""Codes and P in fp16: one rounding each, of the output to 16 bit, and of a window's rows."""


def tolerance(name: str, config: LaunchConfig | None = None) -> float:
    """Largest relative error of a scheme's decode against fp32 over the same cache."""
    if scheme(name).depends_on_length or (config is not None and config.kernel != ""):
        return UNPACKED
    return ONE_CODE.get(name, TOLERANCES[scheme(name).key.values.name])


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


GROUPS_OF_32 = LaunchConfig(32, 1, 3, 2, "unpacked")
UNPACKED_CASES = (
    ("int4_per_token_head", Shape(4, 1, 128, 16, (37, 5)), LaunchConfig(64, 2, 3, 1, "unpacked")),
    ("int4_per_token_head", Shape(6, 1, 64, 784, (785, 100)), LaunchConfig(32, 1, 3, 4, "unpacked")),
    ("int4_g32", Shape(6, 1, 64, 48, ODD_LENGTHS), GROUPS_OF_32),
    ("int4_g32", Shape(6, 1, 256, 784, (785, 100)), GROUPS_OF_32),
    ("kivi4", Shape(6, 1, 64, 32, (1, 129, 161, 257, 0)), GROUPS_OF_32),
    ("kivi4", Shape(4, 1, 128, 96, (128, 300, 159)), GROUPS_OF_32),
)
"""What the other cases' launches do not reach: codes unpacked to fp16, and 16-bit windows beside them."""

PIECES = LaunchConfig(64, 4, 3, 3, forms=("pieces",))
FORM_CASES = (
    # Whole tiles and pieces, in several tiles of pieces; sequences that end inside a piece, a tile, the first tile.
    ("int4_per_token_head", Shape(4, 1, 64, 80, (80 * 5 + 70, 63, 0, 81, 80, 64)), PIECES),
    ("int4_per_token_head", Shape(4, 1, 64, 16, (16 * 7 + 3, 1, 0, 64, 65)), PIECES),
    ("int8_per_token_head", Shape(6, 1, 64, 144, (144 * 2 + 130, 128)), PIECES),
    ("int4_g32", Shape(6, 1, 128, 64, (130, 0, 33)), LaunchConfig(32, 1, 3, 2, "unpacked", forms=("chain", "lazy"))),
    ("kivi4", Shape(6, 1, 64, 64, (300, 129)), LaunchConfig(32, 1, 3, 2, "unpacked", forms=("lazy",))),
)
"""Forms of kernels that no table has yet."""


def unpacked_cases() -> list[Case]:
    return [
        Case("decode", scheme(name).key.values.name,
             f"decode {name} {'+'.join((config.kernel, *config.forms))}, {shape}",
             run(name, shape, config, torch.float16), tolerance(name, config),
             ("fp16:dot",) if config.kernel else ("int8:dot",))
        for name, shape, config in (*UNPACKED_CASES, *FORM_CASES)
    ]  # fmt: skip


def cases() -> list[Case]:
    found = unpacked_cases()
    for name in SCHEMES:
        values = scheme(name).key.values
        needs: tuple[str, ...] = ("int8:dot",)
        if values.is_float:
            needs = (f"{values.name}:dot", f"{values.name}:cast from fp32")
        for shape, config in SHAPES:
            found.append(
                Case(
                    "decode",
                    values.name,
                    f"decode {name}, {shape}",
                    run(name, shape, config, torch.float16),
                    tolerance(name),
                    needs,
                )
            )
    return found
