"""The problems that decode kernels are timed on, and the fp32 answer they are compared with.

Every provider sees the same keys, values and queries: rows are drawn per sequence from a generator
seeded by the sequence's number, so nothing has to be kept in 16 bit beside the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

DEVICE = "cuda"
"""Where rows are drawn and our caches lie; a test without a GPU sets another."""


@dataclass(frozen=True)
class Case:
    """``batch`` sequences of ``length`` tokens; query heads, KV heads, head dimension."""

    batch: int
    length: int
    heads: int
    kv_heads: int
    dim: int

    @property
    def name(self) -> str:
        return f"B{self.batch} L{self.length} {self.heads}/{self.kv_heads} D{self.dim}"

    @property
    def softmax_scale(self) -> float:
        return self.dim**-0.5

    def queries(self) -> torch.Tensor:
        """``[batch, heads, dim]`` bf16."""
        generator = torch.Generator(DEVICE).manual_seed(7)
        q = torch.randn(self.batch, self.heads, self.dim, device=DEVICE, generator=generator)
        return q.to(torch.bfloat16)

    def rows(self, sequence: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values ``[length, kv_heads, dim]`` bf16 of one sequence: standard normal."""
        generator = torch.Generator(DEVICE).manual_seed(1000 + sequence)
        shape = (2, self.length, self.kv_heads, self.dim)
        both = torch.randn(shape, device=DEVICE, generator=generator, dtype=torch.float32).to(torch.bfloat16)
        return both[0], both[1]

    def sequences(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        for sequence in range(self.batch):
            key, value = self.rows(sequence)
            yield sequence, key, value

    def answer(self, sequence: int) -> torch.Tensor:
        """``[heads, dim]`` fp32 attention over the unquantised rows."""
        from adrbench.kernels.decode.reference import attend

        key, value = self.rows(sequence)
        return attend(self.queries()[sequence], key, value, self.softmax_scale)

    def table(self, page_size: int) -> torch.Tensor:
        """Shuffled block table ``[batch, pages]`` int32 over a cache of just as many pages."""
        pages = -(-self.length // page_size)
        generator = torch.Generator(DEVICE).manual_seed(3)
        order = torch.randperm(self.batch * pages, device=DEVICE, generator=generator)
        return order.to(torch.int32).view(self.batch, pages).contiguous()

    def slots(self, table: torch.Tensor, sequence: int, page_size: int) -> torch.Tensor:
        from adrbench.kernels.decode.reference import slots_of

        return slots_of(table[sequence], self.length, page_size)

    def lengths(self) -> torch.Tensor:
        return torch.full((self.batch,), self.length, dtype=torch.int32, device=DEVICE)


def error(case: Case, out: torch.Tensor) -> float:
    """||out - fp32|| / ||fp32||, the worse of the first and the last sequence; NaN where not written."""
    worst = 0.0
    for sequence in {0, case.batch - 1}:
        expected = case.answer(sequence)
        got = out[sequence].float()
        value = float(((got - expected).norm() / expected.norm()).item())
        worst = value if value != value else max(worst, value)
    return worst
