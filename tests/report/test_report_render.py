"""Whole reports from the example evidence.

What this cannot prove: that the stages write what the example holds, and that the prose reads well.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adrbench.paths import ROOT
from adrbench.report.collect import collect, open_store
from adrbench.report.lookup import Cell, Source, Store
from adrbench.report.markdown import Renderer, render
from adrbench.report.publish import rebase
from adrbench.report.spec import Spec

OUTPUT = "reports/cpu/adr.md"


def text_of(spec: Spec, store: Store | None = None, folder: Path = Path()) -> str:
    report = collect(spec, store or open_store(spec))
    return render(report, spec.language, folder / OUTPUT, spec.languages)


def test_tables_are_whole(spec: Spec) -> None:
    """Every row has as many cells as its heading, in every table."""
    lines = text_of(spec).splitlines()
    width = 0
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, f"line {number + 1}: {line}"


def test_nothing_is_left_open(spec: Spec) -> None:
    text = text_of(spec)
    assert not re.search(r"\bNone\b|Undefined|Phrase\(|Cell\(|\{\w+\}(?!`)", re.sub(r"`[^`]*`", "", text))


def test_links_resolve(spec: Spec, tmp_path: Path) -> None:
    text = text_of(spec, folder=tmp_path)
    anchors = set(re.findall(r'<a id="([es]\d+)"', text))
    targets = set(re.findall(r"\]\(([^)]+)\)", text))
    assert len(anchors) > 20
    for target in targets - {"adr.zh.md", "adr.md"}:
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (tmp_path / OUTPUT).parent.joinpath(target).resolve().is_file(), target


def node_of(data: Any, key: str) -> tuple[Any, str | int]:
    """(container, last key) of a dotted key, whose parts may hold dots themselves."""
    if isinstance(data, list):
        first, _, rest = key.partition(".")
        return (data, int(first)) if not rest else node_of(data[int(first)], rest)
    if key in data:
        return data, key
    name = max((k for k in data if key.startswith(k + ".")), key=len)
    return node_of(data[name], key[len(name) + 1 :])


def changed(value: Any) -> Any:
    """Another value of the same kind, far enough away that no rounding hides it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 1.5 + (1 if value == 0 else 0)
    if isinstance(value, str):
        return f"9999-{value}"
    return type(value)()


def used_sources(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    seen: dict[Source, None] = {}
    show = Renderer.cell

    def spy(self: Renderer, cell: Cell, *args: Any, **kwargs: Any) -> str:
        seen.update(dict.fromkeys(cell.sources))
        return show(self, cell, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Renderer, "cell", spy)
        text_of(spec)
    return list(seen)


@pytest.mark.parametrize("language", ["en"], indirect=True)
def test_every_number_that_is_shown_follows_its_evidence(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change each value that the report names as a source, one at a time: the text changes each time."""
    store, still = open_store(spec), []
    # The lines of sources name keys, not values; without them a render takes half the time.
    monkeypatch.setattr(Renderer, "sources", lambda self: "")
    before = text_of(spec, store)
    # A percentile is the decision stage's mean over rounds, which names the rounds' files as well; a round's
    # number only counts rounds; records of rejections are files of their own; the schemes of the team's rows scale
    # per head or per group, so that their computed ratio is the same for every head size.
    sources = [
        s
        for s in used_sources(spec, monkeypatch)
        if s.document != "rejected" and s.key not in ("round", "measured.head_dim")
    ]
    sources = [s for s in sources if not (s.document.startswith("serve/") and re.search(r"_ms\.p\d\d$", s.key))]
    assert len(sources) > 40
    for source in sources:
        document = store.documents[source.document]
        assert document.data is not None
        original, document.data = document.data, copy.deepcopy(document.data)
        container, key = node_of(document.data, source.key)
        container[key] = changed(container[key])
        if text_of(spec, store) == before:
            still.append(source)
        document.data = original
    assert still == []


def test_rejections_are_counted_by_reason(example: ModuleType, tmp_path: Path) -> None:
    spec = Spec.model_validate(example.build(tmp_path))
    assert "| incomplete | 2 | serve | tier short: 1 of 16 \\| failed |" in text_of(spec)
    assert spec.rejected is not None
    for path in spec.rejected.glob("*.json"):
        path.unlink()
    assert "incomplete | 2" not in text_of(spec)


@pytest.mark.parametrize("language", ["en"], indirect=True)
@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_a_round_in_which_something_happened_once_is_named_under_the_table(spec: Spec) -> None:
    store = open_store(spec)
    before = text_of(spec, store)
    name = next(name for name in sorted(store.documents) if name.startswith("serve/auto/"))
    data = store.documents[name].data
    assert data is not None
    assert "one wait for a token" not in before
    assert "compiled or loaded while" not in before
    store.documents[name].data = changed = copy.deepcopy(data)
    waits = {"longest_ms": [836.2, 326.0, 273.0], "at_s": 0.16}
    changed["measured"]["stalls"] = {**waits, "unusual": False}
    assert text_of(spec, store) == before
    changed["measured"]["stalls"] = {**waits, "unusual": True}
    changed["resolved"]["plugin"] = [{"engine": True, "compiled_late": "load_kernel"}] * 2
    text = text_of(spec, store)
    store.documents[name].data = data
    assert re.search(r"\* .*tier \w+, round 1: one wait for a token of .*836", text)
    assert text.count("compiled or loaded while requests were served: load_kernel.") == 1


@pytest.mark.parametrize("language", ["en"], indirect=True)
@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_arms_whose_products_were_widened_are_named(spec: Spec) -> None:
    store = open_store(spec)
    assert "Products in fp32" not in text_of(spec, store)
    document = store.documents[next(name for name in sorted(store.documents) if name.startswith("serve/fp8-e5m2/"))]
    assert document.data is not None
    document.data = copy.deepcopy(document.data)
    document.data["resolved"]["plugin"] = [{"engine": True, "cpu_products": "fp32 products", "dtype": "bfloat16"}]
    (line,) = [line for line in text_of(spec, store).splitlines() if "Products in fp32" in line]
    assert "this CPU has no instructions" in line
    assert "e5m2" in line
    assert "e4m3" not in line
    document.data["resolved"]["plugin"][0]["asked"] = True
    (line,) = [line for line in text_of(spec, store).splitlines() if "Products in fp32" in line]
    assert "`ADRBENCH_CPU_PRODUCTS` asks" in line
    assert "no instructions" not in line


@pytest.mark.parametrize("language", ["en"], indirect=True)
@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_decode_alone_has_a_table_where_rounds_have_it(spec: Spec) -> None:
    store = open_store(spec)
    assert "TPOT, decode alone" not in text_of(spec, store)
    for arm, millis in (("auto", (20.0, 22.0)), ("fp8-e5m2", (15.0,)), ("fp8-e4m3", (None,))):
        for number, tpot in enumerate(millis, 1):
            name = next(n for n in sorted(store.documents) if n.startswith(f"serve/{arm}/r{number}/"))
            document = store.documents[name]
            assert document.data is not None
            document.data = copy.deepcopy(document.data)
            window = None if tpot is None else {"tpot_ms": {"p50": tpot, "min": tpot, "max": tpot}, "window_s": 1.0}
            document.data["measured"]["decode_window"] = window
    text = text_of(spec, store)
    table = text.split("TPOT, decode alone")[1].split("<sub>")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("| ")]
    assert [row[2:] for row in rows] == [["21.0 ms [20.0, 22.0]", "baseline"], ["15.0 ms", "0.71×"]]


@pytest.mark.parametrize("platform", sorted(path.stem for path in (ROOT / "config/platforms").glob("*.yaml")))
def test_a_platform_without_evidence_is_unverified(example: ModuleType, adr: str, language: str, platform: str) -> None:
    """No file at all: every platform's report renders, and says of each measured cell that nobody measured it."""
    declared = example.platform(platform)
    spec = Spec.model_validate(
        {"platform": declared, "decision": example.decision(adr), "adr": adr, "language": language, "evidence": {}}
    )
    text = text_of(spec)
    word = {"en": "unverified", "zh": "未验证"}[language]
    assert text.count(word) > 10
    banner = {"en": "Nobody has run this platform file", "zh": "尚无人在该设备上运行过此平台文件"}[language]
    assert (banner in text) == (declared.verified == "no")
    assert "[E" not in text


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
@pytest.mark.parametrize("language", ["en"], indirect=True)
class TestStatus:
    """The top of the page follows the computed verdict."""

    def store(self, spec: Spec, **changes: Any) -> Store:
        store = open_store(spec)
        data = store.documents["decide"].data
        assert data is not None
        data |= changes
        return store

    def test_undecided_says_how_many_pairs_are_missing(self, spec: Spec) -> None:
        text = text_of(spec)
        assert "| Status | **Proposed (undecided)** |" in text
        assert "about 927 more sample pairs" in text
        assert "no option has won, bf16 (baseline) keeps serving" in text

    def test_accepted_names_its_option_and_what_to_lock(self, spec: Spec) -> None:
        status = {"word": "Accepted", "option": "FP8 e4m3 per-tensor", "text": {"en": "all passed", "zh": "通过"}}
        text = text_of(spec, self.store(spec, status=status, missing=[]))
        assert "| Status | **Accepted: FP8 e4m3 per-tensor** |" in text
        assert "write the flags of FP8 e4m3 per-tensor into the start script" in text
        assert "4. **Missing.** nothing: all gates are decided" in text

    def test_blocked_points_to_other_platforms(self, spec: Spec) -> None:
        status = {"word": "Blocked", "option": None, "text": {"en": "one backend only", "zh": "仅一个"}}
        text = text_of(spec, self.store(spec, status=status, missing=[]))
        assert "1. **Decision.** Blocked; one backend only" in text
        assert "run a platform whose vLLM can serve at least two of the options" in text

    @pytest.mark.parametrize(
        ("verdict", "sentence"),
        [
            ("passed", "quantised KV helps"),
            ("failed", "Fewer KV bytes cannot buy much"),
            ("undecided", "Nothing follows"),
        ],
    )
    def test_g06_says_what_follows(self, spec: Spec, verdict: str, sentence: str) -> None:
        store = open_store(spec)
        data = store.documents["profile/auto"].data
        assert data is not None
        data["measured"]["g06"]["verdict"] = verdict
        assert sentence in text_of(spec, store)


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
@pytest.mark.parametrize("language", ["en"], indirect=True)
def test_schemes_say_measured_or_why_not(spec: Spec) -> None:
    block = text_of(spec).partition("### C.")[2].partition("###")[0]
    rows = {line.split(" | ")[0].strip("| "): line for line in block.splitlines() if line.startswith("| ")}
    assert rows["INT8 per-tensor"].endswith("| not offered by vLLM 0.27.0 by flag |")
    assert "| – / 0.50× | – / +1.2 [−4.1, +6.3] |" in rows["FP8 e4m3 per-tensor"]
    assert rows["FP8 e4m3 per-tensor"].endswith("| measured |")
    assert "0.31× computed" in rows["KIVI"]


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
@pytest.mark.parametrize("language", ["en"], indirect=True)
def test_checklist_is_done_only_on_the_device_it_asks_for(spec: Spec) -> None:
    here = text_of(spec)
    assert here.count("◐ done here, open on DCU") == 1
    assert "✔ done" not in here
    store = open_store(spec)
    for name, part, change in (
        ("device", "resolved", {"vendor": "hygon"}),
        ("kernels", "measured", {"mode": "device", "proved": ["fp8_e4m3fn"]}),
        ("integrate/L1", "measured", {"ignored": False}),
    ):
        data = store.documents[name].data
        assert data is not None
        data[part] |= change
    there = text_of(spec, store)
    assert there.count("✔ done") == 3
    assert "fp8_e4m3fn proved on the device" in there


@pytest.mark.parametrize("adr", ["adr0010"], indirect=True)
@pytest.mark.parametrize("language", ["en"], indirect=True)
def test_backends_by_architecture_prefer_what_vllm_itself_said(spec: Spec) -> None:
    row = next(line for line in text_of(spec).splitlines() if line.startswith("| ROCM_ATTN | valid"))
    # The example's claims say that gfx936 refuses it, which the device rules do not.
    assert row == "| ROCM_ATTN | valid | refused | valid | valid | refused | ignored |"


def test_a_refusal_that_was_expected_passes_the_smoke(example: ModuleType, tmp_path: Path) -> None:
    """ROCM_AITER_FA on gfx936: the start must fail, and the text of the failure is the evidence."""
    path = tmp_path / "refusal.json"
    example.write_refusal(path, "compute capability not supported")
    evidence = {"integrate": {"refusal-rocm-aiter-fa": path}}
    for adr, expected in (
        ("adr0011", "| refused as expected: compute capability not supported |"),
        ("adr0010", "ROCM_AITER_FA: compute capability not supported"),
    ):
        spec = Spec.model_validate(
            {
                "platform": example.platform("dcu-bw"),
                "decision": example.decision(adr),
                "adr": adr,
                "language": "en",
                "evidence": evidence,
            }
        )
        assert expected in text_of(spec)


def test_links_are_rebased_for_another_folder() -> None:
    text = "[a](../../results/cpu/x.json) [b](#e1) [c](adr.zh.md) [d](https://a.b/c)"
    moved = rebase(text, Path("reports/cpu"), Path("reports"), frozenset({"adr.zh.md"}))
    assert moved == "[a](../results/cpu/x.json) [b](#e1) [c](adr.zh.md) [d](https://a.b/c)"


def test_the_date_is_that_of_the_evidence(spec: Spec) -> None:
    assert "2026-11-29" in text_of(spec)
    assert json.dumps(text_of(spec)) == json.dumps(text_of(spec))


RANDOM = {
    "en": ["**The model's weights are random.**", "not measured: random weights", "Δ not measured (random weights)"],
    "zh": ["**模型权重为随机值。**", "未测量: 权重为随机值", "Δ 未测量 (权重为随机值)"],
}


@pytest.mark.parametrize("adr", ["adr0010", "adr0011"])
def test_random_weights_are_said_plainly(built: dict[str, dict[str, Any]], adr: str, language: str) -> None:
    """At the head, in the accuracy section and in the cells of Δ; nowhere else."""
    real = copy.deepcopy(built[adr]) | {"language": language}
    made_up = copy.deepcopy(real)
    made_up["platform"]["model"] |= {"source": "shape", "shape": "qwen3-8b"}
    made_up["platform"] |= {"eval": {}, "agreement": None, "calibrate": None, "accuracy_platform": "h200-small"}
    made_up["evidence"]["eval"] = {}
    said, otherwise = text_of(Spec.model_validate(made_up)), text_of(Spec.model_validate(real))
    # ADR 0010 of the example is blocked: no option has a Δ to speak of.
    wanted = RANDOM[language] if adr == "adr0011" else RANDOM[language][:2]
    assert [words for words in wanted if words.lower() not in said.lower()] == []
    assert "`reports/h200-small/`" in said
    assert [words for words in [*RANDOM[language], "h200-small"] if words.lower() in otherwise.lower()] == []


def test_block_b_says_which_kernels_take_the_time_and_what_to_change(spec: Spec) -> None:
    """Of a device's trace. Graphs that replay already are no advice, and random weights are in no file."""
    text = text_of(spec)
    if spec.adr != "adr0011":
        assert "class.lever" not in text
        return
    wanted = {
        "en": [
            "another attention backend",
            "replays each step already",
            "loaded them into",
            "by the device's idle time",
        ],
        "zh": ["换 attention backend 或 kernel", "已由 graph 重放", "vLLM 加载所占内存", "依据设备在 step 内"],
    }
    assert [words for words in wanted[spec.language] if words not in text] == []


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_classes_are_the_devices_kernels_where_its_trace_has_them(spec: Spec) -> None:
    """The host's operators only launch there: a decode step was told as 71 % host that a device spent in kernels."""
    store = open_store(spec)
    data = store.documents["profile/auto"].data
    assert data is not None
    for row in data["measured"]["phases"].values():
        row["classes"] = {"copy": 0.9, "gemm": 0.1}
        row["device"] = {"classes": {"gemm": 0.25, "kv_write": 0.75}}
    said = text_of(spec, store)
    table = said[said.index("kv_write") :].split("\n\n")[0]
    assert re.search(r"^kv_write \| 75 % \| 75 % \| 75 % \|$", table, re.MULTILINE)
    assert "copy |" not in table
    heading = {"en": "By class of the device's kernels", "zh": "按设备 kernel 类别"}[spec.language]
    assert heading in said


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_settings_that_differ_at_once_are_one_line_in_words(spec: Spec) -> None:
    """By the arm's title, without the settings' keys, and of a plugin no more than its mechanism."""
    store = open_store(spec)
    data = store.documents["decide"].data
    assert data is not None
    plugin = "L3 base TritonAttentionBackend bytes_per_token_and_layer 2112.0 scheme int8_per_token_head"
    differing = {
        "attention_backend": ("A", "B"),
        "block_size": ("128", "64"),
        "plugin": ("-", plugin),
        "--x": ("1", "2"),
    }
    found = [
        {"arm": "fp8-e5m2", "factor": factor, "baseline": theirs, "value": ours}
        for factor, (theirs, ours) in differing.items()
    ]
    store.documents["decide"].data = data | {"confounded": found}
    lines = [line for line in text_of(spec, store).splitlines() if "**Confounded" in line or "**混杂" in line]
    assert len(lines) == 1
    assert "FP8 e5m2" in lines[0]
    wanted = {
        "en": ["attention backend (B; the baseline: A)", "plugin (L3; the baseline: none)", "`--x` (2; the"],
        "zh": ["attention backend (B; baseline: A)", "插件 (L3; baseline: 无)", "`--x` (2; baseline"],
    }[spec.language]
    assert [words for words in wanted if words not in lines[0]] == []
    assert [raw for raw in ("attention_backend", "block_size", "bytes_per_token", "fp8-e5m2") if raw in lines[0]] == []


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_in_short_names_tier_range_and_gates_in_words(spec: Spec) -> None:
    text = text_of(spec)
    short = text[: text.index("## Context")]
    assert "(G01-Δ)" in short
    assert {"en": "accuracy loss (G01-Δ)", "zh": "精度损失 (G01-Δ)"}[spec.language] in short
    assert {"en": "against bf16 (baseline)", "zh": "相对 bf16 (baseline)"}[spec.language] in short
    # The baseline has two rounds, the arm one: the ratio has a range.
    tier = {
        "en": r"worst tier \((short|medium|long)\) 0\.9\d× \[0\.\d+, 0\.\d+\]",
        "zh": r"一档 \(.*?\) 为其 0\.9\d× \[",
    }
    assert len(re.findall(tier[spec.language], short)) == 2
    assert {"en": "comparisons at 95 %", "zh": "置信度 95 %"}[spec.language] in short


def test_equal_scores_are_not_called_equal_answers(spec: Spec) -> None:
    """What the decide stage counts is pairs with the same score: two wrong answers may read differently."""
    assert not any(words in text_of(spec) for words in ("word for word", "逐字"))


@pytest.mark.parametrize("adr", ["adr0001"], indirect=True)
def test_checks_are_told_by_their_titles(spec: Spec) -> None:
    """Not by the ids of the decision file, at the top and where the record says what would change it."""
    text = text_of(spec)
    short = text[: text.index("## Context")]
    titles = [getattr(check.title, spec.language) for check in spec.decision.checks]  # type: ignore[union-attr]
    assert [title for title in titles if title not in short] == []
    assert not re.search(r"\bfp8 1\b|\bidentified 100", text)


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_brackets_are_explained_where_there_are_some(spec: Spec) -> None:
    store = open_store(spec)
    data = store.documents["decide"].data
    assert data is not None
    told = {"en": "Brackets: intervals", "zh": "方括号: 比较的区间"}[spec.language]
    assert told in text_of(spec)
    store.documents["decide"].data = data | {"options": [option | {"arm": None} for option in data["options"]]}
    assert told not in text_of(spec, store)


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
def test_dissent_and_turning_points_name_metric_and_unit(spec: Spec) -> None:
    text = text_of(spec)
    start = text.index({"en": "## Dissenting", "zh": "## 反面证据"}[spec.language])
    part = text[start : text.index("\n## ", text.index("\n## ", start + 4) + 4)]
    wanted = {
        "en": ["KV pool +", "against a limit of +3.0 points", "in KV pool"],
        "zh": ["KV pool 容量相对 baseline +", "门槛 +3.0 个百分点", "KV pool 容量的收益"],
    }[spec.language]
    assert [words for words in wanted if words not in part] == []
