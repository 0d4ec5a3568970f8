"""fp32 values as a 16-bit number format holds them, in a form that no compiler leaves out.

A cast to 16 bit and back is the plain way. Inductor of torch 2.11 drops it (``pointless_convert`` of
``_inductor/fx_passes/joint_graph.py`` removes every such pair, whatever ``emulate_precision_casts`` says), and Triton
code that it makes computes in fp32 what is declared to be 16 bit: a compiled reader then rounds nothing. So the bits
are rounded themselves, as integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DROPPED = {"bfloat16": 16, "float16": 13}
"""Bits of fp32's significand that a format does not have."""

FP16_SMALLEST_NORMAL = 2.0**-14
FP16_SUBNORMAL = 0.75
"""In fp32, values between 0.5 and 1 are 2 ** -24 apart, as fp16's subnormal values are."""


def rounded(x: torch.Tensor, name: str) -> torch.Tensor:
    """fp32 ``x``, any shape, rounded to the nearest value of ``name`` (ties to even); fp32, and -0 may become 0.

    ``name`` is that of a torch dtype: ``bfloat16`` (infinity and NaN as in a cast), ``float16`` (at most 65504 in
    magnitude, or NaN: callers clamp) or ``float32``.

    Raises:
        KeyError: another format.
    """
    import torch

    if name == "float32":
        return x
    dropped = DROPPED[name]
    bits = x.view(torch.int32)
    half = ((bits >> dropped) & 1) + ((1 << (dropped - 1)) - 1)
    near = ((bits + half) & -(1 << dropped)).view(torch.float32)
    if name == "float16":
        near = torch.where(x.abs() < FP16_SMALLEST_NORMAL, (x + FP16_SUBNORMAL) - FP16_SUBNORMAL, near)
    return torch.where(x.isnan(), x, near)
