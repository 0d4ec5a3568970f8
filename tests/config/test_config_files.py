"""Files and main configurations that nobody meant: each is refused in words, at once, and none ends in a traceback."""

from __future__ import annotations

import pytest
import yaml
from adrbench.config import ConfigError, load
from adrbench.config.decision import model_of
from adrbench.config.files import MOST_VALUES, read_yaml
from adrbench.config.main import Main
from adrbench.config.parse import SHOWN_PROBLEMS, parse
from adrbench.paths import ROOT

MAIN = {"platform": "cpu", "adrs": ["adr0010"]}
# Nine aliases of nine aliases and so on: 9 ** 9 values in 300 bytes.
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES = {
    "not-utf-8": (b"a: \xff\n", "UTF-8"),
    "utf-16": ("a: 1\n".encode("utf-16"), "UTF-8"),
    "tabs": (b"a:\n\tb: 1\n", "line 2"),
    "nul": (b"a: 1\n\0", "control characters"),
    "two-documents": (b"a: 1\n---\nb: 1\n", "another document"),
    "bomb": (BOMB.encode(), f"more than {MOST_VALUES} values"),
    "deep": (b"a: " + b"[" * 5000, "nesting"),
    "nested": (b"a: " + b"[" * 900 + b"]" * 900, "levels"),
    "within-itself": (b"a: &a [*a]\n", "recursive"),
    "python": (b"a: !!python/object/apply:os.getcwd []\n", "tag"),
    "set-for-a-key": (b"? !!set {a}\n: 1\n", "plain text"),
    "no-such-day": (b"a: 2024-13-45\n", "month"),
    "number-of-5000-digits": (b"a: " + b"9" * 5000 + b"\n", "digits"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_is_refused_by_name(tmp_path, case):
    content, wanted = FILES[case]
    path = tmp_path / "one.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=wanted) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)


def test_a_folder_or_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/one.yaml", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match="a YAML file that can be read"):
            read_yaml(path)


def test_aliases_as_people_use_them_are_read(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n")
    assert read_yaml(path) == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": [{"x": 1}, {"x": 1}]}
    path.write_text("# nothing\n")
    assert read_yaml(path) is None


MAINS = {
    "adr-twice": ({"adrs": ["adr0010", "adr0010"]}, ["adrs", "'adr0010' is used twice"]),
    "language-twice": ({"report": {"languages": ["en", "en"]}}, ["report.languages", "'en' is used twice"]),
    "version": ({"claims": {"versions": ["$(reboot)"]}}, ["claims.versions[0]", "pattern"]),
    "no-version": ({"claims": {"versions": []}}, ["claims.versions", "at least 1"]),
    "no-such-claims": ({"claims": {"files": ["adr0099"]}}, ["claims.files", "'adr0099'", "learning"]),
    "claims-elsewhere": ({"claims": {"files": ["../x"]}}, ["claims.files[0]", "pattern"]),
    "budget": ({"budget_minutes": float("inf")}, ["budget_minutes", "inf", "finite"]),
    "path-with-nul": ({"policies": "a\0b"}, ["policies", "control characters"]),
}


@pytest.mark.parametrize("case", MAINS)
def test_a_main_configuration_is_refused_by_key(case):
    values, wanted = MAINS[case]
    with pytest.raises(ConfigError) as caught:
        load(MAIN | values)
    for text in ("config/config.yaml", *wanted):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("adr", "key"), [("adr0010", "options"), ("adr0010", "gates"), ("adr0001", "checks"), ("adr0009", "rules")]
)
def test_an_entry_of_a_decision_stands_once(adr, key):
    """Twice, it would be compared, and corrected for, twice."""
    data = yaml.safe_load((ROOT / f"config/decisions/{adr}.yaml").read_text())
    data[key].append(data[key][0])
    with pytest.raises(ConfigError, match=f"{key}: the name .* is used twice"):
        parse(model_of(data), data, adr)


def test_many_problems_and_long_values_stay_readable():
    values = MAIN | {"adrs": [1] * 500, "x": "y" * 10_000}
    with pytest.raises(ConfigError) as caught:
        parse(Main, values, "config.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == SHOWN_PROBLEMS + 1
    assert lines[-1] == f"config.yaml: {501 - SHOWN_PROBLEMS} further problems"
    assert max(map(len, lines)) < 500
