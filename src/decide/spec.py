"""The specification of a decide job: one decision, one platform, and where the evidence lies."""

from __future__ import annotations

from typing import Any, Literal

from adrbench import specs
from adrbench.config.decision import Decision
from adrbench.config.section import Text
from pydantic import BaseModel, ConfigDict, Field, model_validator


class Violation(BaseModel):
    """A rule of the decision's policy that an arm breaks (``adrbench.config.policy.Violation``)."""

    model_config = ConfigDict(extra="forbid")

    where: str
    rule: str
    reason_en: str
    reason_zh: str


class ArmInfo(BaseModel):
    """What a decision needs of an arm; the platform file's other keys are welcome and kept."""

    model_config = ConfigDict(extra="allow")

    name: str
    title: Text | None = None
    baseline: bool = False
    scheme: str | None = None
    expect_failure: str | None = None


class TierInfo(BaseModel):
    """A tier and its weight in the objective."""

    model_config = ConfigDict(extra="allow")

    name: str
    weight: float = Field(1.0, gt=0)


class EvidencePaths(BaseModel):
    """Paths of evidence files. ``serve``: arm -> round -> tier -> path; the others by arm or name.

    ``serve``, ``eval``, ``integrate`` and ``noise_floor`` are read; of the others only digests enter the document.
    """

    model_config = ConfigDict(extra="forbid")

    serve: dict[str, dict[int, dict[str, str]]] = {}
    eval: dict[str, str] = {}
    integrate: dict[str, str] = {}
    profile: dict[str, str] = {}
    device: str | None = None
    model: str | None = None
    kernels: str | None = None
    ceiling: str | None = None
    claims: str | None = None
    noise_floor: str | None = None
    agreement: str | None = None
    memory: str | None = None
    calibrate: str | None = None

    def singles(self) -> list[str]:
        """The files of stages that write one for the platform."""
        files = (
            self.device, self.model, self.kernels, self.ceiling, self.claims, self.noise_floor,
            self.agreement, self.memory, self.calibrate,
        )  # fmt: skip
        return [path for path in files if path]


class ElsewhereSpec(BaseModel):
    """Accuracy runs of another platform, whose model has real weights: shown beside a record, read by no gate.

    ``baseline`` and ``titles`` are that platform's own; ``same``: arms that it declares as this platform does (backend,
    KV dtype, plugin); ``eval``: arm -> path, of the files that exist.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    title: Text
    baseline: str
    titles: dict[str, Text] = {}
    same: list[str] = []
    several_hosts: bool = False
    eval: dict[str, str]


class DecideSpec(BaseModel):
    """One decide job.

    ``policy`` names the policy that the winner must meet (default: the one that the decision names for the
    platform), ``violations`` says what each arm breaks of it. ``blocked`` says why an option (by its name) cannot run
    on the platform. ``unpaired`` names rounds of an arm that were not measured side by side with the
    others, beyond those that the start times show.

    ``gain_rule`` says what must exceed the objective's ``minimum_gain``: ``lower_bound``, the gain's
    lower bound; ``estimate``, the measured gain, whose lower bound must then exceed 0.

    ``looks``: where a run is decided repeatedly as rounds are added, the numbers of rounds at which it is
    looked at, the last being the whole plan; each look then spends its share of the error (``sequential``).

    ``random_weights``: the model's weights are made up, so that no accuracy can be measured on this platform.
    ``several_hosts``: the platform is several hosts of one kind; runs of one block are compared on one of them.
    ``elsewhere``: accuracy of another model, for information.

    ``order_seed`` shuffled the order of server starts inside each round.
    """

    model_config = ConfigDict(extra="forbid")

    platform: str
    decision: Decision
    policy: str | None = None
    violations: dict[str, list[Violation]] = {}
    arms: list[ArmInfo]
    tiers: list[TierInfo]
    evidence: EvidencePaths
    blocked: dict[str, Text] = {}
    unpaired: dict[str, list[int]] = {}
    gain_rule: Literal["lower_bound", "estimate"] = "lower_bound"
    looks: list[int] = []
    order_seed: int = 20260609
    random_weights: bool = False
    several_hosts: bool = False
    elsewhere: ElsewhereSpec | None = None

    @model_validator(mode="after")
    def _one_baseline(self) -> DecideSpec:
        if sum(arm.baseline for arm in self.arms) != 1:
            raise ValueError("arms: exactly one arm needs `baseline: true`")
        unknown = sorted(set(self.blocked) - {option.name for option in self.decision.options})
        if unknown:
            raise ValueError(f"blocked: {unknown[0]!r} is not an option of {self.decision.id}")
        return self

    @property
    def baseline(self) -> str:
        return next(arm.name for arm in self.arms if arm.baseline)


def parse_spec(raw: dict[str, Any]) -> DecideSpec:
    """The validated specification.

    Raises:
        JobError: ``spec``, naming the key, its value and what is allowed.
    """
    return specs.parse(DecideSpec, raw, "decide")
