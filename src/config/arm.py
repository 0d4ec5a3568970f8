"""Sections of one serving configuration: an arm, its plugin mechanism, its simulated KV scheme."""

from __future__ import annotations

from typing import Literal

from adrbench.config.section import Name, Section, Text, Variable
from adrbench.serve.spec import Expect
from pydantic import Field, model_validator


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


class CpuNeeds(Section):
    """What vLLM needs of a CPU to start an arm, and what it says where that is missing."""

    any_of: list[str] = Field(min_length=1, description="flags of /proc/cpuinfo; a CPU with one of them serves the arm")
    refusal: str = Field(
        description="regular expression: without them the server must refuse to start with this text, which is tried"
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
    env: dict[Variable, str] = Field({}, description="environment variables of the server")
    plugin: Plugin | None = None
    kv_simulation: KvSimulation | None = Field(
        None, description="KV-cache scheme that the plugin simulates (`kv_cache_dtype` stays `auto`)"
    )
    expect: Expect = Field(Expect(), description="what vLLM must have resolved, or the job fails")
    expect_failure: str | None = Field(
        None,
        description="regular expression: the server must refuse to start with this text (such an arm is smoke only)",
    )
    cpu_needs: CpuNeeds | None = Field(
        None, description="on a platform of vendor `cpu`: what the host's CPU must have, or the arm is smoke only there"
    )
    scheme: str | None = Field(
        None,
        description="row of ADR 0011's table C that this arm measures; default: that of `plugin` or `kv_simulation`",
    )
    outside_policy: bool = Field(
        False, description="measure it although the platform's policy forbids it; it cannot win"
    )

    @property
    def measures(self) -> str | None:
        """The KV scheme that this arm measures: as declared, else what `CUSTOM` stores or is simulated for it.

        Not filled into ``scheme``, which evidence keeps: naming what is said already would measure an arm again.
        """
        said = [self.plugin.scheme if self.plugin else None, self.kv_simulation.scheme if self.kv_simulation else None]
        return self.scheme or next((name for name in said if name), None)


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
