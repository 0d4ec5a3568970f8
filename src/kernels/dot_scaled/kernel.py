# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""c = (a @ b) * row scale * column scale. Grid: (row tiles, column tiles)."""

import triton
import triton.language as tl


@triton.jit
def dot_scaled_kernel(
    a_ptr,  # [M, K]
    b_ptr,  # [N, K]: transposed, as keys lie in a cache
    sa_ptr,  # [M] fp32
    sb_ptr,  # [N] fp32
    c_ptr,  # [M, N] fp32
    M,
    N,
    K,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
):
    ZERO: tl.constexpr = 0 if tl.int32 == ACCUMULATOR else 0.0
    o_m = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    o_n = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    m_m = o_m < M
    m_n = o_n < N
    acc = tl.zeros([TILE_M, TILE_N], ACCUMULATOR)
    for start in range(0, K, TILE_K):
        o_k = start + tl.arange(0, TILE_K)
        m_k = o_k < K
        a = tl.load(a_ptr + o_m[:, None] * K + o_k[None, :], mask=m_m[:, None] & m_k[None, :], other=ZERO)
        b = tl.load(b_ptr + o_n[:, None] * K + o_k[None, :], mask=m_n[:, None] & m_k[None, :], other=ZERO)
        acc += tl.dot(a, tl.trans(b))
    sa = tl.load(sa_ptr + o_m, mask=m_m, other=0.0)
    sb = tl.load(sb_ptr + o_n, mask=m_n, other=0.0)
    c = acc.to(tl.float32) * sa[:, None] * sb[None, :]
    tl.store(c_ptr + o_m[:, None] * N + o_n[None, :], c, mask=m_m[:, None] & m_n[None, :])
