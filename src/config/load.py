"""Load and validate a configuration: each error names file, key, value and remedy, before any job runs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adrbench.config import policy as policies
from adrbench.config import secrets
from adrbench.config.arm import Arm
from adrbench.config.decision import Decision, Facts, Strategy, model_of
from adrbench.config.files import ConfigError, read_yaml
from adrbench.config.host_cpu import for_this_host
from adrbench.config.main import Main
from adrbench.config.parse import parse, shown
from adrbench.config.platform import Platform
from adrbench.config.policy import Policy, Violation
from adrbench.device import rules
from adrbench.eval.tasks import load_tasks
from adrbench.kernels.formats import scheme as named_scheme
from adrbench.kernels.formats import schemes
from adrbench.kernels.formats.served import backend_problem
from adrbench.nearest import choice, names_of
from adrbench.paths import ROOT
from adrbench.serve.dtypes import kv_cache_dtypes

# What the server's job sets itself: an arm that set them too would listen elsewhere or leak the key.
OWNED_FLAGS = {"host", "port", "api-key", "hf-token", "served-model-name", "uds"}
# Weights in these formats are pickles, which run code when they are read.
PICKLED = {"pt", "npcache"}
OWNED_VARIABLES = {
    "VLLM_API_KEY",
    "VLLM_HOST_IP",
    "VLLM_RPC_BASE_PATH",
    "PYTHONPATH",
    "ADRBENCH_API_KEY",
    "ADRBENCH_PLUGIN",
    "OPENAI_API_KEY",
}
# Values of variables that our plugin reads in a server (serve/cpu_products.py, which needs torch).
PLUGIN_CHOICES = {"ADRBENCH_CPU_PRODUCTS": ("torch", "fp32")}


@dataclass(frozen=True)
class Run:
    """A validated configuration: the main file, the platform, all policies, the decisions to render.

    ``accuracy_platform``: the platform whose accuracy a platform of random weights shows beside its own speed.
    """

    main: Main
    platform: Platform
    policies: dict[str, Policy]
    decisions: dict[str, Decision | Facts | Strategy]
    sources: dict[str, str]
    accuracy_platform: Platform | None = None

    def serving_arms(self) -> list[Arm]:
        """Arms that are expected to start."""
        return [arm for arm in self.platform.arms if arm.expect_failure is None]

    def rounds(self, arm: Arm) -> range:
        """Round numbers of an arm, from 1."""
        serve = self.platform.serve
        more = serve.baseline_rounds if arm.baseline and serve.baseline_rounds else serve.rounds
        return range(1, max(more, serve.rounds) + 1)

    def python(self, role: str) -> str:
        """Absolute path of the interpreter for ``serve`` or ``eval``."""
        return absolute(getattr(self.platform, role).python)

    def violations(self, arm: Arm, policy: str) -> list[Violation]:
        return policies.violations(self.policies[policy], self.platform, arm, self._model_config())

    def _model_config(self) -> dict[str, Any] | None:
        """config.json of a named model folder, where it is on this host; the model job checks it in any case."""
        path = self.platform.model.path
        file = Path(absolute(path)) / "config.json" if path else None
        try:
            return dict(json.loads(file.read_text(encoding="utf-8"))) if file and file.is_file() else None
        except (OSError, ValueError):
            return None


def absolute(path: str) -> str:
    """A path of the configuration: absolute or a bare program name as it is, else below the project folder."""
    if "/" not in path:
        return path
    return path if Path(path).is_absolute() else str(ROOT / path)


def _check_arm(run: Run, arm: Arm, file: str) -> list[str]:
    """Problems of one expanded arm."""
    where, problems, platform = f"{file}: arms[{arm.name}]", [], run.platform
    if not arm.outside_policy:
        problems += [
            f"{where}: {broken.where} is forbidden by policy `{platform.policy}` ({broken.rule}): "
            f"{broken.reason_en}; remove it, or set `outside_policy: true` to measure an arm that cannot win"
            for broken in run.violations(arm, platform.policy)
        ]
    known = kv_cache_dtypes(run.python("serve"), platform.serve.vllm_version)
    if known and arm.kv_cache_dtype not in known and arm.expect_failure is None:
        problems.append(
            f"{where}.kv_cache_dtype: {arm.kv_cache_dtype!r} does not exist in vLLM {platform.serve.vllm_version}; "
            f"allowed are {', '.join(known)}"
        )
    problems += [f"{where}.{problem}" for problem in _against_rules(platform, arm)]
    for setting in policies.settings(platform.serve.args + policies.arm_flags(arm)):
        if setting.path[0] in OWNED_FLAGS:
            problems.append(f"{where}: {setting.where} belongs to the job (loopback, its own port and key); remove it")
        if setting.path[0] == "load-format" and platform.model.source == "shape":
            problems.append(f"{where}: {setting.where} belongs to the job where model.source is shape; remove it")
        if setting.path[0] == "load-format" and setting.value in PICKLED:
            problems.append(f"{where}: {setting.where} reads pickled weights, which run code; use safetensors")
    for name in OWNED_VARIABLES & set(platform.serve.env | arm.env):
        problems.append(f"{where}.env.{name}: this variable belongs to the job; remove it")
    for name, allowed in PLUGIN_CHOICES.items():
        said = (platform.serve.env | arm.env).get(name, "")
        if said and said not in allowed:
            problems.append(f"{where}.env.{name}: {said!r} is unknown; use {' or '.join(allowed)}, or remove it")
    if arm.plugin and arm.plugin.mechanism == "L3" and not arm.plugin.backend:
        problems.append(f"{where}.plugin.backend: L3 needs the backend to override, such as CPU_ATTN or CUSTOM")
    problems += [f"{where}.plugin.scheme: {problem}" for problem in _custom_problems(platform, arm)]
    if arm.plugin and arm.plugin.mechanism == "L2" and not arm.plugin.priority:
        problems.append(f"{where}.plugin.priority: L2 needs the backends to try first")
    problems += [f"{where}.{problem}" for problem in _kv_simulation_problems(platform, arm)]
    problems += [f"{where}.{problem}" for problem in _refusal_problems(platform, arm)]
    return problems


def _refusal_problems(platform: Platform, arm: Arm) -> list[str]:
    """What is wrong with the texts that a server must refuse to start with."""
    problems = []
    if (needs := arm.cpu_needs) is not None:
        reasons = {
            "is for platforms of vendor `cpu` only; remove it": platform.device.vendor != "cpu",
            "the baseline has to start on every host; remove it": arm.baseline,
        }
        problems += [f"cpu_needs: {reason}" for reason, holds in reasons.items() if holds]
    texts = {"expect_failure": arm.expect_failure, "cpu_needs.refusal": needs.refusal if needs else None}
    for key, said in texts.items():
        if said is None:
            continue
        try:
            if re.search(said, ""):
                problems.append(f"{key}: {said!r} fits any text; name the text that vLLM must print")
        except (re.error, RecursionError, OverflowError) as error:
            problems.append(f"{key}: {shown(said)} is not a regular expression ({error})")
    return problems


def _custom_problems(platform: Platform, arm: Arm) -> list[str]:
    """What keeps the backend CUSTOM from serving the scheme that an arm names."""
    if arm.plugin is None or arm.plugin.scheme is None:
        return []
    problems = []
    if arm.plugin.backend != "CUSTOM":
        problems.append(f"only backend CUSTOM stores schemes, not {arm.plugin.backend!r}")
    if arm.plugin.scheme not in schemes():
        return [*problems, f"{arm.plugin.scheme!r} is unknown; allowed are {', '.join(schemes())}"]
    if arm.scheme not in (None, arm.plugin.scheme):
        problems.append(f"{arm.plugin.scheme!r} is stored, but `scheme` says {arm.scheme!r}; leave `scheme` out")
    scheme = named_scheme(arm.plugin.scheme)
    if problem := backend_problem(scheme):
        can = ", ".join(name for name in schemes() if backend_problem(named_scheme(name)) is None)
        problems.append(f"backend CUSTOM cannot serve it ({problem}); it can serve {can}")
    elif scheme.depends_on_length and not _caches_no_prefixes(platform, arm):
        problems.append(f"{arm.plugin.scheme} {RECENT}")
    return problems


RECENT = (
    "keeps the newest tokens in 16 bit, so a cached prefix would be recent for one request and old for another; add "
    "--no-enable-prefix-caching to `serve.args` or the arm"
)


def _caches_no_prefixes(platform: Platform, arm: Arm) -> bool:
    flags = {s.path[0] for s in policies.settings(platform.serve.args + policies.arm_flags(arm))}
    return "no-enable-prefix-caching" in flags


def _kv_simulation_problems(platform: Platform, arm: Arm) -> list[str]:
    """What keeps a declared KV scheme from being simulated."""
    wanted = arm.kv_simulation
    if wanted is None:
        return []
    try:
        scheme = named_scheme(wanted.scheme)
    except KeyError:
        return [f"kv_simulation.scheme: {wanted.scheme!r} is unknown; {choice(wanted.scheme, list(schemes()))}"]
    try:
        scheme = scheme.with_parameters(wanted.parameters)
    except ValueError as error:
        return [f"kv_simulation.parameters: {error}"]
    problems = []
    if arm.kv_cache_dtype != "auto":
        problems.append(
            f"kv_cache_dtype: {arm.kv_cache_dtype!r} with `kv_simulation` would quantise twice; leave it `auto`"
        )
    if arm.plugin is not None and arm.plugin.scheme is not None:
        problems.append(
            f"kv_simulation: backend CUSTOM already stores {arm.plugin.scheme}; simulating another scheme there "
            "would quantise twice; remove one of them"
        )
    if arm.scheme not in (None, wanted.scheme):
        problems.append(
            f"kv_simulation.scheme: {wanted.scheme!r} is simulated, but `scheme` says {arm.scheme!r}; leave it out"
        )
    own = f"results/{platform.name}/calibrate.json"
    if wanted.scales == own and platform.calibrate is None:
        problems.append(f"kv_simulation.scales: {own} is made by the section `calibrate`, which {platform.name} lacks")
    others = [arm.kv_simulation for arm in platform.arms if arm.kv_simulation and arm.kv_simulation.scales == own]
    if wanted.scales == own and any(o.scheme == wanted.scheme and o.parameters != wanted.parameters for o in others):
        problems.append(
            f"kv_simulation.parameters: another arm calibrates {wanted.scheme} with other parameters; one calibration "
            "holds one set of values per scheme"
        )
    if scheme.needs_calibration and wanted.scales is None:
        problems.append(f"kv_simulation.scales: {wanted.scheme} has static scales; name the calibration evidence")
    if scheme.depends_on_length and not _caches_no_prefixes(platform, arm):
        problems.append(f"kv_simulation.scheme: {wanted.scheme} {RECENT}")
    return problems


def _against_rules(platform: Platform, arm: Arm) -> list[str]:
    """What the architecture's rule set (device/rules.py) says must fail, and the arm does not expect to."""
    if arm.expect_failure is not None:
        return []
    problems, arch = [], platform.device.arch
    if arm.attention_backend and arm.attention_backend != "CUSTOM":
        outcome = rules.backend(arch, arm.attention_backend, aiter=True)
        if outcome.outcome == "refused":
            problems.append(
                f"attention_backend: {arm.attention_backend!r} is refused on {arch} ({outcome.reason}); set "
                "`expect_failure` to that text to test that it is, or leave the arm out"
            )
    dtype = rules.kv_dtype(arch, arm.kv_cache_dtype, backend_name=arm.attention_backend, offered=(arm.kv_cache_dtype,))
    if dtype.outcome == "refused":
        problems.append(f"kv_cache_dtype: {arm.kv_cache_dtype!r} fails on {arch}: {dtype.reason}")
    return problems


def context_limit(args: list[str]) -> int | None:
    """Value of ``--max-model-len`` in an argv, in tokens; None when it is not given."""
    for setting in policies.settings(args):
        if setting.path == ("max-model-len",) and setting.value.isdecimal():
            return int(setting.value)
    return None


def _check_lengths(platform: Platform, file: str) -> list[str]:
    limit = context_limit(platform.serve.args)
    if limit is None:
        return []
    problems = [
        f"{file}: tiers[{tier.name}]: {tier.input_tokens[1]} + {tier.output_tokens} tokens "
        f"exceed --max-model-len {limit} of serve.args"
        for tier in platform.tiers
        if tier.input_tokens[1] + tier.output_tokens > limit
    ]
    return (
        problems
        + [
            f"{file}: eval.tasks[{task.name}]: {task.length_tokens} + {task.max_new_tokens} tokens (and a chat "
            f"template) exceed --max-model-len {limit} of serve.args"
            for task in platform.eval.tasks
            if task.length_tokens + task.max_new_tokens + 64 > limit
        ]
        + _agreement_length(platform, file, limit)
    )


def _agreement_length(platform: Platform, file: str, limit: int) -> list[str]:
    section = platform.agreement
    if section is None or section.tokens + 1 <= limit:
        return []
    return [f"{file}: agreement.tokens: {section.tokens} + 1 tokens exceed --max-model-len {limit} of serve.args"]


def _known_names(main: Main, platform: Platform, file: str, source: str) -> list[str]:
    """Task classes and files of claims that there are not: found by their jobs, hours later, otherwise."""
    tasks = list(load_tasks())
    problems = [
        f"{file}: eval.tasks[{task.name}]: {task.task or task.name!r} is no task class; there are {', '.join(tasks)}"
        for task in platform.eval.tasks
        if (task.task or task.name) not in tasks
    ]
    claims = sorted(path.stem for path in (ROOT / "config/claims").glob("*.yaml"))
    return problems + [
        f"{source}: claims.files: {name!r} is no file of config/claims/; there are {', '.join(claims)}"
        for name in main.claims.files
        if name not in claims
    ]


def _check_files(values: Any, root: Path, source: str) -> None:
    """Refuse a platform or decision that has no file, before its spelling is held against a pattern.

    Raises:
        ConfigError: naming the nearest, and all that there are.
    """
    given = values if isinstance(values, dict) else {}
    adrs = given.get("adrs")
    named = [("platform", "platforms", given.get("platform"))]
    named += [("adrs", "decisions", adr) for adr in (adrs if isinstance(adrs, list) else [])]
    problems = []
    for key, folder_key, name in named:
        folder = given.get(folder_key, Main.model_fields[folder_key].default)
        if not isinstance(name, str) or not isinstance(folder, str) or "\0" in folder:
            continue
        there = names_of(root / folder)
        if there and name not in there:
            problems.append(f"{source}: {key}: {name!r} is no file of {folder}/; {choice(name, there)}")
    if problems:
        raise ConfigError("\n".join(problems))


def load_decisions(main: Main, root: Path) -> dict[str, Decision | Facts | Strategy]:
    """The decisions to render, by name.

    Raises:
        ConfigError: a file is refused, its id is not its name, or it names an ADR that is not rendered.
    """
    decisions: dict[str, Decision | Facts | Strategy] = {}
    for adr in main.adrs:
        path = f"{main.decisions}/{adr}.yaml"
        data = read_yaml(root / path)
        decisions[adr] = parse(model_of(data), data, path)
        if decisions[adr].id != adr:
            raise ConfigError(f"{path}: id: {decisions[adr].id!r} must equal the file's name {adr!r}")
    return decisions


def _accuracy_platform(main: Main, platform: Platform, file: str, root: Path) -> tuple[Platform | None, list[str]]:
    """The platform whose accuracy is shown beside this one's speed, or why there is none.

    Raises:
        ConfigError: its file is refused.
    """
    name = platform.accuracy_platform
    if name is None:
        return None, []
    # A folder of one's own may hold one platform and name a shipped one.
    folders = (root / main.platforms, ROOT / "config/platforms")
    there = {path.stem: path for folder in reversed(folders) for path in folder.glob("*.yaml")}
    if name not in there:
        known = ", ".join(sorted(there))
        return None, [f"{file}: accuracy_platform: {name!r} is no platform; there are {known}"]
    return parse(Platform, read_yaml(there[name]), f"{main.platforms}/{name}.yaml"), []


def load(values: dict[str, Any], root: Path = ROOT, source: str = "config/config.yaml") -> Run:
    """Validate the main configuration and all that it names.

    Args:
        values: content of config/config.yaml, as Snakemake merged it with --config.

    Raises:
        ConfigError: all problems found, one a line.
    """
    _check_files(values, root, source)
    main = parse(Main, values, source)
    file = f"{main.platforms}/{main.platform}.yaml"
    platform = parse(Platform, read_yaml(root / file), file)
    if platform.name != main.platform:
        raise ConfigError(f"{file}: name: {platform.name!r} must equal the file's name {main.platform!r}")
    raw = read_yaml(root / main.policies)
    if not isinstance(raw, dict):
        raise ConfigError(f"{main.policies}: a mapping of policy names is needed")
    named = {name: parse(Policy, content, f"{main.policies}: {name}") for name, content in raw.items()}
    decisions = load_decisions(main, root)
    sources = {"main": source, "platform": file, "policies": main.policies}
    run = Run(main, platform, named, decisions, sources)
    problems = [
        f"{where}: policy {name!r} is unknown; {main.policies} has {', '.join(named)}"
        for where, name in [(file, platform.policy)]
        + [(f"{main.decisions}/{d.id}.yaml", p) for d in decisions.values() for p in d.policy.values()]
        if name not in named
    ]
    if not problems:
        try:
            problems = [problem for arm in platform.arms for problem in _check_arm(run, arm, file)]
        except ValueError as error:
            problems = [f"{file}: {error}"]
    problems += _check_lengths(platform, file)
    accuracy_platform, unknown = _accuracy_platform(main, platform, file, root)
    problems += unknown
    problems += _known_names(main, platform, file, source)
    problems += secrets.problems(platform.model_dump(mode="json"), file)
    if problems:
        raise ConfigError("\n".join(problems))
    return replace(run, platform=for_this_host(platform), accuracy_platform=accuracy_platform)
