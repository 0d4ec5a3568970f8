"""What the bytes model says an arm does to a decode step, and whether what was measured agrees. No I/O.

An arm that moves ``arm`` bytes a step where the baseline moves ``base`` saves ``1 - arm / base`` of the
bytes. It saves at most that share of the time (a step that is all memory traffic), and as an estimate that
share of the traffic's own time: the fraction of the step that moving the baseline's bytes at the measured
ceiling takes. The model knows no other cost: converting a format on reading it is outside of it, so an arm
that is slower than the baseline contradicts the prediction rather than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from adrbench.profile.bound import Interval, interval
from adrbench.profile.model_bytes import decode_step_bytes, kv_format
from adrbench.profile.model_shape import Attention, FeedForward, LinearAttention, Shape


def shape_as_dict(shape: Shape) -> dict[str, Any]:
    """A model's shape for the evidence; :func:`shape_from_dict` reads it back."""
    data = asdict(shape)
    del data["source"]
    return data


def shape_from_dict(data: Mapping[str, Any]) -> Shape:
    """The shape that :func:`shape_as_dict` wrote.

    Raises:
        TypeError: a field is missing or unknown.
    """
    linear = data.get("linear_attention")
    return Shape(
        **{
            **data,
            "attention": Attention(**data["attention"]),
            "feed_forward": tuple(FeedForward(**part) for part in data["feed_forward"]),
            "linear_attention": LinearAttention(**linear) if linear else None,
        }
    )


def predicted_ratio(
    shape: Shape, base_dtype: str, arm_dtype: str, batch: int, context_tokens: float, traffic_share: Interval
) -> Interval:
    """Step time of an arm over the baseline's: least (all time is traffic), estimate, and most.

    Args:
        traffic_share: fraction of the baseline's step that its bytes take at the measured ceiling.

    Raises:
        ModelConfigError: a KV dtype whose storage is unknown.
    """
    contexts = [context_tokens] * batch
    base, arm = (
        decode_step_bytes(shape, contexts, kv_format(dtype, shape.weight_bytes_per_value)).total
        for dtype in (base_dtype, arm_dtype)
    )
    saved = 1 - arm / base
    ends = [1 - saved] + [1 - min(1.0, traffic_share[key]) * saved for key in ("low", "high")]
    middle = 1 - min(1.0, traffic_share["median"]) * saved
    return interval(min(ends), middle, max(ends))


def agreement(predicted: Interval, measured: Interval) -> str:
    """``agrees`` when the intervals meet, else ``slower`` or ``faster`` than predicted."""
    if measured["low"] > predicted["high"]:
        return "slower"
    return "faster" if measured["high"] < predicted["low"] else "agrees"
