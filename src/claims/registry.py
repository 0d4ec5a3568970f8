"""The register of checks: a check is a function, found by name, that says what is the case.

A check never judges. It returns a ``Finding`` with named values, and the claim's ``expect`` is
compared with them; so one check serves true and false statements, and prints the right value
beside a wrong one. Adding a check is adding one decorated function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

if TYPE_CHECKING:
    from adrbench.claims.tree import Tree

Kind = Literal["source", "behaviour", "derived", "format", "datasheet", "literature", "measured"]

#: Kinds whose answer depends on the vLLM version: they are repeated for every tree.
VERSIONED: tuple[Kind, ...] = ("source", "behaviour")


class Text(BaseModel):
    """One text in both languages of the reports."""

    model_config = ConfigDict(extra="forbid")

    en: str
    zh: str


class Unverifiable(Exception):
    """A check cannot be carried out here; the text completes "unverified (...)"."""

    def __init__(self, en: str, zh: str = ""):
        super().__init__(en)
        self.needs = Text(en=en, zh=zh or en)


def needs(what: Text, en: str = "", zh: str = "") -> Unverifiable:
    """ "Needs ...", in both languages, with a remark on what there is."""
    return Unverifiable(f"needs {what.en}{en}", f"需要{what.zh}{zh or en}")


class Prober(Protocol):
    """Runs vLLM's platform code with a pretended architecture; see ``behaviour.Probe``."""

    def rows(self, tree: Tree) -> dict[str, Any]: ...


@dataclass
class Context:
    """What a check may look at. Parts that a check does not need may be absent."""

    data: Path
    tree: Tree | None = None
    probe: Prober | None = None
    evidence_root: Path | None = None
    torch_python: str | None = None

    def need_torch(self) -> str:
        """An interpreter that has torch."""
        if self.torch_python is None:
            raise Unverifiable("needs an interpreter with torch (serve_python)", "需要带 torch 的解释器 (serve_python)")
        return self.torch_python

    def need_tree(self) -> Tree:
        if self.tree is None:
            raise Unverifiable("needs a vLLM tree", "需要 vLLM 源码树")
        return self.tree


@dataclass(frozen=True)
class Finding:
    """What a check found: ``values`` by field name, one line of evidence, and where it was read.

    ``moved`` says that the thing is not where the claim puts it but is at ``where``: what would be a
    false claim is then a moved one.
    """

    values: dict[str, Any]
    text: str
    where: str = ""
    moved: bool = False


Function = Callable[..., Finding]


@dataclass(frozen=True)
class Check:
    name: str
    kind: Kind
    gives: tuple[str, ...]
    function: Function
    arguments: type[BaseModel] = field(repr=False)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments with their types checked.

        Raises:
            ValueError: naming the argument that is unknown, missing or of the wrong type.
        """
        try:
            model = self.arguments.model_validate(arguments)
        except ValidationError as error:
            first = error.errors()[0]
            allowed = ", ".join(self.arguments.model_fields)
            where = ".".join(map(str, first["loc"]))
            raise ValueError(
                f"argument {where!r} of check {self.name!r}: {first['msg']} (arguments: {allowed})"
            ) from None
        return {name: getattr(model, name) for name in self.arguments.model_fields}

    def run(self, context: Context, arguments: dict[str, Any]) -> Finding:
        return self.function(context, **self.validate(arguments))


CHECKS: dict[str, Check] = {}


def check(name: str, kind: Kind, gives: str) -> Callable[[Function], Function]:
    """Register a check under ``name``; ``gives`` lists the fields of its finding, parted by spaces.

    The decorated function takes a ``Context`` and then the claim's arguments by keyword; their
    annotations are what the claim file is validated against.
    """

    def register(function: Function) -> Function:
        if name in CHECKS:
            raise ValueError(f"check {name!r} is registered twice")
        parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        fields: dict[str, Any] = {
            p.name: (p.annotation, ... if p.default is inspect.Parameter.empty else p.default) for p in parameters
        }
        model = create_model(f"{name}-arguments", __config__=ConfigDict(extra="forbid"), **fields)
        CHECKS[name] = Check(name, kind, tuple(gives.split()), function, model)
        return function

    return register
