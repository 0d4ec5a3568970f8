"""The parts of a strategy decision: KV schemes as options, and the team's choice rules with their premises."""

from __future__ import annotations

from typing import Literal

from adrbench.config.section import Name, Section, Text
from pydantic import Field, model_validator

Granularity = Literal["none", "per_tensor", "per_head", "per_token", "per_token_head", "group", "channel"]
Quantity = Literal["delta", "delta_over", "scale_bytes_per_token", "wide_share", "outlier_head_share"]


class SchemeOption(Section):
    """One KV scheme, and the arms that can measure it; the first that the platform has is used."""

    name: str
    title: Text
    arms: list[Name]
    granularity: Granularity = Field(description="what shares one scale")
    number_format: str = Field(description="number format of a stored value, such as `int8`")
    integration: Literal["default", "flag", "backend"] = Field(
        description="how vLLM would serve it: as it is, by `--kv-cache-dtype` (L1), or by an own backend (L3)"
    )


class Premise(Section):
    """What a rule takes for granted, as a quantity of the evidence held against a limit.

    `delta`: Δ of each option that the rule names. `delta_over`: Δ of these options minus that of `against`, paired by
    sample. `scale_bytes_per_token`: bytes of scales per token and layer. `wide_share`: share of a request of `length`
    tokens that stays in 16 bit. `outlier_head_share`: share of the KV heads that hold half of the largest key values.
    """

    quantity: Quantity
    at_least: float | None = None
    at_most: float | None = None
    against: str | None = Field(None, description="option that `delta_over` compares with")
    length: int | None = Field(None, gt=0, description="request length of `wide_share` in tokens")
    text: Text = Field(description="the premise in words, as the team states it")

    @model_validator(mode="after")
    def _complete(self) -> Premise:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("premise: exactly one of `at_least` and `at_most` is needed")
        if (self.against is not None) != (self.quantity == "delta_over"):
            raise ValueError("premise: `against` is needed with `delta_over` and only there")
        if (self.length is not None) != (self.quantity == "wide_share"):
            raise ValueError("premise: `length` is needed with `wide_share` and only there")
        return self


class TeamRule(Section):
    """One rule of the team's choice.

    `must`: its options come first, on the architectures that `by_arch` names (`default`: any other). `stretch`: its
    options win only where no `must` option passes. `exclude`: its options cannot win, unless the evidence refutes
    the premise.
    """

    id: str
    title: Text
    effect: Literal["must", "stretch", "exclude"]
    options: list[str] = Field([], description="options by name")
    granularity: Granularity | None = Field(None, description="all options of this granularity")
    by_arch: dict[str, list[str]] = Field({}, description="for `must`: options by architecture, and `default`")
    premise: Premise | None = Field(None, description="none: the rule is a preference that evidence cannot refute")

    @model_validator(mode="after")
    def _names_options(self) -> TeamRule:
        if sum([bool(self.options), self.granularity is not None, bool(self.by_arch)]) != 1:
            raise ValueError(f"rule {self.id}: exactly one of `options`, `granularity`, `by_arch` is needed")
        if self.by_arch and "default" not in self.by_arch:
            raise ValueError(f"rule {self.id}: by_arch needs the key `default`")
        return self

    def named(self, options: list[SchemeOption], arch: str) -> list[str]:
        """Options that the rule is about on an architecture."""
        if self.granularity is not None:
            return [option.name for option in options if option.granularity == self.granularity]
        return self.by_arch.get(arch, self.by_arch.get("default", [])) if self.by_arch else self.options


class Cited(Section):
    """A published figure, shown beside ours; it decides nothing."""

    option: str = Field(description="option that it is about")
    figure: Text
    source: str
