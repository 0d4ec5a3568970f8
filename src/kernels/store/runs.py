# mypy: ignore-errors
# ruff: noqa: RET505
# Triton's language is not Python: annotations there are compile-time values.
"""A block of 32 tokens that begins with its program, stored without masks, several heads after one another.

Nothing is searched and nothing is masked; the slots are waited for once, and a head's rows are loaded while the one
before is encoded. Every other block takes ``kernel.store_block``.
"""

import triton
import triton.language as tl


@triton.jit
def is_run(slot, first_slot, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Whether slots [BLOCK] are one whole block of the cache, in order."""
    o_i = tl.arange(0, BLOCK)
    begin = first_slot % PAGE
    whole = (first_slot >= 0) & (begin % BLOCK == 0) & (begin + BLOCK <= PAGE)
    return whole & (tl.min((slot == first_slot + o_i).to(tl.int32), 0) == 1)


@triton.jit
def unmasked_rows(x_ptr, rows, D: tl.constexpr, PACKED: tl.constexpr):
    """As ``kernel.rows_at``."""
    ROW: tl.constexpr = D // 2 if PACKED else D
    p_x = x_ptr + rows[:, None] + tl.arange(0, ROW)[None, :]
    x = tl.load(p_x)
    if PACKED:
        return x, tl.load(p_x + ROW)
    else:
        return x, x
