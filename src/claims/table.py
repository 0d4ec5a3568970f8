"""The claims report: what held, what did not, what an upgrade breaks, and what is still open.

    python -m adrbench.claims.table --evidence results/cpu/claims.json --open config/claims/open.yaml \
        --language en --output reports/claims.md config/claims/adr0010.yaml ...

Rendering is pure: evidence and claim files in, Markdown out. Every verdict, place and corrected value
is looked up in the evidence; statements and their wording come from the claim files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from adrbench import evidence
from adrbench.claims.conditions import SEVERITY
from adrbench.claims.open_items import Item, ItemState, load_items, load_resolutions, state_of
from adrbench.claims.registry import Text
from adrbench.claims.schema import Claim, ClaimError, Place, load

Language = Literal["en", "zh"]
LANGUAGES: dict[Language, str] = {"en": ".md", "zh": ".zh.md"}

TEXTS = Path(__file__).with_name("texts.yaml")


@cache
def texts() -> dict[str, Text]:
    """The report's words by key."""
    raw = yaml.safe_load(TEXTS.read_text(encoding="utf-8"))
    return {key: Text.model_validate(value) for key, value in raw.items()}


def word(key: str, language: Language) -> str:
    return str(getattr(texts()[key], language))


def verdict_word(verdict: str, language: Language) -> str:
    return word("unverified_word" if verdict == "unverified" else verdict, language)


def state_word(state: str, language: Language) -> str:
    return word("open_word" if state == "open" else state, language)


def cell(text: object) -> str:
    """Text fit for one cell of a Markdown table: one line, with its signs taken literally."""
    plain = " ".join(str(text).split())
    for sign, escaped in (("|", "\\|"), ("__", "\\_\\_"), ("*", "\\*"), ("<", "&lt;")):
        plain = plain.replace(sign, escaped)
    return plain


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(cell(c) for c in row) + " |" for row in rows]


def place_text(place: Place | None) -> str:
    if place is None:
        return ""
    lines = ":" + ",".join(map(str, place.lines)) if place.lines else ""
    return f"{place.document}{lines} ({place.section})"


def counts_text(counts: Mapping[str, int], language: Language) -> str:
    return ", ".join(f"{counts[v]} {verdict_word(v, language)}" for v in SEVERITY if counts.get(v))


def case_text(entry: Mapping[str, Any], language: Language) -> str:
    """What is the case: the corrected value, or for an unverified claim what it needs."""
    if entry["verdict"] == "unverified":
        return str(entry["needs"][language])
    corrected = entry.get("corrected")
    return str(corrected[language]) if corrected else ""


def kind_rows(measured: Mapping[str, Any]) -> list[list[object]]:
    return [
        [kind, *(counts.get(v, 0) for v in SEVERITY)] for kind, counts in sorted(measured["counts_by_kind"].items())
    ]


def claim_rows(claims: Sequence[Claim], measured: Mapping[str, Any], language: Language) -> list[dict[str, str]]:
    """One row per claim for a table that can be filtered: plain texts by column name."""
    rows = []
    for claim in claims:
        entry = measured["verdicts"][claim.id]
        rows.append(
            {
                "id": claim.id,
                "document": claim.place.document,
                "place": place_text(claim.place),
                "kind": claim.kind,
                "statement": getattr(claim.statement, language),
                "verdict": entry["verdict"],
                "correct": case_text(entry, language),
                "evidence": entry["found"],
                "where": entry["where"],
                "note": getattr(claim.note, language) if claim.note else "",
            }
        )
    return rows


def _wrong(rows: Sequence[Mapping[str, str]], language: Language) -> list[str]:
    bad = [r for r in rows if r["verdict"] in ("false", "moved", "imprecise")]
    bad.sort(key=lambda r: -SEVERITY.index(r["verdict"]))
    header = [word(k, language) for k in ("id", "statement", "verdict", "correct", "where")]
    body = [[r["id"], r["statement"], verdict_word(r["verdict"], language), r["correct"], r["where"]] for r in bad]
    return table(header, body)


def _document(rows: Sequence[Mapping[str, str]], language: Language) -> list[str]:
    header = [word(k, language) for k in ("id", "kind", "statement", "verdict", "correct", "evidence")]

    def line(r: Mapping[str, str]) -> list[object]:
        case = "; ".join(filter(None, [r["correct"], r["note"]]))
        found = "" if r["verdict"] == "unverified" else r["evidence"][:240]
        return [r["id"], r["kind"], r["statement"], verdict_word(r["verdict"], language), case, found]

    return table(header, map(line, rows))


def drift_lines(claims: Mapping[str, Claim], measured: Mapping[str, Any], language: Language) -> list[str]:
    """Claims whose verdict is not the same in all versions, and the counts by version, as a table."""
    changed = [row for row in measured["drift"] if len(set(row["verdicts"].values())) > 1]
    versions = list(measured["counts_by_version"])
    body = [
        [
            row["id"],
            getattr(claims[row["id"]].statement, language),
            *(verdict_word(row["verdicts"][v], language) for v in versions),
        ]
        for row in changed
        if row["id"] in claims
    ]
    note = word("drift_note", language).format(moved=len(measured["drift"]) - len(changed))
    totals = [["", "", *(counts_text(measured["counts_by_version"][v], language) for v in versions)]]
    header = [word("id", language), word("statement", language), *versions]
    return [note, "", *table(header, totals + body)]


def _architectures(measured: Mapping[str, Any], language: Language) -> list[str]:
    body = []
    for arch, row in measured["architectures"].items():
        accepted = [name for name, answer in row["explicit"].items() if ": " not in answer]
        refused = [f"{name}: {answer}" for name, answer in row["explicit"].items() if ": " in answer]
        body.append([arch, row["fp8_dtype"], row["chosen"]["none"], ", ".join(accepted), "; ".join(refused)])
    header = ["gfx", *(word(k, language) for k in ("fp8", "default", "explicit", "refused"))]
    return table(header, body)


def _open(states: Sequence[ItemState], language: Language) -> list[str]:
    lines: list[str] = []
    for kind in ("unverified", "to-do", "contradiction"):
        header = [word(k, language) for k in ("id", "statement", "state", "rests_on", "needed")]
        body = [
            [
                s.item.id,
                getattr(s.item.text, language) + (f" ({place_text(s.item.place)})" if s.item.place else ""),
                state_word(s.state, language),
                ", ".join(f"{claim} {verdict_word(verdict, language)}" for claim, verdict in s.claims),
                getattr(s.needs, language) if s.needs else "",
            ]
            for s in states
            if s.item.kind == kind
        ]
        lines += [f"### {word(kind, language)}", "", *table(header, body), ""]
    return lines


def render(
    document: evidence.Evidence,
    claims: Sequence[Claim],
    items: Sequence[Item] = (),
    resolutions: Mapping[str, Text] | None = None,
    language: Language = "en",
) -> str:
    """The whole page as Markdown.

    ``resolutions`` are texts of decision files by the id of the contradiction they resolve.

    Raises:
        ClaimError: the evidence does not know a claim: it was written before the claim was added.
    """
    measured = document.measured
    if unknown := [c.id for c in claims if c.id not in measured["verdicts"]]:
        raise ClaimError(f"{claims[0].file}: {unknown[0]}: is not in the evidence; rerun the claims job")
    rows = claim_rows(claims, measured, language)
    states = [state_of(item, measured["verdicts"], resolutions or {}) for item in items]
    lines = [f"# {word('title', language)}", ""]
    total = sum(measured["counts"].values())
    counts = counts_text(measured["counts"], language)
    lines += [
        word("intro", language).format(version=measured["version"], total=total, counts=counts),
        "",
        word("no_device", language),
        "",
    ]
    header = [word("kind", language), *(verdict_word(v, language) for v in SEVERITY)]
    lines += [f"## {word('kinds', language)}", "", *table(header, kind_rows(measured)), ""]
    lines += [f"## {word('wrong', language)}", "", *_wrong(rows, language), ""]
    if measured["drift"]:
        lines += [f"## {word('drift', language)}", "", *drift_lines({c.id: c for c in claims}, measured, language), ""]
    if measured.get("architectures"):
        lines += [f"## {word('architectures', language)}", "", *_architectures(measured, language), ""]
    if states:
        lines += [f"## {word('open', language)}", "", *_open(states, language)]
    lines += [f"## {word('all', language)}", ""]
    for name in dict.fromkeys(r["document"] for r in rows):
        lines += [f"### {name}", "", *_document([r for r in rows if r["document"] == name], language), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m adrbench.claims.table")
    parser.add_argument("claims", nargs="+", type=Path, help="claim files that the evidence was made from")
    parser.add_argument("--evidence", required=True, type=Path)
    parser.add_argument("--open", type=Path, help="file of open items")
    parser.add_argument(
        "--decision", type=Path, action="append", default=[], help="decision file whose resolutions count"
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--output", required=True, type=Path)
    arguments = parser.parse_args()
    try:
        items = load_items(arguments.open) if arguments.open else []
        resolutions = load_resolutions(arguments.decision)
        document, claims = evidence.read(arguments.evidence), load(arguments.claims)
        text = render(document, claims, items, resolutions, arguments.language)
    except (ClaimError, evidence.EvidenceError) as error:
        print(f"adrbench claims table: {error}", file=sys.stderr)
        return 1
    evidence.write_text(arguments.output, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
