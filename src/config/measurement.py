"""Sections of how a platform is measured: load, accuracy, agreement, calibration, profile, kernel tests."""

from __future__ import annotations

from typing import Annotated, Literal

from adrbench.config.section import MOST_ROUNDS, Name, Section, Seed, Variable
from pydantic import Field, field_validator, model_validator


class Tier(Section):
    """One workload."""

    name: Name
    input_tokens: tuple[int, int] = Field(description="least and greatest prompt length in tokens", strict=False)
    output_tokens: int = Field(gt=0, description="tokens generated per request (end-of-sequence ignored)")
    prompts: int = Field(ge=2, description="requests measured")
    concurrency: int = Field(gt=0, description="requests in flight at most")
    weight: float = Field(1.0, gt=0, description="weight in a decision's objective")

    @field_validator("input_tokens")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("needs 0 < least <= greatest")
        return value


class Serve(Section):
    """How arms are served and loaded."""

    python: str = Field(
        ".envs/serve/bin/python",
        min_length=1,
        description="interpreter that has vLLM; name the host's own where an image brings it",
    )
    vllm_version: str = Field("0.27.0", pattern=r"^[0-9][A-Za-z0-9_.+!-]*$", description="version that must be served")
    container: str | None = Field(None, description="image for `--sdm apptainer`; its `python` is used")
    args: list[str] = Field([], description="arguments of `vllm serve` that all arms share")
    env: dict[Variable, str] = Field(
        {}, description="environment of all arms; `{project}` stands for the project folder"
    )
    endpoint: Literal["completions", "chat"] = Field(
        "completions", description="`completions`: /v1/completions with string prompts; `chat`: /v1/chat/completions"
    )
    rounds: int = Field(1, ge=1, le=MOST_ROUNDS, description="fresh server starts per arm")
    baseline_rounds: int | None = Field(
        None, ge=1, le=MOST_ROUNDS, description="more rounds for the baseline (the A/A control)"
    )
    warmup_requests: int = Field(
        2,
        ge=0,
        description="uncounted requests before each tier: its first prompt, all at once up to its concurrency",
    )
    goodput: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="limits in ms for goodput, by `ttft`, `tpot`, `e2el`; empty: no goodput"
    )
    seed: Seed = Field(20260609, description="seed of the prompts")
    order_seed: Seed = Field(
        20260609, description="seed of the order of server starts inside a round; a change reruns nothing"
    )
    port: int | None = Field(None, ge=1024, le=65535, description="fixed port; none: a free one per server")
    ready_timeout_s: float = Field(300.0, gt=0, description="limit for a server to become ready")
    client_timeout_s: float = Field(1800.0, gt=0, description="limit for one tier's load")

    @model_validator(mode="after")
    def _known_goodput(self) -> Serve:
        unknown = set(self.goodput) - {"ttft", "tpot", "e2el"}
        if unknown:
            raise ValueError(f"goodput: {sorted(unknown)} is unknown; allowed are ttft, tpot, e2el")
        return self


class Task(Section):
    """One accuracy task."""

    name: Name
    task: Name | None = Field(
        None, description="task class of `src/eval/tasks/`, for several lengths of one class; none: the name"
    )
    samples: int = Field(ge=2, description="questions")
    length_tokens: int = Field(ge=256, description="prompt length in tokens, by the model's own tokenizer")
    max_new_tokens: int = Field(gt=0)


class Eval(Section):
    """Accuracy, measured by OpenCompass against the served endpoint."""

    python: str = Field(".envs/eval/bin/python", min_length=1, description="interpreter that has OpenCompass")
    opencompass_version: str = "0.5.4"
    tasks: list[Task] = Field([], description="at least one, but for a model of `source: shape`, which has none")
    control: bool = Field(True, description="also ask the baseline without the document, as a control")
    concurrency: int = Field(4, gt=0)
    seed: Seed = 20260609
    timeout_s: float = Field(3600.0, gt=0, description="limit for one OpenCompass run")
    data: dict[str, str] = Field(
        {}, description="folders of real test sets: `longbench`, `ruler`; empty: our own texts"
    )


class Agreement(Section):
    """Teacher-forced agreement: a text replayed on every arm, position by position against the baseline."""

    segments: int = Field(12, ge=2, description="documents replayed: the unit of the intervals")
    tokens: int = Field(2048, ge=64, description="tokens of each document, by the model's own tokenizer")
    edges: list[int] = Field(
        [256], description="positions are also shown by the number of tokens before them, split here"
    )
    top: int = Field(20, ge=1, description="most probable tokens asked at each position (`--max-logprobs` limits it)")
    chunk_tokens: int | None = Field(
        None, ge=1, description="value of `--max-num-batched-tokens` in this measurement only; none: vLLM's default"
    )
    concurrency: int = Field(1, ge=1, description="documents in flight; above 1 the A/A control is not exactly zero")
    seed: Seed = 20260609
    confidence: float = Field(0.95, gt=0.5, lt=1)
    request_timeout_s: float = Field(600.0, gt=0, description="limit for one document")

    @model_validator(mode="after")
    def _edges_split(self) -> Agreement:
        inner = [0, *self.edges, self.tokens - 1]
        if sorted(set(inner)) != inner:
            raise ValueError(f"edges {self.edges} must rise and lie between 1 and tokens - 2 ({self.tokens - 2})")
        return self


class Calibrate(Section):
    """Calibration of static KV scales from a generated text, in a plain forward pass of the model."""

    segments: int = Field(4, ge=1, description="texts")
    tokens: int = Field(1024, ge=64, description="tokens of each text")
    seed: Seed = 20260609
    dtype: Literal["bfloat16", "float16", "float32"] = Field("bfloat16", description="of the forward pass")


class Workload(Section):
    """The bounded load of a profile."""

    requests: int = Field(4, gt=0, description="requests of one window; all run at once")
    input_tokens: int = Field(512, gt=0, description="prompt length in tokens")
    output_tokens: int = Field(48, ge=16, description="tokens generated per request")
    concurrency: int = Field(4, gt=0, description="equal to `requests`, so that a decode step has one batch size")

    @model_validator(mode="after")
    def _one_batch(self) -> Workload:
        if self.requests != self.concurrency:
            raise ValueError(f"requests ({self.requests}) and concurrency ({self.concurrency}) must be equal")
        return self


class Profile(Section):
    """Profiles and measured ceilings."""

    arms: list[Name] = Field([], description="arms to profile; empty: the baseline")
    workload: Workload = Workload()
    tiers: list[Name] = Field(
        [], description="tiers whose load is profiled besides, for each of `arms`: as many requests as its concurrency"
    )
    counters: bool = Field(
        False, description="also count memory traffic by hardware counters (`ncu`, `rocprofv3`), where the tool exists"
    )
    threads: int | None = Field(None, description="threads of the bandwidth ceiling on CPU; none: as the server uses")


class Kernels(Section):
    """Kernel unit tests."""

    mode: Literal["auto", "interpreter", "device"] = Field("auto", description="where the Triton kernels run")
