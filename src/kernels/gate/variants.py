"""What is compiled: kernel variants as data, and the limits that each must keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One launch: scheme, query heads per KV head, dimension, page size, tile; ``kernel`` is ``decode``,
    ``unpacked``, ``pieces`` and ``chained`` (forms of these two), ``window``, ``store scattered``, ``store
    blocks``, ``store early``, ``store runs``, ``store left``, ``store newest`` or ``load``."""

    scheme: str
    group: int
    dim: int
    page: int
    tile: int = 64
    kernel: str = "decode"

    @property
    def hot(self) -> bool:
        """Whether the kernel has a loop over a sequence's cache; what a search finds in the others says nothing."""
        return self.kernel in ("decode", "unpacked", "pieces", "chained")

    @property
    def name(self) -> str:
        what = f"{self.kernel} {self.scheme}"
        if self.hot:
            decode = what if self.kernel == "decode" else f"decode {what}"
            return f"{decode}, {self.group} queries per KV head, D {self.dim}, page {self.page}, tile {self.tile}"
        return f"{what}, D {self.dim}, page {self.page}"


@dataclass(frozen=True)
class Limits:
    """What a compiled variant must keep.

    ``per_element``: lane instructions per cached element in the hot loop (AMD: vector instructions
    without matrix ones; NVIDIA: all). The budget for 8 bit is what the units can issue in the time
    that memory takes to deliver a byte, 7.3 to 7.7 on CDNA2 and CDNA3, 7.0 on H200; half of that
    for 4 bit and twice for 16 bit.
    """

    per_element: float
    registers: int


VARIANTS = (
    Variant("int8_per_token_head", 4, 128, 64),
    Variant("int8_per_token_head", 6, 256, 784),
    Variant("int8_per_head", 4, 128, 16),
    Variant("int4_per_token_head", 4, 128, 64),
    Variant("int4_per_token_head", 6, 256, 784),
    Variant("int4_g32", 4, 128, 64, tile=128),
    Variant("int4_g32", 6, 256, 784),
    Variant("bf16", 4, 128, 64),
    Variant("fp8_per_head", 4, 128, 64),
    Variant("fp8_e4m3fnuz_per_head", 4, 128, 64),
    Variant("bf16", 1, 128, 64, kernel="store scattered"),
    Variant("int8_per_token_head", 1, 256, 784, kernel="store scattered"),
    Variant("int8_per_token_head", 1, 128, 64, kernel="store blocks"),
    Variant("int8_per_head", 1, 256, 784, kernel="store blocks"),
    Variant("int4_per_token_head", 1, 128, 64, kernel="store blocks"),
    Variant("int4_g32", 1, 128, 64, kernel="store blocks"),
    Variant("int8_per_token_head", 1, 128, 64, kernel="load"),
    Variant("int4_g32", 1, 256, 784, kernel="load"),
    Variant("int4_per_token_head", 4, 128, 64, kernel="unpacked"),
    Variant("int4_per_token_head", 6, 256, 64, tile=32, kernel="unpacked"),
    Variant("int4_per_token_head", 6, 256, 784, tile=32, kernel="unpacked"),
    Variant("int4_g32", 4, 128, 64, tile=32, kernel="unpacked"),
    Variant("int4_g32", 6, 256, 64, tile=32, kernel="unpacked"),
    Variant("kivi4", 4, 128, 64, tile=32, kernel="unpacked"),
    Variant("kivi4", 6, 256, 64, tile=32, kernel="unpacked"),
    Variant("kivi4", 4, 128, 64, kernel="window"),
    Variant("kivi4", 6, 256, 64, kernel="window"),
    Variant("kivi4", 1, 128, 64, kernel="store left"),
    Variant("kivi4", 1, 256, 64, kernel="store left"),
    Variant("kivi4", 1, 128, 64, kernel="store newest"),
    Variant("int8_per_token_head", 1, 128, 64, kernel="store early"),
    Variant("int4_per_token_head", 1, 256, 64, kernel="store early"),
    Variant("int4_per_token_head", 1, 128, 64, kernel="store runs"),
    Variant("int4_per_token_head", 4, 128, 16, tile=128, kernel="pieces"),
    Variant("int4_per_token_head", 6, 256, 784, tile=128, kernel="pieces"),
    Variant("int4_g32", 6, 256, 64, tile=32, kernel="chained"),
    Variant("kivi4", 1, 128, 64, kernel="load windowed"),
)

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_90")

NO_MATRIX_UNIT = {
    ("fp8_per_head", "gfx90a"): "no fp8 matrix instruction and no e4m3fn conversion: use INT8",
    ("fp8_per_head", "gfx942"): "its fp8 is e4m3fnuz: e4m3fn is decoded in software",
    ("fp8_e4m3fnuz_per_head", "gfx90a"): "no fp8 matrix instruction: use INT8",
    ("fp8_e4m3fnuz_per_head", "gfx950"): "its fp8 is e4m3fn",
    ("fp8_e4m3fnuz_per_head", "sm_90"): "its fp8 is e4m3fn",
}
"""Pairs of scheme and target that the hardware does not serve, and why: compiled nowhere, listed as such."""


def not_served(variant: Variant, target: str) -> str | None:
    """Why a launcher does not offer a variant on a target, None where it does."""
    if variant.kernel in ("unpacked", "chained") and target.startswith("gfx") and not variant.scheme.startswith("kivi"):
        return "8-bit products need fewer instructions there: the scheme's own kernel is used"
    return NO_MATRIX_UNIT.get((variant.scheme, target))


def limits(variant: Variant, target: str) -> Limits:
    """Limits of one variant on one target."""
    nvidia = target.startswith("sm")
    registers = 255 if nvidia else 512
    if variant.scheme.startswith("kivi") and not nvidia:
        # Codes become fp16 one by one: below the 14 that 16 bit may cost, so no slower than 16 bit, with more room.
        return Limits(11.0, registers)
    if variant.scheme == "int4_g32" and variant.kernel == "decode":
        # 5 bits a value: memory allows 4.4 to 4.8, and a weight per token and group costs more than that on AMD.
        return Limits(6.0 if nvidia else 7.0, registers)
    if variant.scheme in ("int4_g32", "kivi4"):
        return Limits(4.4, registers)
    bits = 4 if variant.scheme.startswith("int4") else 16 if variant.scheme == "bf16" else 8
    return Limits({4: 3.85, 8: 7.0, 16: 14.0}[bits], registers)
