"""Teacher forcing on a served model: a logits processor that makes a request say a given text.

    vllm serve MODEL --logits-processors adrbench.serve.forcing:ForceTokens --no-async-scheduling

A request with ``vllm_xargs: {"forced_tokens": "12,7,..."}`` (extra arguments hold text only) gets those
tokens, whatever the model prefers; the log probabilities that vLLM returns are taken before logits
processors, so they tell what it preferred. Unlike prompt log probabilities, every position is decoded
from the cache. Asynchronous scheduling must be off: it asks for the next token before the last is known.
"""

from __future__ import annotations

from typing import Any

from adrbench.serve.forced import ARGUMENT, forcer, parse
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor


class ForceTokens(AdapterLogitsProcessor):  # type: ignore[misc]
    """vLLM's per-request adapter around ``forcer``."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        if text := (sampling_params.extra_args or {}).get(ARGUMENT):
            parse(text)

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        text = (params.extra_args or {}).get(ARGUMENT)
        return forcer(parse(text)) if text else None
