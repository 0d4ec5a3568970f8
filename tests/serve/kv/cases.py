"""What the live proofs of the simulation run: prompts, and schemes that must not agree with another's reference."""

from __future__ import annotations

from typing import Any

from adrbench.kernels.formats import scheme

# First token in the text and number of tokens, of each prompt.
SHORT, LONG = [[0, 45], [200, 100]], [[0, 45], [500, 290]]
# Two that do not fit into the pool together with what is generated, then two on used blocks.
CROWDED, AFTERWARDS = [[0, 330], [400, 330]], [[900, 130], [0, 300]]
CROWDED_TOKENS = 60
# Long enough that whole windows of every scheme complete while decoding.
DECODED_TOKENS = 170
PREEMPTED = ("kivi4", "kvquant4", "first256_fp8", "first256_int4", "int8_per_token_head", "int4_hadamard")
# A pool of 23 usable blocks.
POOL = {"num_gpu_blocks_override": 24, "block_size": 32}
ENGINE = {
    "max_model_len": 512,
    "max_num_batched_tokens": 64,  # prompts are computed in chunks, beside other requests' steps
    "max_num_seqs": 4,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
TOLERANCE = 1e-2
APART = 1e-3
# name: (scheme that vLLM simulates, what the reference does instead)
WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "another-group": ("int4_g32", "int4_g32", {"group": 64}),
    "another-axis": ("int8_per_token_head", "int8_per_head", {}),
    "keys-per-token": ("kivi4", "first256_int4", {"sink": 0}),
    "another-window": ("kivi4", "kivi4", {"residual": 64}),
    "another-end-of-the-window": ("first256_int4", "int4_g32", {}),
    "448-for-240": ("fp8_e4m3fnuz_per_token_head", "fp8_e4m3fnuz_per_token_head", {"limit": 448.0}),
    "240-for-448": ("fp8_per_token_head", "fp8_per_token_head", {"limit": 240.0}),
    "no-rotation": ("int4_hadamard", "int4_per_token_head", {}),
    "no-smoothing": ("qserve_kv4", "qserve_kv4_plain", {}),
}


def windowed(name: str) -> bool:
    """Whether a scheme keeps more than a request's first token in 16 bit for a while or for good."""
    return any(plane.sink > 1 or plane.depends_on_length for plane in (scheme(name).key, scheme(name).value))


def calibrated(name: str) -> bool:
    return scheme(name).needs_calibration or scheme(name).is_static


def settings(name: str, scales: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    """``kv_simulation`` of a scheme; ``scales``: the calibration file, for schemes that take one."""
    return {"scheme": name, "parameters": parameters or {}, "scales": scales if calibrated(name) else None}


def agrees(found: dict[str, Any]) -> bool:
    """Logits and tokens agree, and the keys and values that were rounded are those of the reference's model."""
    return bool(found["difference"] < TOLERANCE and found["same_tokens"] and found["apart"] < APART)
