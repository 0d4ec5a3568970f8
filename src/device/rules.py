"""What an architecture can be expected to run, as rules (claims F9.1-3): executable, not remembered.

Keyed on the architecture (``gfx942``, ``sm_90``, ``x86_64``) and never on a card's name: a "BW" is
a gfx936, an MI250X is two gfx90a. The rules follow upstream vLLM 0.18.1's code, run with a spoofed
device (claims A6); they are what a platform is *checked against*, not what is reported: reports
look up what vLLM resolved. Unverified on DCU: a vendor's fork may decide otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Vendor = Literal["cpu", "nvidia", "rocm"]
Outcome = Literal["valid", "refused", "ignored", "unproven"]

MI3XX = ("gfx942", "gfx950")
GFX9_UPSTREAM = ("gfx90a", *MI3XX)
HYGON_ARCHS = ("gfx926", "gfx928", "gfx936", "gfx938")

AITER_FA_REFUSAL = (
    "Selected backend AttentionBackendEnum.ROCM_AITER_FA is not valid for this configuration. "
    "Reason: ['compute capability not supported']"
)


@dataclass(frozen=True)
class Expectation:
    """What asking for something should do: ``reason`` is why, or the error text that a log must then show."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Fp8:
    """An 8-bit float format of a platform. ``maximum`` is the largest finite value, ``scale_maximum`` the value that
    vLLM divides the absolute maximum by (224 on fnuz, for accuracy)."""

    dtype: Literal["float8_e4m3fn", "float8_e4m3fnuz"]
    maximum: float
    scale_maximum: float


E4M3FN = Fp8("float8_e4m3fn", 448.0, 448.0)
E4M3FNUZ = Fp8("float8_e4m3fnuz", 240.0, 224.0)


def vendor(arch: str) -> Vendor:
    """Which of vLLM's platforms an architecture belongs to.

    Raises:
        ValueError: for a word that is no architecture, such as a card's marketing name.
    """
    if re.fullmatch(r"gfx[0-9a-f]{3,4}", arch):
        return "rocm"
    if re.fullmatch(r"sm_\d{2,3}", arch):
        return "nvidia"
    if arch in ("x86_64", "aarch64", "arm64", "ppc64le", "s390x", "riscv64"):
        return "cpu"
    raise ValueError(f"{arch!r} is no architecture: gfx..., sm_... or a machine such as x86_64 is expected")


def fp8(arch: str) -> Fp8:
    """The FP8 format of an architecture: fnuz on gfx94x only. gfx950, every DCU, NVIDIA and CPU use OCP's e4m3fn."""
    vendor(arch)
    return E4M3FNUZ if arch.startswith("gfx94") else E4M3FN


def candidates(arch: str, *, aiter: bool = False) -> tuple[str, ...]:
    """Attention backends worth an arm on this architecture (models without MLA), vLLM's default first.

    ``aiter`` says that aiter imports in the serving interpreter; on a DCU it must also have been proven on the card.
    """
    kind = vendor(arch)
    if kind == "cpu":
        return ("CPU_ATTN",)
    if kind == "nvidia":
        # vllm/platforms/cuda.py, the order of the automatic choice; FlashAttention needs sm_80.
        major = int(arch.removeprefix("sm_")[:-1])
        if major == 10:
            return ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION")
        return (*(("FLASH_ATTN",) if major >= 8 else ()), "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
    if arch in MI3XX:
        return ("TRITON_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "ROCM_ATTN")
    return ("TRITON_ATTN", "ROCM_ATTN", *(("ROCM_AITER_UNIFIED_ATTN",) if aiter else ()))


def backend(arch: str, name: str, *, aiter: bool = False) -> Expectation:
    """What ``--attention-backend NAME`` should do on this architecture."""
    kind = vendor(arch)
    if kind == "cpu":
        return Expectation(
            "valid" if name == "CPU_ATTN" else "ignored", "vLLM on CPU resolves CPU_ATTN whatever is asked"
        )
    if kind == "nvidia":
        if name.startswith("ROCM_") or name == "CPU_ATTN":
            return Expectation("refused", f"{name} belongs to another platform than NVIDIA")
        return Expectation("valid" if name in candidates(arch) else "unproven", "by vllm/platforms/cuda.py")
    if name == "ROCM_AITER_FA" and arch not in MI3XX:
        return Expectation("refused", AITER_FA_REFUSAL)
    if name.startswith("ROCM_AITER_") and not aiter:
        reason = "aiter does not import: selected all the same, it fails when it is first imported (FA: first decode)"
        return Expectation("refused", reason)
    if name == "ROCM_AITER_UNIFIED_ATTN" and arch not in GFX9_UPSTREAM:
        return Expectation("unproven", f"selected on {arch}, but aiter has to be proven on the card")
    if name in candidates(arch, aiter=aiter):
        return Expectation("valid", "by vllm/platforms/rocm.py")
    return Expectation("unproven", f"{name} is no candidate on {arch}")


def kv_dtype(
    arch: str, name: str, *, backend_name: str | None = None, offered: Collection[str] | None = None
) -> Expectation:
    """What ``--kv-cache-dtype NAME`` should do. ``offered`` is the serving vLLM's own list, where it was read."""
    kind = vendor(arch)
    if offered is not None and name not in offered:
        return Expectation("refused", f"this vLLM offers {', '.join(sorted(offered))}")
    if name in ("int8", "int4"):
        return Expectation("refused", f"vLLM has no {name} KV cache behind the flag: it takes a custom backend (L3)")
    if name == "auto":
        return Expectation("valid", "the model's own dtype")
    if name in ("bfloat16", "float16"):
        used = backend_name or candidates(arch)[0]
        if kind == "rocm" and used == "TRITON_ATTN":
            return Expectation(
                "refused", f"unsupported kv_cache_dtype (str), got {name}. Use auto for the model's own dtype"
            )
        return Expectation("unproven", "use auto for the model's own dtype")
    if name == "fp8_e5m2" and kind == "rocm":
        return Expectation("unproven", f"accepted, but stored as {fp8(arch).dtype}: not an e5m2 measurement")
    if name in ("fp8", "fp8_e4m3"):
        return Expectation("valid", f"stored as {fp8(arch).dtype}, one scale per tensor")
    return Expectation("unproven", "outside the rules (claims F9.3)")


def granularity(arch: str) -> str:
    """The only scale granularity that flags reach (claims F9.4)."""
    vendor(arch)
    return "per_tensor"
