"""Evidence that other code or another host measured: what it lacks is told as such, and it is audited like any other.

The code is known from Snakemake's record of the job (the form of 9.27), which these tests write by hand; that real jobs
leave such a record, and that it travels, is proved in tests/archive.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from adrbench import evidence
from adrbench.archive.hosts import aside
from adrbench.archive.records import RECORDS, record_path
from adrbench.audit import stages
from adrbench.audit.finding import compare
from adrbench.audit.older import code_of, explained
from adrbench.audit.stages import Options, measured
from adrbench.config.measuring_code import code_digest
from adrbench.evidence import Evidence, write
from test_audit_stages import AT, serve_evidence

OTHER = "0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A serving round without its longest waits, as code of before wrote it."""
    monkeypatch.chdir(tmp_path)
    found = serve_evidence(Path())
    document = evidence.read(found)
    del document.measured["stalls"]
    write(found, document)
    return found


def record(path: Path, digest: str | None) -> None:
    """What Snakemake keeps of the job: its parameters, the code's digest among them."""
    file = record_path(RECORDS, str(path))
    file.parent.mkdir(parents=True, exist_ok=True)
    params = ['\'{"arm": "auto"}\'', *([repr(digest)] if digest else [])]
    file.write_text(json.dumps({"rule": "serve", "params": params}))


def test_what_other_code_did_not_write_down_is_no_finding(path: Path) -> None:
    record(path, OTHER)
    found = measured(path, Options())
    assert found.findings == []
    (told,) = [text for text in found.skipped if "stalls" in text]
    assert told.startswith(f"{path}: measured.stalls: not in it: it was measured on {AT[:10]} by code {OTHER}")
    assert f"measure it again (`snakemake --config platform=cpu -- {path}`)" in told
    assert told.endswith("to live without, leave it as it is")
    assert found.values > 20


def test_what_todays_code_wrote_down_and_is_gone_was_taken_out(path: Path) -> None:
    record(path, code_digest("serve"))
    (found,) = measured(path, Options()).findings
    assert str(found).startswith(
        f"{path}: measured.stalls: not in it, though today's code measured it: taken out since"
    )


@pytest.mark.parametrize("kept", ["no record", "a record without a digest", "a damaged record"])
def test_where_no_record_says_which_code_it_was_both_are_possible(path: Path, kept: str) -> None:
    if kept != "no record":
        record(path, None)
    if kept == "a damaged record":
        record_path(RECORDS, str(path)).write_text('{"params": ')
    (found,) = measured(path, Options()).findings
    assert f"no record of its job says by which code it was measured on {AT[:10]}" in found.text
    assert "merge the archive that brings the record" in found.text


def test_a_value_that_differs_stays_a_finding_and_the_code_is_told(path: Path) -> None:
    record(path, OTHER)
    document = evidence.read(path)
    document.measured["output_tokens_per_s"] = 99.0
    write(path, document)
    found = measured(path, Options())
    assert [finding.key for finding in found.findings] == ["measured.output_tokens_per_s"]
    assert any(f"by code {OTHER}, which is not today's: a value below" in text for text in found.skipped)
    record(path, code_digest("serve"))
    assert not any("which is not today's" in text for text in measured(path, Options()).skipped)


def test_a_profile_without_its_bounds(path: Path) -> None:
    profile = Path("results/cpu/profile/auto.json")
    record(profile, OTHER)
    document = Evidence(stage="profile", platform="cpu", measured={"phases": 1}, started_at=AT, finished_at=AT)
    computed = {"phases": 1, "bounds": {"decode": {"bound": "compute"}}, "checks": []}
    found = explained(profile, document, compare(str(profile), document.measured, computed, "measured"))
    assert found.findings == []
    assert f"{profile}: measured.bounds, measured.checks: not in it" in found.skipped[0]
    assert not code_of(profile).todays


CEILING = "results/cpu/ceiling.json"


@pytest.fixture
def profile(path: Path) -> tuple[Path, str]:
    """A profile of another host, whose ceiling is not the one here; where that one belongs."""
    found, digest = Path("results/cpu/profile/auto.json"), evidence.digest_text("of another host")
    Path("model").mkdir()
    Path(CEILING).write_text("of this host")
    asked = {"model": str(Path("model").resolve()), "ceiling": CEILING}
    write(found, Evidence(stage="profile", platform="cpu", asked=asked, started_at=AT, finished_at=AT))
    (found.with_suffix("")).mkdir()
    file = record_path(RECORDS, str(found))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"input": [CEILING], "input_checksums": {CEILING: f"sha256:{digest}"}}))
    return found, aside(CEILING, digest)


def test_a_profile_is_computed_again_with_the_ceiling_of_its_own_host(profile, monkeypatch) -> None:
    found, place = profile
    Path(place).parent.mkdir()
    Path(place).write_text("of another host")
    asked: list[str] = []
    monkeypatch.setattr(stages.profiling, "load_inputs", lambda spec: asked.append(spec["ceiling"]))
    measured(found, Options())
    assert asked == [place]


def test_a_check_that_did_not_come_along_is_told(profile) -> None:
    found, _ = profile
    outcome = measured(found, Options())
    assert outcome.findings == []
    assert (
        f"{found}: was measured under another {CEILING} than is here; merge the archive of its host"
        in (outcome.skipped[0])
    )
