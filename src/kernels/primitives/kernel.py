# mypy: ignore-errors
# Triton's language is not Python: annotations there are compile-time values.
"""One operation per kernel."""

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, count, SIZE: tl.constexpr):
    """Load, cast to the output's type through fp32, store."""
    o = tl.arange(0, SIZE)
    x = tl.load(x_ptr + o, mask=o < count, other=0.0).to(tl.float32)
    tl.store(y_ptr + o, x.to(y_ptr.dtype.element_ty), mask=o < count)


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c [M, N] = a [M, K] @ b [K, N], in the accumulator that the operands' type implies."""
    o_m = tl.arange(0, M)
    o_n = tl.arange(0, N)
    o_k = tl.arange(0, K)
    a = tl.load(a_ptr + o_m[:, None] * K + o_k[None, :])
    b = tl.load(b_ptr + o_k[:, None] * N + o_n[None, :])
    c = tl.dot(a, b)
    tl.store(c_ptr + o_m[:, None] * N + o_n[None, :], c.to(c_ptr.dtype.element_ty))


@triton.jit
def atomic_add_kernel(x_ptr, y_ptr, count, SIZE: tl.constexpr):
    """y[0] += each x, one atomic per element."""
    o = tl.arange(0, SIZE)
    x = tl.load(x_ptr + o, mask=o < count, other=0)
    tl.atomic_add(y_ptr + o * 0, x, mask=o < count)


@triton.jit
def atomic_max_kernel(x_ptr, y_ptr, count, SIZE: tl.constexpr):
    """y[0] = max(y[0], each x), one atomic per element."""
    o = tl.arange(0, SIZE)
    x = tl.load(x_ptr + o, mask=o < count, other=0)
    tl.atomic_max(y_ptr + o * 0, x, mask=o < count)
