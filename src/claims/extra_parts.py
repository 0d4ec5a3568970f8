"""Parameters of the parts beside the text model: vision encoder and multi-token-prediction head.

A server with ``--language-model-only`` loads neither; without it both are in device memory. Shapes were
read in vLLM 0.18.1 (``models/qwen3_vl.py``, ``models/qwen3_5_mtp.py``).
"""

from __future__ import annotations

from typing import Any

from adrbench.profile.model_bytes import attention_parameters, feed_forward_parameters
from adrbench.profile.model_shape import ModelConfigError, Shape


def _linear(inputs: int, outputs: int) -> int:
    """A linear layer with bias."""
    return inputs * outputs + outputs


def vision_parameters(config: dict[str, Any], source: str) -> int:
    """Parameters of a Qwen-VL vision encoder: patches, positions, blocks and the merger into the text model.

    Raises:
        ModelConfigError: naming the key that the ``vision_config`` lacks.
    """

    def size(key: str) -> int:
        value = config.get(key)
        if not isinstance(value, int):
            raise ModelConfigError(f"{source}: vision_config.{key} is {value!r}, expected a count")
        return value

    width, inner = size("hidden_size"), size("intermediate_size")
    patch = _linear(size("in_channels") * size("temporal_patch_size") * size("patch_size") ** 2, width)
    norm = 2 * width
    block = 2 * norm + _linear(width, 3 * width) + _linear(width, width) + _linear(width, inner) + _linear(inner, width)
    merged = width * size("spatial_merge_size") ** 2
    merger = norm + _linear(merged, merged) + _linear(merged, size("out_hidden_size"))
    return patch + size("num_position_embeddings") * width + size("depth") * block + merger


def prediction_parameters(shape: Shape, layers: int) -> int:
    """Parameters of a multi-token-prediction head of ``layers`` full-attention layers that shares the tables.

    One projection joins hidden state and embedding; each layer has two norms, and there are three more.
    """
    hidden = shape.hidden
    layer = attention_parameters(shape.attention, hidden) + feed_forward_parameters(shape.feed_forward[0], hidden)
    return 2 * hidden * hidden + layers * (layer + 2 * hidden) + 3 * hidden
