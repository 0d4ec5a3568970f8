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
BF16_MEDIAN, BF16_LARGEST = 2e-2, 0.25
"""Median and largest relative difference of logits between a served bf16 model and the fp32 reference on its cache.

Single steps differ by several times the median (on CPU 5e-3, the largest of 48 steps 2e-2).
"""

WORST_TOKEN = 0.05
"""Largest share of one token's values (all layers, heads and dimensions of a plane) that may differ.

A value beside a rounding boundary may fall on either side in two correct programs: one here and there. A token that
was rounded in another way, or not at all, differs nearly everywhere.
"""
NEW_ENGINE = 3
"""Exit status of proof.py: what is left of its schemes needs a new engine."""

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


def is_near(found: dict[str, Any]) -> bool:
    """Logits of a bf16 model are as near to the fp32 reference's as its rounding lets them be."""
    return bool(found["median_difference"] < BF16_MEDIAN and found["difference"] < BF16_LARGEST)


def holds(found: dict[str, Any]) -> bool:
    """Whether a cache held what a definition says."""
    return bool(found["steps"] and found["worst_token"] <= WORST_TOKEN)


def where(cache: dict[str, Any]) -> str:
    """The first step at which a cache did not hold the definition, in words."""
    if not (at := cache.get("first_wrong")):
        return ""
    step = "decode" if at["new"] - at["old"] == 1 else f"tokens {at['old']} to {at['new']}"
    return (
        f" ({step}, {at['plane']} of layer {at['layer']}, token {at['token']}, block {at['block']} offset "
        f"{at['offset']}; {at['wrong_tokens']} tokens; {at['as_written']:.0%} as the model computed them)"
    )


def verdict(spec: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What is wrong with a run of proof.py; empty where the right definition holds and no wrong one does.

    In fp32 both the cache and the logits must tell; in bf16 logits of the right definition must be near, and the
    cache tells (two INT8 schemes are nearer to each other than bf16 to fp32).
    """
    exact, problems = spec["dtype"] == "float32", []
    for label, logits in found["logits"].items():
        cache = found["cache"][label] if found["cache"] else None
        near = agrees(logits) if exact else is_near(logits)
        if label == "right":
            if not near:
                problems.append(
                    f"logits differ by {logits['difference']:.2e}, median {logits['median_difference']:.2e}"
                )
            if cache and not holds(cache):
                problems.append(f"{cache['worst_token']:.0%} of a token's cached values differ" + where(cache))
            continue
        if near and (exact or cache is None):
            problems.append(f"{label}: the logits did not tell")
        if cache and holds(cache):
            problems.append(f"{label}: the cache did not tell")
    if spec["graphs"] and not found["graphs"].get("FULL"):
        problems.append(f"no decode step replayed a full graph: {found['graphs']}")
    return problems
