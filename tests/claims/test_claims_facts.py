"""The shipped claims against the real vLLM 0.18.1, and the hand check's verdicts reproduced.

Skipped, with the reason, where neither the wheel nor the serving interpreter can be had. No device is
involved: what a kernel does on a card is not shown here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from adrbench.claims.behaviour import BACKENDS_ROW, is_error
from adrbench.claims.registry import Context
from adrbench.claims.schema import Claim, load
from adrbench.claims.verdict import Outcome, judge_claim
from adrbench.device import rules

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "config" / "claims" / f"{name}.yaml" for name in ("adr0010", "adr0011", "learning", "rules")]

#: The statements that a careful reading by hand found wrong and that matter most for a design.
FALSE = [
    "ADR0011-C-int8-flag",
    "LEARN-hook-tensor",
    "ADR0011-B-kv-size",
    "ADR0011-B-kv-share",
    "ADR0011-B-kv-throughput",
    "LEARN-cmp-head-model",
    "LEARN-content-text-only",
    "LEARN-table-gdn",
    "LEARN-sku",
    "LEARN-format-fnuz-range",
    "LEARN-format-hip-type",
    "ADR0011-B-weights-fit",
    "ADR0011-B-bandwidth-cdna3",
    "LEARN-scheme-builtin",
    "ADR0011-C-kivi-scheme",
    "LEARN-content-list",
    "ADR0010-decision-register",
    "ADR0010-decision-dry-run",
    "LEARN-grep-register",
    "LEARN-table-members",
    "LEARN-cmp-graph-triton",
    "LEARN-path-triton",
]
TRUE = [
    "ADR0010-context-count",
    "ADR0010-todo-variable",
    "ADR0011-A-L1-flag-line",
    "ADR0011-A-L1-field",
    "ADR0011-A-L2-lines",
    "ADR0011-A-L2-call",
    "ADR0011-A-L3-example",
    "LEARN-means-register-lines",
    "LEARN-table-mamba",
    "LEARN-cmp-head-aiter",
    "LEARN-cmp-block-triton",
    "LEARN-fp8-cdna3",
    "LEARN-hook-fnuz",
]
MOVED = [
    "LEARN-map-backends",
    "LEARN-map-runner",
    "LEARN-map-serving-chat",
    "LEARN-import-enum",
    "ADR0011-A-L3-get-class",
]
IMPRECISE = ["ADR0011-A-L3-register", "LEARN-cmp-block-aiter", "LEARN-cmp-aiter-length", "LEARN-three-aiter-fa"]


@pytest.fixture(scope="module")
def claims() -> list[Claim]:
    return load(FILES)


@pytest.fixture(scope="module")
def outcomes(real_context: Context, claims: list[Claim]) -> dict[str, Outcome]:
    return {claim.id: judge_claim(claim, real_context) for claim in claims}


@pytest.mark.parametrize(
    ("ids", "verdict"), [(FALSE, "false"), (TRUE, "holds"), (MOVED, "moved"), (IMPRECISE, "imprecise")]
)
def test_the_hand_checks_verdicts_are_reproduced(outcomes: dict[str, Outcome], ids: list[str], verdict: str) -> None:
    assert {i: outcomes[i].verdict for i in ids} == dict.fromkeys(ids, verdict)


def test_every_statement_that_the_rules_rest_on_holds(outcomes: dict[str, Outcome]) -> None:
    failed = {i: (o.verdict, o.found) for i, o in outcomes.items() if i.startswith("RULE-") and o.verdict != "holds"}
    assert {i for i, (verdict, _) in failed.items() if verdict != "unverified"} == set()
    reasons = [found for _, found in failed.values()]
    assert all(reason.startswith(("needs a source for ", "needs serving rounds ")) for reason in reasons), reasons


def test_every_claim_is_judged_with_evidence(outcomes: dict[str, Outcome]) -> None:
    assert [i for i, o in outcomes.items() if not o.found] == []
    wrong = [
        i
        for i, o in outcomes.items()
        if o.verdict in ("false", "moved", "imprecise") and not (o.corrected and o.corrected.en)
    ]
    assert wrong == [], "a wrong claim says what is the case instead"
    unexplained = [i for i, o in outcomes.items() if o.verdict == "unverified" and not o.found.startswith("needs ")]
    assert unexplained == []
    assert Counter(o.verdict for o in outcomes.values())["holds"] > 200


def test_corrected_values_are_the_checks_own(outcomes: dict[str, Outcome]) -> None:
    def text(claim: str) -> str:
        corrected = outcomes[claim].corrected
        assert corrected is not None
        return corrected.en

    assert "2.147 GB" in text("ADR0011-B-kv-size")
    assert "5.3 TB/s" in text("ADR0011-B-bandwidth-cdna3")
    assert "240" in text("LEARN-format-fnuz-range")
    assert "TRITON_MLA" in text("LEARN-table-members")
    assert "gfx926" in text("LEARN-sku")
    assert "784" in text("ADR0011-B-block-size")
    assert "1568" in text("ADR0011-B-block-size")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx926", "gfx928", "gfx936", "gfx938", "gfx942", "gfx950"])
def test_the_projects_rules_say_what_vllms_code_does(real_context: Context, arch: str) -> None:
    assert real_context.probe is not None
    row = real_context.probe.rows(real_context.need_tree())[BACKENDS_ROW][arch]
    assert rules.fp8(arch).dtype == row["fp8_dtype"]
    assert rules.candidates(arch)[0] == row["chosen"]["none"]
    for name, answer in row["explicit"].items():
        expected = rules.backend(arch, name, aiter=True)
        assert (expected.outcome == "refused") == is_error(answer), (name, expected, answer)
        if is_error(answer):
            assert expected.reason in answer


#: Items of the reading by hand, by section: one for each row of its tables and each statement between them.
ITEMS = {
    "A1": 20, "A2": 14, "A3": 10, "A4": 8, "A5": 15, "A6": 6, "A7": 13,
    "B": 27, "C1": 13, "C2": 10, "C3": 8, "C4": 2, "D": 16, "E": 22,
}  # fmt: skip
FACTS = yaml.safe_load((ROOT / "config" / "claims" / "facts.yaml").read_text(encoding="utf-8"))["items"]


def test_every_item_of_the_reading_has_an_entry() -> None:
    expected = [f"{section}.{number}" for section, count in ITEMS.items() for number in range(1, count + 1)]
    assert [item["id"] for item in FACTS] == expected


def test_an_item_has_known_claims_or_says_why_it_has_none(claims: list[Claim]) -> None:
    known = {claim.id for claim in claims}
    assert [item["id"] for item in FACTS if bool(item.get("claims")) == bool(item.get("none"))] == []
    assert [item["id"] for item in FACTS if set(item) - {"id", "says", "claims", "none", "differs"}] == []
    assert {
        item["id"]: set(item.get("claims", {})) - known for item in FACTS if set(item.get("claims", {})) - known
    } == {}


def test_nearly_all_items_have_claims() -> None:
    assert [item["id"] for item in FACTS if "none" in item] == ["C2.10"]


def test_every_item_is_reproduced_by_code(outcomes: dict[str, Outcome]) -> None:
    """All of sections A to E: the verdict of the code is the verdict of the reading."""
    differing = {
        f"{item['id']} {claim}": (expected, outcomes[claim].verdict, outcomes[claim].found[:200])
        for item in FACTS
        for claim, expected in item.get("claims", {}).items()
        if outcomes[claim].verdict != expected
    }
    assert differing == {}
