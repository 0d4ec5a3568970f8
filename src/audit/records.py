"""What is derived from evidence, made again from a seal: the verdict, its lock, its history, the texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from adrbench.audit.finding import Finding, Outcome, compare
from adrbench.config.measuring_code import code_digest
from adrbench.decide.__main__ import verdict_of
from adrbench.decide.verdict import Verdict
from adrbench.evidence import EvidenceError, digest_file
from adrbench.job import JobError
from adrbench.lock.__main__ import lock
from adrbench.lock.spec import Lock
from adrbench.lock.spec import parse_spec as parse_lock
from adrbench.report.collect import collect, open_store
from adrbench.report.history import Entry, evidence_digest, read_history, stored
from adrbench.report.lookup import read_decide
from adrbench.report.markdown import render
from adrbench.report.publish import rebase
from adrbench.report.seal import SUFFIX, Seal, text_digest
from adrbench.report.spec import Spec
from adrbench.report.stale import unmarked


def digests(seal: Seal, path: Path) -> Outcome:
    """Files that the report was made from, as they were, and the code that made it."""
    outcome = Outcome()
    for name, digest in (seal.evidence | seal.derived).items():
        outcome.values += 1
        if not Path(name).is_file():
            outcome.findings.append(Finding(name, "", f"is missing; {path} was made from it"))
        elif digest_file(Path(name)) != digest:
            outcome.findings.append(Finding(name, "", f"changed since {path} was made from it"))
    for name, digest in seal.texts.items():
        text, outcome.values = path.parent / name, outcome.values + 1
        if not text.is_file():
            outcome.findings.append(Finding(str(text), "", "is missing"))
        elif text_digest(text) != digest:
            outcome.findings.append(Finding(str(text), "", f"changed since {path} was made"))
    for stage, digest in seal.code.items():
        if code_digest(stage) != digest:
            outcome.findings.append(
                Finding(str(path), f"code.{stage}", "the code changed since; build the report again")
            )
    return outcome


def verdict(seal: Seal) -> Outcome:
    """The decide document, from evidence."""
    path = Path(_of(seal, "decide"))
    return compare(str(path), read_decide(path), verdict_of(seal.decide).model_dump(mode="json"))


def locked(seal: Seal) -> Outcome:
    """The lock and its files, from the verdict."""
    path = Path(_of(seal, "lock"))
    said = Lock.model_validate_json(path.read_text(encoding="utf-8"))
    spec = parse_lock(seal.lock)
    made, files = lock(spec, Verdict.model_validate(read_decide(spec.verdict)))
    outcome = compare(str(path), said.model_dump(mode="json"), made.model_dump(mode="json", exclude={"files"}))
    for name, text in files.items():
        outcome.add(_text(path.parent / name, text))
    return outcome


def past(seal: Seal) -> Outcome:
    """The history that the report shows, from the store; each entry's digest, from its own verdict."""
    path = Path(_of(seal, "history"))
    said, outcome = read_history(path), Outcome()
    folder = Path(said["store"]) / seal.adr
    entries = stored(folder)[: len(said["entries"])]
    for entry in entries:
        file = str(folder / f"{entry.number:04d}.json")
        made = {"evidence_digest": evidence_digest(entry.verdict.evidence), "status": entry.verdict.status.model_dump()}
        outcome.add(compare(file, entry.model_dump(mode="json"), made))
    plain = [Entry(**entry.model_dump(include=set(Entry.model_fields))).model_dump(mode="json") for entry in entries]
    outcome.add(compare(str(path), said["entries"], plain, "entries"))
    return outcome


def texts(seal: Seal, folder: Path, published: Path) -> Outcome:
    """Each language's text, from evidence; and the published copy, from it."""
    outcome = Outcome()
    for language, raw in seal.reports.items():
        spec, path = Spec.model_validate(raw), folder / f"{seal.adr}{SUFFIX[language]}"
        made = render(collect(spec, open_store(spec)), spec.language, path, spec.languages)
        outcome.add(_text(path, made))
        copy = published / path.name
        if copy.is_file() and _platform_of(copy) == seal.platform:
            outcome.add(_text(copy, rebase(made, folder, published, frozenset(seal.texts))))
    return outcome


def _platform_of(copy: Path) -> str:
    """The platform that a published report names in its table of contents: ``... (`cpu`) |``."""
    for line in copy.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("| Platform |", "| 平台 |")):
            return line.rpartition("(`")[2].partition("`)")[0]
    return ""


def _text(path: Path, made: str) -> Outcome:
    """A text file against what it should be: the first line that differs."""
    try:
        said = unmarked(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return Outcome([Finding(str(path), "", f"cannot be read: {error}")])
    outcome = Outcome(values=len(made.splitlines()))
    if said != made:
        lines = [said.splitlines(), made.splitlines()]
        number = next((i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
        shown = (rows[number][:100] if number < len(rows) else "(end)" for rows in lines)
        told = "says {!r}, made again it is {!r}".format(*shown)
        outcome.findings.append(Finding(str(path), f"line {number + 1}", told))
    return outcome


def _of(seal: Seal, name: str) -> str:
    return str(next(iter(seal.reports.values()))["evidence"][name])


def record(seal: Seal, path: Path, published: Path) -> Outcome:
    """One report, wholly: every step from evidence to text."""
    outcome = digests(seal, path)
    steps: dict[str, Callable[[], Outcome]] = {
        "decide": lambda: verdict(seal),
        "lock": lambda: locked(seal),
        "history": lambda: past(seal),
        "text": lambda: texts(seal, path.parent, published),
    }
    for name, step in steps.items():
        try:
            outcome.add(step())
        except (EvidenceError, JobError, OSError, ValueError, KeyError, TypeError) as error:
            # These errors begin with the file that cannot be read.
            file, _, rest = str(error).partition(": ")
            known = isinstance(error, (EvidenceError, JobError)) and Path(file).suffix != ""
            told = rest if known else f"cannot be made again: {type(error).__name__}: {error}"
            outcome.findings.append(Finding(file if known else str(path), name, told))
    return outcome
