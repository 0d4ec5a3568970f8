"""From a claim and what its checks find to a verdict, with evidence and corrected values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adrbench.claims.conditions import Verdict, judge, worst
from adrbench.claims.registry import Context, Finding, Text, Unverifiable
from adrbench.claims.schema import Claim, ClaimError, Part
from adrbench.profile.model_shape import ModelConfigError


@dataclass(frozen=True)
class Outcome:
    """The verdict on one claim against one tree.

    ``found`` is the evidence in words, ``where`` the places it was read at, ``corrected`` what is
    the case instead (None where the claim holds or could not be checked), ``values`` the checks'
    fields that the claim makes a statement about, ``needs`` what an unverified claim lacks.
    """

    verdict: Verdict
    found: str
    where: str = ""
    corrected: Text | None = None
    values: dict[str, Any] = field(default_factory=dict)
    needs: Text | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "found": self.found,
            "where": self.where,
            "corrected": self.corrected.model_dump() if self.corrected else None,
            "values": self.values,
            "needs": self.needs.model_dump() if self.needs else None,
        }


def unverified(needs: Text) -> Outcome:
    """The outcome of a claim that could not be checked."""
    return Outcome("unverified", needs.en, needs=needs)


def _plain(finding: Finding, missed: list[str]) -> str:
    """A correction made from the found values alone, for parts without a template."""
    words = []
    for name in missed:
        value = finding.values[name]
        if name in ("lines", "path") and finding.where:
            words.append(finding.where)
        elif isinstance(value, float):
            words.append(f"{name} {value:.4g}")
        elif isinstance(value, list):
            words.append(f"{name}: {', '.join(map(str, value)) or 'none'}")
        else:
            words.append(f"{name}: {value}")
    return "; ".join(dict.fromkeys(words))


def _correct(part: Part, finding: Finding, missed: list[str]) -> Text:
    plain = _plain(finding, missed)
    if finding.moved:
        return Text(en=f"now {finding.where}", zh=f"现位于 {finding.where}")
    if part.correction is None:
        return Text(en=plain, zh=plain)
    shown = {k: ", ".join(map(str, v)) or "none" if isinstance(v, list) else v for k, v in finding.values.items()}
    try:
        return Text(en=part.correction.en.format_map(shown), zh=part.correction.zh.format_map(shown))
    except (TypeError, ValueError):
        # A value that was not found has no number format; the plain text says which it was.
        return Text(en=plain, zh=plain)


def judge_part(part: Part, context: Context) -> Outcome:
    """Run one check and compare its finding with what is expected."""
    try:
        finding = part.registered.run(context, part.arguments)
    except Unverifiable as reason:
        return unverified(reason.needs)
    verdicts = {name: judge(finding.values[name], c) for name, c in part.conditions.items()}
    verdict = worst(list(verdicts.values()))
    if verdict == "false" and finding.moved:
        verdict = "moved"
    missed = [name for name, v in verdicts.items() if v != "holds"]
    corrected = _correct(part, finding, missed) if missed else None
    values = {name: finding.values[name] for name in part.conditions}
    return Outcome(verdict, finding.text, finding.where, corrected, values)


def _join(texts: list[str]) -> str:
    return "; ".join(dict.fromkeys(t for t in texts if t))


def judge_claim(claim: Claim, context: Context) -> Outcome:
    """The verdict on one claim: the worst of its parts'.

    Raises:
        ClaimError: a check cannot use its arguments or data; the text names file and entry.
    """
    try:
        outcomes = [judge_part(part, context) for part in claim.parts]
    except (SyntaxError, FileNotFoundError) as error:
        return unverified(Text(en=f"needs a tree that can be read ({error})", zh=f"需要可读的源码树 ({error})"))
    except (ModelConfigError, ValueError, KeyError) as error:
        raise ClaimError(f"{claim.file}: {claim.id}: {error}") from error
    verdict = worst([o.verdict for o in outcomes])
    if verdict == "unverified":
        outcomes = [o for o in outcomes if o.verdict == "unverified"]
    corrections = [o.corrected for o in outcomes if o.corrected]
    corrected = None
    if corrections and verdict != "unverified":
        corrected = Text(en=_join([c.en for c in corrections]), zh=_join([c.zh for c in corrections]))
    lacking = [o.needs for o in outcomes if o.needs] if verdict == "unverified" else []
    needs = Text(en=_join([t.en for t in lacking]), zh=_join([t.zh for t in lacking])) if lacking else None
    values = {name: value for o in reversed(outcomes) for name, value in o.values.items()}
    return Outcome(
        verdict, _join([o.found for o in outcomes]), _join([o.where for o in outcomes]), corrected, values, needs
    )
