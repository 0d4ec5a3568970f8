"""Specifications of any size reach their jobs: as a word of the command line, or in a file that the word names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.evidence import canonical, digest_text
from adrbench.handover import LONGEST, hand_over, received
from adrbench.paths import PYTHONPATH

LONG = canonical({"text": "ä'$(x) " * LONGEST})


def test_a_short_specification_is_the_word_itself(tmp_path: Path) -> None:
    text = canonical({"arm": 'it\'s $(touch HERE); "x" `id`'})
    assert hand_over(text, tmp_path / "kept") == text == received(text)
    assert not (tmp_path / "kept").exists()


def test_a_long_one_is_a_file_named_after_its_content(tmp_path: Path) -> None:
    word = hand_over(LONG, tmp_path / "kept")
    assert word == f"@{tmp_path}/kept/{digest_text(LONG)}.json"
    assert received(word) == LONG
    assert hand_over(LONG.replace("ä", "ö"), tmp_path / "kept") != word


def test_quotes_count_as_the_shell_writes_them(tmp_path: Path) -> None:
    """Each quote is five bytes on a shell line."""
    assert hand_over("'" * (LONGEST // 4), tmp_path).startswith("@")


def test_a_dry_run_names_the_file_and_writes_nothing(tmp_path: Path) -> None:
    word = hand_over(LONG, tmp_path / "kept", write=False)
    assert word == hand_over(LONG, tmp_path / "elsewhere").replace("elsewhere", "kept")
    assert not (tmp_path / "kept").exists()


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    word = hand_over(LONG, tmp_path)
    Path(word[1:]).write_text(LONG[:-9])
    with pytest.raises(ValueError, match="is not what its name says; delete it and run the workflow again"):
        received(word)


@pytest.mark.parametrize("module", ["decide", "report", "report.seal", "report.page", "profile.draw"])
def test_a_job_whose_file_is_gone_says_so(module: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", f"adrbench.{module}", "--spec", f"@{tmp_path}/gone.json", "--output", "x.svg"]
    environment = os.environ | {"PYTHONPATH": str(PYTHONPATH)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode
    assert "gone.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_does_not_fit_a_shell_line_is_handed_over_all_the_same(tmp_path: Path) -> None:
    """The limit that makes files necessary, and a shell line that keeps it."""
    program = "import sys; from adrbench.handover import received; print(len(received(sys.argv[1])))"
    environment = os.environ | {"PYTHONPATH": str(PYTHONPATH)}

    def shell(word: str) -> subprocess.CompletedProcess[str]:
        line = f"'{sys.executable}' -c '{program}' '{word}'"
        return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True)

    with pytest.raises(OSError, match="Argument list too long"):
        shell(json.dumps("x" * (LONGEST << 1)))
    assert shell(hand_over(LONG, tmp_path)).stdout.strip() == str(len(LONG))
