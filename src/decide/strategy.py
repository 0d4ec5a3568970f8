"""The verdict of a strategy: which KV scheme the team's rules choose, given accuracy and memory.

1. Every rule's premise is held against the evidence. An exclusion whose premise is refuted for an option is lifted for
   it; undecided or unmeasured ones stand, because the rule is the team's until evidence says otherwise.
2. A scheme passes when its whole Δ interval is at most the limit and a 32k request takes at most the stated share of
   its 16-bit bytes. Verdicts about Δ, those of premises included, must survive Holm's procedure over all of them
   (``strategy_family.py``).
3. ``must`` options come first, then ``stretch``, then the others that no rule excludes. In the first of these groups
   in which one passes, the one of least memory wins, then of least Δ. While an option of an earlier group, or one
   of less memory in the same group, is undecided, nothing wins.
4. When all are decided and none passes, 16 bit stays.

A scheme whose arm must refuse to start on this platform cannot win, and nothing waits for its evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

from adrbench.config.section import Text
from adrbench.config.strategy import SchemeOption
from adrbench.decide import accuracy as accuracies
from adrbench.decide import gates
from adrbench.decide import strategy_family as family
from adrbench.decide.accuracy import Missing
from adrbench.decide.context import Context
from adrbench.decide.options import refusal
from adrbench.decide.premises import Facts, rule_result
from adrbench.decide.records import digests, load_integrate
from adrbench.decide.strategy_spec import Measured, StrategySpec, gather
from adrbench.decide.strategy_verdict import Role, RuleResult, SchemeResult, StrategyResult
from adrbench.decide.verdict import Accuracy, GateResult, ObjectiveResult, OptionResult, Status, Verdict
from adrbench.decide.words import text

LONG_REQUEST = "32768"
GROUPS: tuple[Role, ...] = ("must", "stretch", "other")


@dataclass(frozen=True)
class Candidate:
    """One option with all that its place follows from; ``ratio``: bytes of a 32k request to those in 16 bit.

    ``refused``: of an option whose arm must refuse to start here, the arm and why; it has no ``arm`` to measure.
    """

    option: SchemeOption
    arm: str | None
    role: Role
    excluded: list[str]
    lifted: list[str]
    accuracy: Accuracy | Missing | None
    gates: list[GateResult]
    ratio: float | None
    violations: bool
    refused: tuple[str, Text] | None = None

    @property
    def gate(self) -> str | None:
        return self.gates[0].verdict if self.gates else None


def exclusions(rules: list[RuleResult], option: str) -> tuple[list[str], list[str]]:
    """(rules that exclude an option, rules that would but whose premise is refuted for it)."""
    standing: list[str] = []
    lifted: list[str] = []
    for rule in rules:
        if rule.effect == "exclude" and option in rule.options:
            refuted = any(r.option == option and r.verdict == "refuted" for r in rule.results)
            (lifted if refuted else standing).append(rule.id)
    return standing, lifted


def role(rules: list[RuleResult], option: SchemeOption) -> Role:
    """The group of an option: the strongest effect of the rules that name it."""
    if option.granularity == "none":
        return "baseline"
    effects = {rule.effect for rule in rules if option.name in rule.options}
    return "must" if "must" in effects else "stretch" if "stretch" in effects else "other"


def place(found: Candidate, memory_at_most: float) -> SchemeResult:
    """An option's place, with the reason why it cannot win, if it cannot."""
    small = found.ratio is not None and found.ratio <= memory_at_most
    eligible = False
    if found.role == "baseline":
        reason = text("the baseline: stays where nothing else wins", "baseline: 无其他方案胜出时保留")
    elif found.refused is not None:
        reason = found.refused[1]
    elif found.arm is None:
        reason = text("the platform declares no arm for it", "该平台未声明对应的 arm")
    elif found.excluded:
        reason = text(f"excluded by {', '.join(found.excluded)}", f"被 {', '.join(found.excluded)} 排除")
    elif found.violations:
        reason = text("its arm breaks the policy", "其 arm 违反约束")
    elif isinstance(found.accuracy, Missing):
        reason = text(f"missing: {found.accuracy.reason.en}", f"缺少: {found.accuracy.reason.zh}")
    elif found.gate == "failed":
        reason = text("Δ exceeds the limit", "Δ 超过限值")
    elif found.ratio is None:
        reason = text("its memory is unverified", "显存占用未验证")
    elif not small:
        reason = text("saves too little memory", "节省的显存太少")
    elif found.gate == "undecided":
        reason = text("Δ is undecided at this number of samples", "以现有样本数 Δ 未决")
    else:
        eligible, reason = True, text("passes", "通过")
    return SchemeResult(
        option=found.option.name,
        arm=found.arm,
        role=found.role,
        excluded_by=found.excluded,
        lifted=found.lifted,
        gate=found.gate,
        memory_ratio=found.ratio,
        eligible=eligible,
        reason=reason,
    )


def _open(found: Candidate, placed: SchemeResult, memory_at_most: float) -> bool:
    """Whether more evidence could still make an option win: one that saves too little memory never does."""
    if placed.role == "baseline" or found.arm is None or placed.excluded_by or found.violations:
        return False
    if found.ratio is not None and found.ratio > memory_at_most:
        return False
    return isinstance(found.accuracy, Missing) or found.gate == "undecided" or found.ratio is None


def _lacking(found: Candidate) -> Text:
    """What would decide an undecided option."""
    name = found.option.title
    if isinstance(found.accuracy, Missing):
        needs = found.accuracy.reason
    elif found.gates and found.gates[0].needs is not None:
        needs = found.gates[0].needs
    else:
        needs = text("its memory", "其显存占用")
    return text(f"{name.en}: {needs.en}", f"{name.zh}: {needs.zh}")


def _delta(found: Candidate) -> float:
    return found.accuracy.mean.delta if isinstance(found.accuracy, Accuracy) else float("inf")


def _won(found: Candidate) -> Status:
    how = {
        "default": text("vLLM serves it as it is", "vLLM 默认即可"),
        "flag": text("served by `--kv-cache-dtype` (L1)", "由 `--kv-cache-dtype` 提供 (L1)"),
        "backend": text("needs an own backend (L3)", "需自写 backend (L3)"),
    }[found.option.integration]
    assert isinstance(found.accuracy, Accuracy)
    mean, ratio = found.accuracy.mean, found.ratio
    delta = f"{mean.delta:+.1f} [{mean.low:+.1f}, {mean.high:+.1f}]"
    return Status(
        word="Accepted",
        option=found.option.name,
        text=text(
            f"{found.option.title.en}: Δ {delta} points at {ratio:.2f} of the 16-bit bytes; {how.en}",
            f"{found.option.title.zh}: Δ {delta} 个百分点, 字节数为 16 bit 的 {ratio:.2f}; {how.zh}",
        ),
    )


def choose(
    candidates: list[Candidate], placed: list[SchemeResult], baseline: str, memory_at_most: float
) -> tuple[Status, list[Text]]:
    """The status by the order of the groups, and what is missing."""
    pairs = list(zip(candidates, placed, strict=True))
    missing = [_lacking(c) for c, p in pairs if _open(c, p, memory_at_most)]
    if not any(p.role != "baseline" and c.arm is not None for c, p in pairs):
        why = text("the platform serves no scheme but the baseline", "除 baseline 外该平台无法运行任何方案")
        return Status(word="Blocked", option=None, text=why), []
    # Required schemes that nobody could measure here are missing evidence, not schemes that failed.
    absent = [c.option.title for c, p in pairs if p.role == "must" and c.arm is None and not p.excluded_by]
    missing += [text(f"{name.en}: an arm of this platform", f"{name.zh}: 该平台的 arm") for name in absent]
    for group in GROUPS:
        mine = [(c, p) for c, p in pairs if p.role == group]
        passing = sorted((c for c, p in mine if p.eligible), key=lambda c: (c.ratio, _delta(c)))
        waiting = [c for c, p in mine if _open(c, p, memory_at_most)]
        smaller = [c for c in waiting if not passing or c.ratio is None or c.ratio < (passing[0].ratio or 0.0)]
        if passing and not smaller:
            return _won(passing[0]), missing
        if smaller:
            named = ", ".join(c.option.title.en for c in smaller), ", ".join(c.option.title.zh for c in smaller)
            label = {"must": ("required", "必做"), "stretch": ("stretch", "stretch"), "other": ("other", "其他")}[group]
            why = text(f"undecided among the {label[0]} schemes: {named[0]}", f"{label[1]}方案中未决: {named[1]}")
            return Status(word="Proposed", option=None, text=why), missing
        if group == "must" and absent and len(absent) == len(mine):
            named = ", ".join(n.en for n in absent), ", ".join(n.zh for n in absent)
            why = text(
                f"the platform has no arm of the required schemes {named[0]}", f"该平台没有必做方案的 arm: {named[1]}"
            )
            return Status(word="Proposed", option=None, text=why), missing
    why = text(f"no scheme passes: {baseline} stays", f"没有方案通过: 保留 {baseline}")
    return Status(word="Accepted", option=baseline, text=why), missing


def _objective(found: Candidate, measured: Measured, limit: float) -> ObjectiveResult:
    """The pool as the objective: measured where a backend stores the scheme, computed otherwise."""
    pool, layout = measured.pool(found.arm), found.ratio
    kind = {
        "measured": text("tokens that the running vLLM reported", "运行中的 vLLM 所报告的 token 数"),
        "computed": text("blocks of the scheme's layout in the baseline's bytes", "以 baseline 的字节数按方案布局计算"),
    }
    gain = 1 / pool["ratio"] - 1 if pool.get("ratio") else None
    verdict = "undecided" if layout is None else "better" if layout <= limit else "worse"
    return ObjectiveResult(
        metric="kv_pool_tokens",
        value=float(pool["tokens"]) if pool else None,
        low=float(pool["tokens"]) if pool else None,
        high=float(pool["tokens"]) if pool else None,
        gain=gain,
        gain_low=gain,
        gain_high=gain,
        noise=None,
        p_value=None,
        verdict="baseline" if found.role == "baseline" else verdict,
        basis=kind[pool["kind"]] if pool else text("not measured", "未测量"),
    )


def option_result(spec: StrategySpec, found: Candidate, placed: SchemeResult, measured: Measured) -> OptionResult:
    """The option in the form that comparisons have."""
    known = found.role == "baseline" or isinstance(found.accuracy, Accuracy)
    return OptionResult(
        name=found.option.name,
        title=found.option.title,
        arm=found.refused[0] if found.refused else found.arm,
        state="blocked" if found.refused else "measured" if known and found.arm else "absent",
        reason=None if known and found.arm else placed.reason,
        violations=spec.violations.get(found.arm or "", []),
        gates=found.gates,
        objective=_objective(found, measured, spec.decision.memory_at_most),
        eligible=placed.eligible,
    )


def candidate(
    spec: StrategySpec,
    facts: Facts,
    rules: list[RuleResult],
    o: SchemeOption,
    checked: list[GateResult],
    refused: tuple[str, Text] | None,
) -> Candidate:
    """One option with its evidence. ``checked``: its gates; ``refused``: its arm and why that cannot be served."""
    arm, own = facts.arms.get(o.name), role(rules, o)
    standing, lifted = exclusions(rules, o.name)
    found = facts.accuracy.get(arm) if arm else None
    ratio = facts.measured.layout(arm).get("request_ratio", {}).get(LONG_REQUEST)
    broken = bool(spec.violations.get(arm or ""))
    return Candidate(o, arm, own, standing, lifted, found, checked, ratio, broken, refused)


def ranked(placed: list[SchemeResult], candidates: list[Candidate]) -> list[SchemeResult]:
    """Ranks of the ``stretch`` options by Δ, least first (G09)."""
    order = sorted((c for c in candidates if c.role == "stretch" and isinstance(c.accuracy, Accuracy)), key=_delta)
    ranks = {c.option.name: number for number, c in enumerate(order, start=1)}
    return [p.model_copy(update={"rank": ranks.get(p.option)}) for p in placed]


def judge(spec: StrategySpec) -> Verdict:
    """The whole document of a strategy."""
    measured, comparison = gather(spec), spec.as_comparison()
    context, decision = Context(comparison, {}, measured.evals, load_integrate(comparison)), spec.decision
    declared = {arm.name: arm for arm in spec.arms}
    arms = {o.name: next((a for a in o.arms if a in declared), "") for o in decision.options}
    arms = {name: arm for name, arm in arms.items() if arm}
    # No evidence of an arm that must refuse to start will ever come: nothing waits for it.
    refused = {
        name: (arm, refusal(context, declared[arm]))
        for name, arm in arms.items()
        if declared[arm].expect_failure is not None
    }
    arms = {name: arm for name, arm in arms.items() if name not in refused}
    compared = {arm: accuracies.compare(context, arm) for arm in arms.values() if arm != spec.baseline}
    facts = Facts(context, measured, arms, compared)
    rules = [rule_result(facts, rule, decision.options, spec.arch) for rule in decision.rules]
    checked = {name: gates.evaluate(context, arm, compared[arm]) for name, arm in arms.items() if arm in compared}
    error, statements = 1 - decision.confidence, family.adjusted(checked, rules)
    rules = [family.corrected_rule(rule, statements, error) for rule in rules]
    checked = {
        name: [family.corrected_gate(name, gate, statements, error) for gate in own] for name, own in checked.items()
    }
    candidates = [
        candidate(spec, facts, rules, option, checked.get(option.name, []), refused.get(option.name))
        for option in decision.options
    ]
    placed = ranked([place(c, decision.memory_at_most) for c in candidates], candidates)
    status, missing = choose(candidates, placed, spec.baseline, decision.memory_at_most)
    return Verdict(
        decision=decision.id,
        platform=spec.platform,
        policy=spec.policy,
        confidence=decision.confidence,
        gain_rule="strategy",
        baseline=spec.baseline,
        status=status,
        options=[option_result(spec, c, p, measured) for c, p in zip(candidates, placed, strict=True)],
        accuracy={arm: c for arm, c in compared.items() if isinstance(c, Accuracy)},
        noise={},
        latency={},
        missing=missing,
        strategy=StrategyResult(
            arch=spec.arch,
            statements=len(statements),
            limit=decision.limit,
            memory_at_most=decision.memory_at_most,
            rules=rules,
            schemes=placed,
        ),
        evidence=digests(comparison),
    )
