"""Decision files: question, options, gates, objective and the rule that turns evidence into a verdict."""

from __future__ import annotations

import re
from typing import Literal

from adrbench.config.models import Name, Section, Text
from pydantic import Field, field_validator, model_validator

# Factors that vLLM resolves, and the keys of evidence that show them (on hybrid models the block size is overridden).
RESOLVED: dict[str, tuple[str, ...]] = {
    "attention_backend": ("attention_backend",),
    "kv_cache_dtype": ("kv_cache_dtype",),
    "block_size": ("block_size", "hybrid_block_size"),
    "prefix_caching": ("prefix_caching",),
    "plugin": ("plugin",),
}
# Arguments that change what is served rather than how: arms that differ in one answer other questions.
NO_FACTORS = (
    "model",
    "tokenizer",
    "tokenizer-mode",
    "tokenizer-revision",
    "revision",
    "code-revision",
    "hf-config-path",
    "hf-overrides",
    "chat-template",
    "chat-template-content-format",
    "default-chat-template-kwargs",
    "generation-config",
    "override-generation-config",
)


class Option(Section):
    """One option of a decision, and the arm that measures it."""

    name: str = Field(description="name in the ADR's status line")
    title: Text
    arms: list[Name] = Field(
        min_length=1, description="arms that can measure it; the first that the platform has is used"
    )
    stretch: bool = Field(False, description="a stretch option: it may win only where the others fail")


class Gate(Section):
    """One criterion that an option must meet."""

    id: str = Field(description="number of the gate in the team's documents, such as G01")
    title: Text
    metric: Literal["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "accuracy_delta", "completion"] = Field(
        description="latencies by percentile; `accuracy_delta`: baseline minus arm in points; `completion`: fraction"
    )
    percentile: Literal[50, 90, 99] | None = Field(None, description="for latencies")
    limit: float = Field(description="ratio to the baseline for latencies, points for Δ, fraction for completion")

    @model_validator(mode="after")
    def _percentile_fits(self) -> Gate:
        if self.metric.endswith("_ms") != (self.percentile is not None):
            raise ValueError(f"gate {self.id}: `percentile` is needed for a latency and only there")
        return self


class Objective(Section):
    """What the winner is best at, among the options that pass all gates."""

    metric: Literal["output_tokens_per_s", "total_tokens_per_s", "goodput", "kv_pool_tokens"]
    minimum_gain: float = Field(ge=0, description="least gain over the baseline worth a switch, as a fraction")
    gain_rule: Literal["lower_bound", "estimate"] = Field(
        "estimate",
        description="`estimate`: the measured gain reaches minimum_gain and its lower bound lies above 0 and above "
        "the A/A noise; `lower_bound`: the lower bound itself reaches minimum_gain (far more rounds)",
    )


class Adaptive(Section):
    """Rounds added until the decision stands: `snakemake decide_<adr>`."""

    first: int = Field(2, ge=2, description="rounds before the first look; each further round is followed by a look")
    most: int = Field(10, ge=2, description="rounds of the full plan; the permitted error is spent over them")
    budget_minutes: float | None = Field(
        None,
        gt=0,
        strict=False,
        description="accelerator minutes (minutes x devices, accuracy runs included) that may be spent; none: no "
        "limit; `--config budget_minutes=N` goes before it",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Adaptive:
        if self.most < self.first:
            raise ValueError(f"most ({self.most}) is less than first ({self.first}); needs first <= most")
        return self

    @property
    def looks(self) -> list[int]:
        """Rounds at which it is looked."""
        return list(range(self.first, self.most + 1))


class Resolution(Section):
    """A contradiction of the team's rules and how this file resolves it."""

    id: str
    text: Text


class Decision(Section):
    """One ADR."""

    id: Name
    number: str
    title: Text
    question: Text
    policy: dict[str, Name] = Field(description="policy the winner must meet: `default`, and by platform name")
    options: list[Option] = Field(min_length=2)
    gates: list[Gate]
    objective: Objective
    factors: list[str] | None = Field(
        None,
        description="in what its arms may differ, and in nothing else: `attention_backend`, `kv_cache_dtype`, "
        "`block_size` (as vLLM resolved it), `prefix_caching`, `plugin`, an argument of the arm (`--enforce-eager`, "
        "`--compilation-config.mode`), a variable (`env:NAME`, `env:NAME*`); none: whatever an arm declares",
    )
    confidence: float = Field(0.95, gt=0.5, lt=1)
    adaptive: Adaptive = Adaptive()
    delta: Text = Field(description="how the accuracy difference is defined, printed in the ADR")
    resolutions: list[Resolution] = Field([], description="how contradictions of the rules are resolved")

    @model_validator(mode="after")
    def _has_default_policy(self) -> Decision:
        if "default" not in self.policy:
            raise ValueError("policy: the key `default` is needed")
        return self

    @field_validator("factors")
    @classmethod
    def _known_factors(cls, value: list[str] | None) -> list[str] | None:
        for name in value or []:
            flag = name.removeprefix("--").split(".")[0]
            if name.startswith("--") and flag in NO_FACTORS:
                raise ValueError(f"{name}: arms that differ in it are never compared: it changes what is served")
            if not (name in RESOLVED or re.fullmatch(r"--[a-z0-9][a-z0-9.-]*|env:\w+\*?", name)):
                raise ValueError(
                    f"{name!r} is no factor; allowed are {', '.join(RESOLVED)}, --FLAG, env:NAME, env:NAME*"
                )
        return value

    def policy_for(self, platform: str) -> str:
        return self.policy.get(platform, self.policy["default"])
