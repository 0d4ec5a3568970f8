"""One engine step of vLLM, as its profiler annotates it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

PHASES = ("prefill", "decode", "mixed")
# Simple form: execute_context_N(tokens)_generation_M(tokens); the detailed form prefixes the total and
# writes sums of lengths behind the token counts.
STEP = re.compile(r"execute_(?:\d+_)?context_(\d+)\((?:sq)?(\d+)[^)]*\)_generation_(\d+)\((?:sq)?(\d+)[^)]*\)")


@dataclass(frozen=True)
class Step:
    """When a step began, how long it took (us), and what it worked on."""

    start_us: float
    duration_us: float
    context_requests: int
    context_tokens: int
    generation_requests: int
    generation_tokens: int

    @property
    def phase(self) -> str | None:
        """prefill, decode or mixed; None for an empty step (the engine had nothing to run)."""
        if self.context_requests:
            return "mixed" if self.generation_requests else "prefill"
        return "decode" if self.generation_requests else None

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us

    def until(self, end_us: float) -> Step:
        """The same step with another end."""
        return replace(self, duration_us=end_us - self.start_us)


def parse_step(name: str, start_us: float, duration_us: float) -> Step | None:
    """The step that an annotation names; None for any other annotation. Both of vLLM's forms are read."""
    found = STEP.fullmatch(name)
    return Step(start_us, duration_us, *(int(x) for x in found.groups())) if found else None
