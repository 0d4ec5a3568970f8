"""The specification of one report."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from adrbench.config.decision import AnyDecision
from adrbench.config.platform import Platform
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Language = Literal["en", "zh"]


class EvidencePaths(BaseModel):
    """Evidence files by stage; None or absent where the run does not make them."""

    model_config = ConfigDict(extra="forbid")

    device: Path | None = None
    model: Path | None = None
    kernels: Path | None = None
    serve: dict[str, dict[str, dict[str, Path]]] = Field({}, description="arm -> round -> tier -> file")
    eval: dict[str, Path] = {}
    integrate: dict[str, Path] = {}
    profile: dict[str, Path] = Field({}, description="by arm, or arm/tier")
    counters: dict[str, Path] = {}
    ceiling: Path | None = None
    claims: Path | None = None
    decide: Path | None = None
    agreement: Path | None = None
    memory: Path | None = None
    calibrate: Path | None = None
    elsewhere: dict[str, Path] = Field({}, description="accuracy of another platform's model, by arm")
    history: Path | None = None
    lock: Path | None = None

    def named(self) -> dict[str, Path | None]:
        """Every file by its logical name, in the order in which a report numbers them."""
        single = (
            "decide", "history", "lock", "device", "model", "kernels", "claims", "ceiling", "memory", "agreement",
            "calibrate",
        )  # fmt: skip
        found: dict[str, Path | None] = {name: getattr(self, name) for name in single}
        found |= {f"profile/{arm}": path for arm, path in self.profile.items()}
        found |= {f"counters/{arm}": path for arm, path in self.counters.items()}
        found |= {f"integrate/{name}": path for name, path in self.integrate.items()}
        found |= {f"eval/{arm}": path for arm, path in self.eval.items()}
        found |= {f"elsewhere/{arm}": path for arm, path in self.elsewhere.items()}
        found |= {
            serve_name(arm, number, tier): path
            for arm, rounds in self.serve.items()
            for number, tiers in rounds.items()
            for tier, path in tiers.items()
        }
        return found


def serve_name(arm: str, number: str | int, tier: str) -> str:
    """Logical name of one tier's evidence; rounds are written ``1`` or ``r1`` in a specification."""
    return f"serve/{arm}/r{str(number).removeprefix('r')}/{tier}"


class Spec(BaseModel):
    """One ADR of one platform in one language.

    ``rejected`` is the folder of rejected measurements. ``languages`` are those that lie beside the
    output, for the link between them.
    """

    model_config = ConfigDict(extra="forbid")

    platform: Platform
    decision: AnyDecision
    adr: str
    language: Language
    evidence: EvidencePaths
    rejected: Path | None = None
    languages: list[Language] = []
    figures: dict[str, Path] = Field({}, description="SVG files beside the output, by name")


def explain(error: ValidationError) -> str:
    """What is wrong with a specification: one part a problem, naming the key."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
