"""Policies: their sections, and whether a serving configuration is allowed; if not, by which rule and why.

A forbidden flag is found in every spelling vLLM accepts: ``--max-num-seqs 8``, ``--max_num_seqs=8``,
an abbreviation, a dotted or JSON form (``--compilation-config.mode=0``, ``-cc '{"mode": 0}'``), and
inside a file given by ``--config``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from adrbench.config.arm import Arm
from adrbench.config.files import ConfigError, read_yaml
from adrbench.config.platform import Platform
from adrbench.config.section import Section, Text
from pydantic import Field

# Short names of vllm/engine/arg_utils.py that stand for a long flag.
SHORT = {"-q": "quantization", "-cc": "compilation-config", "-O": "optimization-level", "-ac": "attention-config",
         "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size"}  # fmt: skip


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
    forbidden_flags: list[ForbiddenFlag] = Field([])
    forbidden_env: list[ForbiddenVariable] = Field([])
    required: list[RequiredArgument] = Field([])
    unquantised_model: bool = Field(False, description="C03: the model's config.json must not be quantised")


@dataclass(frozen=True)
class Violation:
    """A rule that an arm breaks: where (the text met), the rule's number and reason in both languages."""

    where: str
    rule: str
    reason_en: str
    reason_zh: str


@dataclass(frozen=True)
class Setting:
    """One setting met in an argv: its name as a path of segments, its value as text, and where it stood."""

    path: tuple[str, ...]
    value: str
    where: str


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()


def _from_value(path: tuple[str, ...], value: Any, where: str) -> Iterator[Setting]:
    """A value and, where it is JSON or a mapping, every setting inside it."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with contextlib.suppress(json.JSONDecodeError):
            try:
                value = json.loads(value)
            except RecursionError:
                raise ValueError(f"{where[:80]}...: too many levels within each other to be checked") from None
    if isinstance(value, dict):
        yield Setting(path, json.dumps(value), where)
        for key, inner in value.items():
            yield from _from_value((*path, *(_plain(part) for part in str(key).split("."))), inner, where)
    else:
        yield Setting(path, str(value).lower() if isinstance(value, bool) else str(value), where)


def _from_file(name: str, where: str) -> Iterator[Setting]:
    """Settings of a YAML file given by --config."""
    try:
        content = read_yaml(Path(name))
    except ConfigError as error:
        raise ValueError(f"{where}: the file cannot be read ({error}); it must be checked against the policy") from None
    if not isinstance(content, dict | None):
        raise ValueError(f"{where}: a mapping of arguments is needed, found {type(content).__name__}")
    for key, value in (content or {}).items():
        yield from _from_value(tuple(_plain(part) for part in str(key).split(".")), value, f"{where}: {key}")


def settings(argv: list[str]) -> Iterator[Setting]:
    """Every setting of an argv of ``vllm serve``, in any of its spellings.

    Raises:
        ValueError: a file named by --config cannot be read.
    """
    index = 0
    while index < len(argv):
        token = argv[index]
        index += 1
        if not token.startswith("-") or token == "--":
            continue
        flag, equals, value = token.partition("=")
        short = next((s for s in sorted(SHORT, key=len, reverse=True) if flag == s or flag.startswith(s + ".")), None)
        if not short and flag.startswith("-O") and flag[2:].isdigit():
            flag, equals, value = "--optimization-level", "=", flag[2:]
        elif short:
            flag = "--" + SHORT[short] + flag[len(short) :]
        elif not flag.startswith("--") and flag[:2] in SHORT:
            # A value attached to its short option: -qfp8
            flag, equals, value = "--" + SHORT[flag[:2]], "=", flag[2:]
        where = token
        if not equals and index < len(argv) and (not argv[index].startswith("-") or argv[index].startswith("-{")):
            value, equals = argv[index], "="
            where = f"{token} {value}"
            index += 1
        path = tuple(_plain(part) for part in flag.split("."))
        if path == ("config",):
            yield from _from_file(value, where)
        else:
            yield from _from_value(path, value if equals else "true", where)


def _names(setting: Setting, flag: str) -> bool:
    """Whether a setting is ``flag``: as the flag itself or an abbreviation that argparse would take, or as a key
    deeper in a configuration."""
    path, wanted = setting.path, tuple(_plain(part) for part in flag.split("."))
    if len(wanted) > 1:
        return len(path) == len(wanted) and wanted[0].startswith(path[0]) and path[1:] == wanted[1:]
    return path[-1] == wanted[0] or (len(path) == 1 and wanted[0].startswith(path[0]))


def _forbidden(found: list[tuple[Setting, bool]], rule: ForbiddenFlag) -> Iterator[Violation]:
    for setting, of_arm in found:
        if rule.scope == "arm" and not of_arm:
            continue
        if rule.values is not None and setting.value.lower() not in rule.values:
            continue
        if any(_names(setting, flag) for flag in rule.flags):
            yield Violation(setting.where, rule.rule, rule.reason.en, rule.reason.zh)


def arm_flags(arm: Arm) -> list[str]:
    """The arguments that an arm adds to the platform's."""
    flags = [] if arm.attention_backend is None else ["--attention-backend", arm.attention_backend]
    # `auto` is vLLM's default; naming it explicitly is refused by nothing and says what was asked.
    flags += ["--kv-cache-dtype", arm.kv_cache_dtype]
    flags += [] if arm.block_size is None else ["--block-size", str(arm.block_size)]
    return flags + arm.args


def trusts_remote_code(argv: list[str]) -> bool:
    """Whether an argv of ``vllm serve`` lets the model folder's own Python code run."""
    return any(
        _names(setting, "trust-remote-code") and setting.value.lower() not in ("false", "0")
        for setting in settings(argv)
    )


def violations(
    policy: Policy, platform: Platform, arm: Arm, model_config: dict[str, Any] | None = None
) -> list[Violation]:
    """All rules of a policy that an arm of a platform breaks; empty when it is allowed.

    Args:
        model_config: the model's config.json where it is at hand, for the rule against quantised checkpoints.
    """
    found = [(setting, False) for setting in settings(platform.serve.args)]
    found += [(setting, True) for setting in settings(arm_flags(arm))]
    broken = [v for rule in policy.forbidden_flags for v in _forbidden(found, rule)]
    environment = platform.serve.env | arm.env
    for rule in policy.forbidden_env:
        for name in rule.names:
            if name in environment and (rule.values is None or environment[name] in rule.values):
                broken.append(Violation(f"env.{name}={environment[name]}", rule.rule, rule.reason.en, rule.reason.zh))
    for need in policy.required:
        given = [setting.value for setting, _ in found if _names(setting, need.flag)]
        if not given or any(value != need.value for value in given):
            broken.append(
                Violation(
                    f"--{need.flag} {given[-1] if given else '(absent)'}", need.rule, need.reason.en, need.reason.zh
                )
            )
    if policy.unquantised_model and model_config and "quantization_config" in model_config:
        broken.append(
            Violation("config.json: quantization_config", "C03", "the checkpoint is quantised", "权重文件已量化")
        )
    return broken
