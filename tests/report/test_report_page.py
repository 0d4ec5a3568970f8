"""The page as a file: what comes from evidence stays text, links resolve, nothing is loaded from elsewhere.

What this cannot prove: that a browser draws it (test_report_page_browser.py does).
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from adrbench.paths import PYTHONPATH
from adrbench.report.figures.__main__ import write as write_figures
from adrbench.report.page.__main__ import render
from adrbench.report.page.__main__ import write as write_page
from adrbench.report.page.html import value_at, words
from adrbench.report.publish import PAGE_LINK, rebase
from adrbench.report.site import SiteSpec, load

LARGEST = 5_000_000
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`</style>"


class Reader(HTMLParser):
    """Tags and attributes of a page, and its scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reader(text: str) -> Reader:
    return Reader(text)


def test_the_page_is_small_and_loads_nothing(text: str, reader: Reader) -> None:
    assert len(text.encode()) < LARGEST
    assert not [tag for tag, attributes in reader.tags if "src" in attributes or tag in ("link", "iframe", "object")]
    assert not re.search(r"url\(|@import", text.partition("</style>")[0])


def test_every_link_leads_somewhere(page: Path, reader: Reader) -> None:
    ids = {attributes["id"] for _, attributes in reader.tags if "id" in attributes}
    targets = {attributes["href"] for tag, attributes in reader.tags if tag == "a"}
    assert len(targets) > 40
    for target in sorted(filter(None, targets)):
        if target.startswith("#"):
            assert target[1:] in ids, target
        else:
            assert (page.parent / target).is_file(), target


def test_ids_are_unique_and_controls_labelled(reader: Reader) -> None:
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.tags:
        if attributes.get("role") in ("region", "group", "img", "search"):
            assert attributes.get("aria-label"), (tag, attributes)


def test_the_policy_allows_exactly_the_pages_own_scripts(reader: Reader) -> None:
    policy = next(a["content"] for tag, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    own = ["sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in reader.scripts[1:]]
    assert sorted(re.findall(r"'(sha256-[^']+)'", policy)) == sorted(own)
    assert len(own) == 2


def test_no_element_has_an_inline_handler(reader: Reader) -> None:
    assert not [(tag, name) for tag, attributes in reader.tags for name in attributes if name.startswith("on")]


def test_every_number_names_a_file_and_a_key_that_holds_it(reader: Reader, page: Path) -> None:
    data = json.loads(reader.scripts[0])
    root = next(a["data-root"] for tag, a in reader.tags if tag == "html")
    assert len(data["sources"]) > 100
    for group in data["sources"]:
        for file, key, value in group:
            path = data["files"][file]
            if path.startswith("("):
                continue
            found = value_at(json.loads((page.parent / str(root) / path).read_text(encoding="utf-8")), key)
            assert value in (str(found), str(found)[:159] + "…"), (path, key)


def evil_spec(example: ModuleType, folder: Path) -> dict[str, Any]:
    """The example with markup in every text that a user or a server can write."""
    spec: dict[str, Any] = example.site(folder)
    spec["platform"]["title"] = spec["decisions"][0]["decision"]["title"] = {"en": EVIL, "zh": EVIL}
    spec["decisions"][0]["decision"]["question"] = {"en": EVIL, "zh": EVIL}
    spec["platform"]["arms"][1]["title"] = {"en": EVIL, "zh": EVIL}
    claims = Path(spec["claim_files"][0])
    entries = yaml.safe_load(claims.read_text(encoding="utf-8"))
    entries["claims"][0]["statement"] = {"en": EVIL, "zh": EVIL}
    claims.write_text(yaml.safe_dump(entries), encoding="utf-8")
    for path, change in (
        (folder / "results/cpu/device.json", lambda d: d["resolved"].update(name=EVIL)),
        (Path(spec["decisions"][0]["evidence"]["decide"]), lambda d: d["missing"].append({"en": EVIL, "zh": EVIL})),
        (folder / "results/cpu/claims.json", lambda d: d["measured"].update(version=EVIL)),
        (folder / "results/cpu/rejected/serve-0.json", lambda d: d.update(message=EVIL, reason=EVIL)),
    ):
        data = json.loads(path.read_text(encoding="utf-8"))
        change(data)
        path.write_text(json.dumps(data), encoding="utf-8")
    return spec


def test_markup_in_evidence_and_configuration_stays_text(example: ModuleType, tmp_path: Path, reader: Reader) -> None:
    spec = SiteSpec.model_validate(evil_spec(example, tmp_path))
    write_figures(load(spec), tmp_path / "reports/figures")
    write_page(spec, tmp_path / "reports/index.html")
    found = Reader((tmp_path / "reports/index.html").read_text(encoding="utf-8"))
    assert [tag for tag, _ in found.tags].count("script") == 3
    assert not [tag for tag, _ in found.tags if tag == "img"]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert "alert(1)" in (tmp_path / "reports/index.html").read_text(encoding="utf-8")
    assert EVIL in json.loads(found.scripts[0])["texts"]["page.title"]["en"]


def test_a_platform_without_evidence_renders(example: ModuleType, tmp_path: Path) -> None:
    for name in ("h200", "dcu-bw"):
        platform = example.platform(name).model_dump(mode="json")
        adrs = ("adr0010", "adr0011", "adr0003")
        decisions = [{"adr": adr, "decision": example.decision(adr)} for adr in adrs]
        spec = SiteSpec.model_validate({"platform": platform, "decisions": decisions})
        write_figures(load(spec), tmp_path / "figures")
        write_page(spec, tmp_path / "index.html")
        text = (tmp_path / "index.html").read_text(encoding="utf-8")
        assert text.count("unverified") > 10
        assert not re.search(r">\s*None\s*<", text)
        assert "data-e=" not in text.partition('<script type="application/json"')[0]


def test_texts_have_both_languages_and_are_used() -> None:
    folder = Path(__file__).parents[2] / "src/report/page"
    own = yaml.safe_load((folder / "texts.yaml").read_text(encoding="utf-8"))
    source = "".join(
        path.read_text(encoding="utf-8") for path in folder.glob("*") if path.suffix in (".py", ".j2", ".js")
    )
    for key, text in own.items():
        assert set(text) == {"en", "zh"}
        stem = key.rpartition(".")[0]
        assert f'"{key}"' in source or f"'{key}'" in source or f'"{stem}." ~' in source, key
        assert words()[key] == text


def test_a_published_page_keeps_its_links(page: Path, text: str, tmp_path: Path) -> None:
    moved = rebase(text, page.parent, tmp_path / "reports", frozenset({"adr0011.md"}), PAGE_LINK)
    argv = [sys.executable, "-m", "adrbench.report.publish", str(page), "--to", str(tmp_path / "reports")]
    subprocess.run([*argv, "--beside", "adr0011.md"], env=os.environ | {"PYTHONPATH": str(PYTHONPATH)}, check=True)
    assert (tmp_path / "reports/index.html").read_text(encoding="utf-8") == moved
    reader = Reader(moved)
    files = {a["href"] for tag, a in reader.tags if tag == "a" and not str(a["href"]).startswith("#")}
    assert len(files) > 30
    assert all((tmp_path / "reports" / str(target)).resolve().is_file() for target in files)


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "adrbench.report.page",
        "--spec",
        '{"colour": 1}',
        "--output",
        str(tmp_path / "x.html"),
    ]
    done = subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(PYTHONPATH)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "colour: Extra inputs are not permitted" in done.stderr
    assert "Traceback" not in done.stderr


def test_random_weights_are_said_at_the_top(example: ModuleType, tmp_path: Path, text: str) -> None:
    spec = example.site(tmp_path)
    spec["platform"]["model"] |= {"source": "shape", "shape": "qwen3-8b"}
    spec["platform"] |= {"eval": {}, "agreement": None, "calibrate": None}
    site = SiteSpec.model_validate(spec)
    write_figures(load(site), tmp_path / "reports/cpu/figures")
    write_page(site, tmp_path / "reports/cpu/index.html")
    said = "weights are random"
    assert said in (tmp_path / "reports/cpu/index.html").read_text(encoding="utf-8")
    assert said not in text


@pytest.mark.parametrize("probed", [True, False])
def test_an_unverified_platform_tells_whether_its_device_was_measured(
    site_spec: dict[str, Any], page: Path, probed: bool
) -> None:
    changed = copy.deepcopy(site_spec)
    changed["platform"]["verified"] = "no"
    if not probed:
        for decision in changed["decisions"]:
            decision["evidence"]["device"] = None
    figures = page.parent / "figures/figures.json"
    text = render(load(SiteSpec.model_validate(changed)), page.with_name("other.html"), figures, "")
    notices = " ".join(re.findall(r'<p class="notice">(.*?)</p>', text, flags=re.DOTALL))
    measured = ("Measured on the declared device", "已在声明的设备上实测")
    nobody = ("Nobody has run this platform file", "尚无人在该设备上运行过此平台文件")
    for told, hidden in zip(measured, nobody, strict=True) if probed else zip(nobody, measured, strict=True):
        assert told in notices
        assert hidden not in notices
    assert ("Example CPU" in notices) is probed


def test_the_notice_names_the_starts_of_the_decision_that_has_most(site_spec: dict[str, Any], page: Path) -> None:
    changed = copy.deepcopy(site_spec)
    changed["platform"]["verified"] = "no"
    first = changed["decisions"][0]["evidence"]
    first["serve"] = {arm: dict(list(rounds.items())[:1]) for arm, rounds in list(first["serve"].items())[:1]}
    figures = page.parent / "figures/figures.json"
    text = render(load(SiteSpec.model_validate(changed)), page.with_name("other.html"), figures, "")
    notice = re.sub(r"<[^>]+>", "", text[text.index("Measured on the declared device") :][:2000])
    assert "(4 server starts)" in notice
