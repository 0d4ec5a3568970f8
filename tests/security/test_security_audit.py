"""The audit of dependencies: locks that are not sound, advisories in the OSV format, and a skip that says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.paths import ROOT

DIGEST = "--hash=sha256:" + "0" * 64
LOCK = f"# a comment\nPy.Thing==1.5 \\\n    {DIGEST} \\\n    {DIGEST}\n    # via other\nother[x]==2.0.post1 {DIGEST}\n"


def audit(*words: str | Path, path: str = "/nonexistent") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "envs/audit.py"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={"PATH": path})


def advisory(folder: Path, **affected) -> Path:
    folder.mkdir(exist_ok=True)
    entry = {"package": {"ecosystem": "PyPI", "name": "py-thing"}} | affected
    (folder / "one.json").write_text(json.dumps({"id": "PYSEC-0000-1", "affected": [entry]}))
    return folder


@pytest.fixture
def lock(tmp_path) -> Path:
    (tmp_path / "x.lock").write_text(LOCK)
    return tmp_path / "x.lock"


def test_the_projects_locks_are_sound_and_the_rest_is_skipped_aloud():
    done = audit()
    assert done.returncode == 0, done.stderr
    assert "9 locks" in done.stdout
    assert "SKIPPED: known vulnerabilities (name --advisories FOLDER, or install pip-audit)" in done.stdout


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("thing==1.0\n", "x.lock:1: thing has no sha256 digest"),
        (f"thing>=1.0 {DIGEST}\n", "is not NAME==VERSION"),
        (f"git+https://host/thing {DIGEST}\n", "is not NAME==VERSION"),
        (f"thing @ https://host/thing.whl {DIGEST}\n", "is not NAME==VERSION"),
        ("--extra-index-url https://host/simple\n", "is not NAME==VERSION"),
        (f"thing==1 {DIGEST}\nThing==2 {DIGEST}\n", "x.lock:2: thing is locked twice"),
        ("# nothing\n", "locks nothing"),
        ("thing==1 --hash=md5:0123\n", "has no sha256 digest"),
    ],
)
def test_a_lock_that_is_not_sound_is_named(lock, text, problem):
    lock.write_text(text)
    done = audit(lock)
    assert done.returncode == 1
    assert problem in done.stderr


RANGES = {
    "introduced, never fixed": [{"introduced": "0"}],
    "fixed later": [{"introduced": "0"}, {"fixed": "1.6"}],
    "fixed and broken again": [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.4"}, {"fixed": "2.0"}],
    "last affected": [{"introduced": "1.5"}, {"last_affected": "1.5"}],
}
UNTOUCHED = {
    "fixed before": [{"introduced": "0"}, {"fixed": "1.5"}],
    "introduced later": [{"introduced": "1.10"}],
    "last affected before": [{"introduced": "0"}, {"last_affected": "1.4.9"}],
}


@pytest.mark.parametrize("name", [*RANGES, *UNTOUCHED])
def test_ranges_of_advisories(lock, tmp_path, name):
    events = (RANGES | UNTOUCHED)[name]
    folder = advisory(tmp_path / "osv", ranges=[{"type": "ECOSYSTEM", "events": events}])
    done = audit("--advisories", folder, lock)
    assert done.returncode == (1 if name in RANGES else 0), done.stderr
    assert ("x.lock: py-thing 1.5: PYSEC-0000-1" in done.stderr) is (name in RANGES)


def test_listed_versions_names_and_withdrawals(lock, tmp_path):
    folder = advisory(tmp_path / "osv", versions=["1.5"])
    assert audit("--advisories", folder, lock).returncode == 1
    advisory(folder, versions=["1.5"], package={"ecosystem": "npm", "name": "py-thing"})
    assert audit("--advisories", folder, lock).returncode == 0
    advisory(folder, versions=["1.5"])
    value = json.loads((folder / "one.json").read_text()) | {"withdrawn": "2026-01-01T00:00:00Z"}
    (folder / "one.json").write_text(json.dumps(value))
    assert audit("--advisories", folder, lock).returncode == 0


def test_a_folder_without_advisories_is_no_clean_bill(lock, tmp_path):
    done = audit("--advisories", tmp_path / "nothing", lock)
    assert done.returncode == 1
    assert "holds no advisory" in done.stderr


@pytest.mark.parametrize("code", [0, 1])
def test_pip_audit_is_asked_where_it_is_installed(lock, tmp_path, code):
    tool = tmp_path / "bin/pip-audit"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho py-thing 1.5 PYSEC-0000-1\nexit {code}\n")
    tool.chmod(0o755)
    done = audit(lock, path=f"{tool.parent}:/usr/bin:/bin")
    assert done.returncode == code
    assert ("PYSEC-0000-1" in done.stderr) is bool(code)
