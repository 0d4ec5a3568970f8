"""Decision files: question, options, gates, objective and the rule that turns evidence into a verdict."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from adrbench.config.section import MOST_ROUNDS, Name, Section, Text, check_once
from adrbench.config.strategy import Cited, SchemeOption, TeamRule
from pydantic import Field, field_validator, model_validator

# Factors that vLLM resolves, and the keys of evidence that show them, the last that is given: on hybrid models vLLM
# overrides the block size.
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

    metric: Literal["output_tokens_per_s", "total_tokens_per_s", "goodput", "kv_pool_tokens", "kv_usable_tokens"] = (
        Field(description="`kv_usable_tokens`: tokens that whole sequences of a tier's mean length fill in the pool")
    )
    minimum_gain: float = Field(ge=0, description="least gain over the baseline worth a switch, as a fraction")
    gain_rule: Literal["lower_bound", "estimate"] = Field(
        "estimate",
        description="`estimate`: the measured gain reaches minimum_gain and its lower bound lies above 0 and above "
        "the A/A noise; `lower_bound`: the lower bound itself reaches minimum_gain (far more rounds)",
    )


class Adaptive(Section):
    """Rounds added until the decision stands: `snakemake decide_<adr>`."""

    first: int = Field(2, ge=2, description="rounds before the first look; each further round is followed by a look")
    most: int = Field(
        10, ge=2, le=MOST_ROUNDS, description="rounds of the full plan; the permitted error is spent over them"
    )
    budget_minutes: float | None = Field(
        None,
        gt=0,
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


class Check(Section):
    """One fact that a decision of `kind: facts` needs: a quantity looked up in evidence, held against a limit."""

    id: str
    title: Text
    quantity: Literal[
        "identified",
        "fp8_self_check",
        "bandwidth_of_datasheet",
        "weights_of_memory",
        "tiers_of_kv_pool",
        "rounds_measured",
        "completion",
        "reference_ratio",
    ] = Field(description="one of `src/decide/quantities.py`")
    at_least: float | None = Field(None, description="the quantity must be at least this")
    at_most: float | None = Field(None, description="the quantity must be at most this")
    on_failure: Literal["blocked", "proposed"] = Field(
        "blocked", description="status when it fails: the platform cannot, or something has to be cleared up first"
    )

    @model_validator(mode="after")
    def _limited(self) -> Check:
        if self.at_least is None and self.at_most is None:
            raise ValueError(f"check {self.id}: `at_least` or `at_most` is needed")
        return self


class Reference(Section):
    """Published figures that a platform's baseline is held against."""

    platforms: list[Name] = Field(description="platforms that the figures are about; elsewhere they are only quoted")
    tokens_per_s: list[float] = Field(description="one for each tier of the platform, in the order of its file")
    source: Text


class Resolution(Section):
    """An ambiguity or contradiction of the team's rules and how this file resolves it."""

    id: str = Field(description="`F8-<n>` of config/claims/open.yaml, or a word for an ambiguity")
    by: str = Field(description="key of this file that carries the choice, such as `objective.minimum_gain`")
    text: Text


Stage = Literal[
    "kernels", "serve", "eval", "integrate", "profile", "ceiling", "claims", "agreement", "memory", "calibrate"
]


class Record(Section):
    """What every ADR has."""

    id: Name
    number: str
    title: Text
    question: Text
    policy: dict[str, Name] = Field(description="policy the winner must meet: `default`, and by platform name")
    stages: list[Stage] = Field(
        ["kernels", "serve", "eval", "claims"],
        description="evidence it rests on, beside device and model; of serve and eval only that of its own arms",
    )
    together: list[Name] = Field([], description="ADRs that are published along with it")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    resolutions: list[Resolution] = Field([], description="how ambiguities and contradictions are resolved")

    @model_validator(mode="after")
    def _keys_are_there(self) -> Record:
        if "default" not in self.policy:
            raise ValueError("policy: the key `default` is needed")
        for item in self.resolutions:
            if not self.has(item.by):
                raise ValueError(f"resolutions[{item.id}].by: {item.by!r} is no key of this file")
        return self

    def has(self, dotted: str) -> bool:
        """Whether a dotted key leads somewhere in this file; a list is entered by the id or name of its entries."""
        return self.value_at(dotted) is not None

    def value_at(self, dotted: str) -> object:
        """The value at a dotted key, None where there is none."""
        node: object = self.model_dump(mode="json")
        for part in dotted.split("."):
            if isinstance(node, list):
                node = next((e for e in node if isinstance(e, dict) and part in (e.get("id"), e.get("name"))), None)
            else:
                node = node.get(part) if isinstance(node, dict) else None
        return node

    def policy_for(self, platform: str) -> str:
        return self.policy.get(platform, self.policy["default"])


class Decision(Record):
    """A choice among options that are served and compared."""

    kind: Literal["comparison"] = "comparison"
    options: list[Option] = Field(min_length=2)
    varies: Literal["block_size"] | None = Field(
        None,
        description="resolved setting that tells the options apart: one that vLLM resolves as the baseline's is none",
    )
    factors: list[str] | None = Field(
        None,
        description="in what its arms may differ, and in nothing else: `attention_backend`, `kv_cache_dtype`, "
        "`block_size` (as vLLM resolved it), `prefix_caching`, `plugin`, an argument of the arm (`--enforce-eager`, "
        "`--compilation-config.mode`), a variable (`env:NAME`, `env:NAME*`); none: whatever an arm declares",
    )
    gates: list[Gate]
    objective: Objective
    adaptive: Adaptive = Adaptive()
    mechanisms: list[Literal["flag", "priority", "register"]] = Field(
        ["flag", "priority", "register"],
        min_length=1,
        description="ways by which the winner may be locked, in order of preference; exactly one is ever active",
    )
    delta: Text | None = Field(None, description="how the accuracy difference is defined, printed in the ADR")

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

    @model_validator(mode="after")
    def _consistent(self) -> Decision:
        check_once("options", (option.name for option in self.options))
        check_once("gates", (gate.id for gate in self.gates))
        if any(gate.metric == "accuracy_delta" for gate in self.gates) != (self.delta is not None):
            raise ValueError("delta: needed with a gate on accuracy_delta, and only there")
        return self


class Facts(Record):
    """A record of facts about the platform: no options, but checks that all must pass."""

    kind: Literal["facts"]
    subject: Literal["device", "baseline"] = Field(description="what an accepted status names")
    checks: list[Check] = Field(min_length=1)
    reference: Reference | None = Field(None, description="published figures, for the check `reference_ratio`")

    @model_validator(mode="after")
    def _names_differ(self) -> Facts:
        check_once("checks", (check.id for check in self.checks))
        return self


class Strategy(Record):
    """A choice among KV schemes by the team's rules: accuracy and memory, whether or not a backend serves them yet."""

    kind: Literal["strategy"]
    options: list[SchemeOption] = Field(min_length=2)
    rules: list[TeamRule] = Field(description="the team's choice rules, in their order")
    limit: float = Field(description="largest Δ in points: non-inferiority, as G01")
    memory_at_most: float = Field(gt=0, le=1, description="largest ratio to 16 bit that is worth a change")
    delta: Text = Field(description="how the accuracy difference is defined, printed in the ADR")
    cited: list[Cited] = Field([], description="published figures beside ours")

    @model_validator(mode="after")
    def _names_known(self) -> Strategy:
        known = [option.name for option in self.options]
        check_once("options", known)
        check_once("rules", (rule.id for rule in self.rules))
        for rule in self.rules:
            named = [*rule.options, *(name for names in rule.by_arch.values() for name in names)]
            named += [rule.premise.against] if rule.premise and rule.premise.against else []
            for name in named:
                if name not in known:
                    raise ValueError(f"rules[{rule.id}]: {name!r} is no option; options are {', '.join(known)}")
        for entry in self.cited:
            if entry.option not in known:
                raise ValueError(f"cited: {entry.option!r} is no option; options are {', '.join(known)}")
        return self


AnyDecision = Annotated[Decision | Facts | Strategy, Field(union_mode="left_to_right")]
KINDS: dict[str, type[Decision] | type[Facts] | type[Strategy]] = {"facts": Facts, "strategy": Strategy}


def model_of(data: object) -> type[Decision] | type[Facts] | type[Strategy]:
    """The model that a decision file's content is to be validated with, by its `kind`."""
    return KINDS.get(str(data.get("kind")), Decision) if isinstance(data, dict) else Decision
