"""Documents generated from the configuration's models: JSON Schemas, a commented reference, the key tables.

python -m adrbench.config.documents          write them
python -m adrbench.config.documents --check  exit 1 when one differs from the models
"""

from __future__ import annotations

import json
import sys
import types
import typing
from typing import Any

from adrbench.config.decision import Decision, Facts, Strategy
from adrbench.config.main import Main
from adrbench.config.platform import Platform
from adrbench.config.policy import Policy
from adrbench.evidence import write_text
from adrbench.paths import ROOT
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

FILES: dict[str, tuple[type[BaseModel], str, str]] = {
    "main": (Main, "config/config.yaml", "What to run; edit this first."),
    "platform": (Platform, "config/platforms/NAME.yaml", "One machine class: device, model, arms, tiers, tasks."),
    "policy": (Policy, "config/policies.yaml, one entry per policy", "Constraints on serving configurations."),
    "decision": (Decision, "config/decisions/NAME.yaml", "One ADR: question, options, gates, objective."),
    "facts": (Facts, "config/decisions/NAME.yaml with `kind: facts`", "One ADR on the platform itself: checks."),
    "strategy": (Strategy, "config/decisions/NAME.yaml with `kind: strategy`", "One ADR on KV schemes: rules."),
}

INTRODUCTION = """\
# Configuration

*Generated from the models in `src/config/` by `make documents`; a test keeps it in step.*

| to add | do |
|---|---|
| an arm | an entry of `arms` in the platform's file (five lines) |
| a tier | an entry of `tiers` |
| an accuracy task | an entry of `eval.tasks`; a new kind of task is a file in `src/eval/tasks/` |
| a round | raise `serve.rounds`: the rounds that exist are kept |
| a platform | a file in `config/platforms/` (`nvidia.yaml` explains its keys); run it by \
`make reports/adr0011.md PLATFORM=NAME`, or by Snakemake's `--config platform=NAME -- TARGET`, with the dashes |
| a decision | a file in `config/decisions/`, and its name in `adrs` of `config/config.yaml` |
| an ADR on the platform itself | the same, with `kind: facts` |

Every arm is validated before anything runs: unknown keys, wrong types, flags that the platform's policy
forbids (in any spelling), KV dtypes that the vLLM version does not have. Editors that understand JSON Schema
find one per file kind in `config/schema/`. A text may be one string or `{en: ..., zh: ...}`.
"""


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Section models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def type_text(annotation: Any) -> str:
    """A type as a reader of YAML would say it."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_text(parts[0])
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("nothing" if part is type(None) else type_text(part) for part in parts)
    if origin is list:
        return f"list of {type_text(parts[0])}"
    if origin is tuple:
        return f"[{', '.join(type_text(part) for part in parts)}]"
    if origin is dict:
        return f"mapping of {type_text(parts[0])} to {type_text(parts[1])}"
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def default_text(field: Any) -> str:
    if field.default is PydanticUndefined:
        return "**needed**"
    if isinstance(field.default, BaseModel):
        return "its own defaults"
    return f"`{json.dumps(field.default, ensure_ascii=False)}`"


def sections(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all sections below it, each once, in order of appearance."""
    found = [model]
    for current in found:
        for field in current.model_fields.values():
            found += [inner for inner in models_in(field.annotation) if inner not in found]
    return found


def key_tables() -> str:
    """config/README.md: one table of keys per section."""
    parts, shown = [INTRODUCTION], set()
    for model, file, purpose in FILES.values():
        parts.append(f"\n## {file}\n\n{purpose}\n")
        for section in sections(model):
            if section in shown:
                continue
            shown.add(section)
            summary = (section.__doc__ or "").strip().splitlines()[0]
            parts.append(f"\n### {section.__name__}\n\n{summary}\n\n| key | type | default | |\n|---|---|---|---|")
            for name, field in section.model_fields.items():
                kind = type_text(field.annotation).replace("|", "\\|")
                parts.append(f"| `{name}` | {kind} | {default_text(field)} | {field.description or ''} |")
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _lines(model: type[BaseModel], depth: int) -> list[str]:
    pad, lines = "  " * depth, []
    for name, field in model.model_fields.items():
        inner = models_in(field.annotation)
        note = f"  # {field.description}" if field.description else ""
        if not inner or inner[0].__name__ == "Text":
            shown = "..." if field.default is PydanticUndefined else json.dumps(field.default, ensure_ascii=False)
            lines.append(f"{pad}{name}: {shown}{note}")
            continue
        summary = (inner[0].__doc__ or "").strip().splitlines()[0]
        lines.append(f"{pad}{name}:  # {field.description or summary}")
        below = _lines(inner[0], depth + 1)
        if typing.get_origin(field.annotation) is list:
            below = [f"{pad}  - {below[0].strip()}", *(f"  {line}" for line in below[1:])]
        lines += below
    return lines


def reference_yaml() -> str:
    """A platform file with every key, its default and its description; `...` stands for a needed value."""
    head = ["# Every key of a platform file, with its default; `...` marks what is needed. Generated; do not edit."]
    return "\n".join(head + _lines(Platform, 0)) + "\n"


def documents() -> dict[str, str]:
    """Path below the project folder -> content."""
    schemas = {
        f"config/schema/{name}.json": json.dumps(model.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
        for name, (model, _, _) in FILES.items()
    }
    return schemas | {"config/README.md": key_tables(), "config/reference.yaml": reference_yaml()}


def main() -> None:
    stale = []
    for path, content in documents().items():
        target = ROOT / path
        if target.is_file() and target.read_text(encoding="utf-8") == content:
            continue
        stale.append(path)
        if "--check" not in sys.argv:
            write_text(target, content)
    if "--check" in sys.argv and stale:
        sys.exit(f"not in step with the models: {', '.join(stale)}; run `make documents`")
    print(f"{len(documents())} documents, {len(stale)} {'stale' if '--check' in sys.argv else 'written'}")


if __name__ == "__main__":
    main()
