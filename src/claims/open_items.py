"""Unverified items, to-dos and contradictions of the documents, with their state computed from verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from adrbench.claims.registry import Text
from adrbench.claims.schema import ClaimError, Place
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

ItemKind = Literal["unverified", "to-do", "contradiction"]
State = Literal["settled", "open", "resolved", "not_applicable"]


class Item(BaseModel):
    """One open item. It rests on claims, or says what it ``needs``.

    ``not_applicable`` says why no decision has to resolve a contradiction.
    """

    model_config = ConfigDict(extra="forbid")

    id: str
    kind: ItemKind
    text: Text
    place: Place | None = None
    claims: list[str] = []
    needs: Text | None = None
    not_applicable: Text | None = None

    @model_validator(mode="after")
    def _can_be_settled(self) -> Item:
        if bool(self.claims) == (self.needs is not None):
            raise ValueError("takes either claims or needs")
        return self


@dataclass(frozen=True)
class ItemState:
    """``settled``: all claims were checked. ``resolved``: a decision file says how. ``not_applicable``: no decision
    has to. Else ``open``.

    ``claims`` are (id, verdict) pairs, ``needs`` what is missing, or how or why it is settled, in both languages.
    """

    item: Item
    state: State
    claims: list[tuple[str, str]]
    needs: Text | None


def load_items(path: Path) -> list[Item]:
    """Items of an open-items file.

    Raises:
        ClaimError: naming file and entry.
    """
    try:
        raw = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["items"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise ClaimError(f"{path}: not a file of open items: {error}") from None
    items: list[Item] = []
    for number, entry in enumerate(raw, 1):
        try:
            items.append(Item.model_validate(entry))
        except ValidationError as error:
            name = entry.get("id", number) if isinstance(entry, dict) else number
            raise ClaimError(f"{path}: {name}: {error.errors()[0]['msg']}") from None
    ids = [item.id for item in items]
    if repeated := sorted({i for i in ids if ids.count(i) > 1}):
        raise ClaimError(f"{path}: {repeated[0]}: this id is used twice")
    return items


def load_resolutions(decisions: Iterable[Path]) -> dict[str, Text]:
    """How decision files resolve contradictions: texts by item id, the decision named.

    Raises:
        ClaimError: naming the file.
    """
    found: dict[str, Text] = {}
    for path in decisions:
        try:
            raw = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
            for entry in raw.get("resolutions") or []:
                text, before = Text.model_validate(entry["text"]), found.get(entry["id"])
                both = [Text(en=f"{raw['id']}: {text.en}", zh=f"{raw['id']}: {text.zh}")]
                both = [before, *both] if before else both
                found[entry["id"]] = Text(en=" ".join(t.en for t in both), zh=" ".join(t.zh for t in both))
        except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ClaimError(f"{path}: resolutions cannot be read: {error}") from None
    return found


def state_of(item: Item, verdicts: Mapping[str, Mapping[str, Any]], resolutions: Mapping[str, Text]) -> ItemState:
    """State of one item.

    Raises:
        ClaimError: the item rests on a claim that the evidence does not have.
    """
    if unknown := [c for c in item.claims if c not in verdicts]:
        raise ClaimError(f"open item {item.id}: there is no claim {unknown[0]!r} in the evidence")
    claims = [(c, str(verdicts[c]["verdict"])) for c in item.claims]
    if item.id in resolutions:
        return ItemState(item, "resolved", claims, resolutions[item.id])
    if item.not_applicable is not None:
        return ItemState(item, "not_applicable", claims, item.not_applicable)
    if item.needs is not None:
        return ItemState(item, "open", claims, item.needs)
    missing = [Text.model_validate(verdicts[c]["needs"]) for c, verdict in claims if verdict == "unverified"]
    if missing:
        en, zh = ("; ".join(dict.fromkeys(getattr(t, language) for t in missing)) for language in ("en", "zh"))
        return ItemState(item, "open", claims, Text(en=en, zh=zh))
    return ItemState(item, "settled", claims, None)
