"""The "Next step" of a record: what could still change the decision, why it is open, and what was run already.

What this cannot prove: that a planned number of pairs or rounds really decides.
"""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from adrbench import evidence
from adrbench.config.platform import Platform
from adrbench.evidence import Evidence
from adrbench.paths import ROOT
from adrbench.report.collect import collect, open_store
from adrbench.report.lookup import Store
from adrbench.report.markdown import render
from adrbench.report.spec import Spec

E4M3, E5M2 = "FP8 e4m3 per-tensor", "FP8 e5m2 per-tensor"
TITLES = {"en": "**Next step.**", "zh": "**下一步**"}
NOBODY = {"en": "Nobody has run this platform file", "zh": "尚无人在该设备上运行过此平台文件"}
RUN = {"en": "run this platform file on the device", "zh": "在该设备上运行此平台文件"}
# The bounds of an interval that holds the limit of 3 points, and of one that does not.
HOLDS, MISSES = {"value": 3.1, "low": -4.1, "high": 9.9}, {"value": 14.9, "low": 3.4, "high": 26.0}


def text_of(spec: Spec, store: Store | None = None) -> str:
    return render(collect(spec, store or open_store(spec)), spec.language, Path("reports/cpu/adr.md"), ["en", "zh"])


def next_step(spec: Spec, store: Store | None = None) -> str:
    return item(text_of(spec, store), TITLES[spec.language])


def item(text: str, title: str) -> str:
    """One numbered line of the summary with the points below it."""
    lines = text[text.index(title) :].splitlines()
    points = itertools.takewhile(lambda line: line.startswith("   - "), lines[1:])
    return "\n".join([lines[0], *points])


def with_gates(spec: Spec, changes: dict[str, dict[str, Any]], metric: str = "accuracy_delta") -> Store:
    """The example with the gates of a metric changed, by option; undecided unless a change says otherwise."""
    store = open_store(spec)
    data = copy.deepcopy(store.documents["decide"].data)
    assert data is not None
    for option in data["options"]:
        for gate in option["gates"]:
            if option["name"] in changes and gate["metric"] == metric:
                gate.update({"verdict": "undecided", "pairs_needed": None} | changes[option["name"]])
    store.documents["decide"].data = data
    return store


def names(store: Store) -> dict[str, str]:
    """Name of the option by its arm."""
    return {option["arm"]: option["name"] for option in store.raw("decide", "options") if option["arm"]}


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
class TestComparison:
    def changed(self, spec: Spec, e4m3: dict[str, Any], e5m2: dict[str, Any]) -> Store:
        known = names(open_store(spec))
        return with_gates(spec, {known["fp8-e4m3"]: e4m3, known["fp8-e5m2"]: e5m2})

    def test_the_option_that_needs_the_fewest_pairs_comes_first(self, spec: Spec) -> None:
        line = next_step(spec, self.changed(spec, HOLDS | {"pairs_needed": 4321}, HOLDS | {"pairs_needed": 876}))
        first = {"en": f"{E5M2} first, which needs the fewest", "zh": f"先看 {E5M2}"}[spec.language]
        assert first in line
        # 876 more to the 28 there are: 33 times as many, rounded up.
        assert {"en": "about 876 more sample pairs", "zh": "约再需 876 个样本对"}[spec.language] in line
        assert {"en": "to about 33 times", "zh": "调到约 33 倍"}[spec.language] in line
        assert line.index("876") < line.index("4,321")

    def test_an_option_that_is_out_asks_for_nothing(self, spec: Spec) -> None:
        store = self.changed(spec, HOLDS | {"pairs_needed": 4321}, HOLDS | {"pairs_needed": 876})
        for option in store.raw("decide", "options"):
            if option["arm"] == "fp8-e5m2":
                option["gates"][0]["verdict"] = "failed"
        line = next_step(spec, store)
        assert "876" not in line
        assert E5M2 not in line
        assert "4,321" in line

    def test_too_near_is_said_where_the_interval_holds_the_limit_and_nothing_can_be_planned(self, spec: Spec) -> None:
        line = next_step(spec, self.changed(spec, HOLDS, HOLDS))
        near = {"en": "Δ lies too near its limit to be decided by more samples", "zh": "Δ 离门槛太近"}[spec.language]
        instead = {"en": "larger model", "zh": "更大的模型"}[spec.language]
        assert f"{E4M3}, {E5M2}: {near}" in line
        assert instead in line
        assert "`samples`" not in line

    def test_what_the_correction_left_open_is_not_near_its_limit(self, spec: Spec) -> None:
        line = next_step(spec, self.changed(spec, MISSES, HOLDS | {"pairs_needed": 876}))
        told = {"en": "not after the correction for several comparisons", "zh": "经多重比较校正后不成立"}[spec.language]
        assert f"{E4M3}: Δ" in line
        assert told in line
        assert not any(word in line for word in ("too near", "太近"))
        note = {"en": "decide the accuracy gate by themselves, but not after", "zh": "单独看已可判定精度 gate"}
        store = self.changed(spec, MISSES, HOLDS)
        for arm in store.raw("decide", "accuracy").values():
            arm["more_pairs"] = None
        assert note[spec.language] in text_of(spec, store)

    def test_what_was_not_measured_says_what_would_give_it(self, spec: Spec) -> None:
        lacking = {"en": "the accuracy run of arm fp8-e4m3", "zh": "arm fp8-e4m3 的精度评测"}
        gone = {"value": None, "low": None, "high": None, "needs": lacking}
        line = next_step(spec, self.changed(spec, gone, HOLDS | {"pairs_needed": 876}))
        assert {"en": "Δ is not measured: supply ", "zh": "Δ 未测量: 请补充"}[spec.language] + lacking[
            spec.language
        ] in line
        assert not any(word in line for word in ("too near", "太近"))

    def test_rounds_go_by_the_option_that_needs_the_fewest(self, spec: Spec) -> None:
        known = names(open_store(spec))
        e4m3 = {"rounds_needed": 71, "value": 1.4, "low": 1.2, "high": 1.6}
        store = with_gates(
            spec, {known["fp8-e4m3"]: e4m3, known["fp8-e5m2"]: e4m3 | {"rounds_needed": 6}}, metric="ttft_ms"
        )
        line = next_step(spec, store)
        assert {"en": "`serve.rounds` to about 6", "zh": "`serve.rounds` 调到约 6"}[spec.language] in line
        assert "71" not in line

    def test_a_ratio_too_near_its_limit_is_not_answered_by_more_rounds(self, spec: Spec) -> None:
        known = names(open_store(spec))
        near = {"value": 1.49, "low": 1.2, "high": 1.8, "rounds_needed": None}
        line = next_step(spec, with_gates(spec, {known["fp8-e4m3"]: near}, metric="ttft_ms"))
        assert {"en": "too near its limit to be decided by more rounds", "zh": "无法靠增加轮次判定"}[
            spec.language
        ] in line
        assert "`serve.rounds`" not in line


def published_strategy(example: ModuleType, language: str) -> Spec:
    """ADR 0009 over the verdict that is published of it."""
    return Spec.model_validate(
        {
            "platform": example.platform("cpu-kv"),
            "decision": example.decision("adr0009"),
            "adr": "adr0009",
            "language": language,
            "evidence": {"decide": ROOT / "docs/evidence/cpu-kv/decide_adr0009.json"},
        }
    )


@pytest.mark.parametrize("language", ["en", "zh"], indirect=True)
class TestStrategy:
    def test_it_is_held_up_by_its_required_schemes_alone(self, example: ModuleType, language: str) -> None:
        """The required schemes need 1,387 and 3,087 pairs, one that comes after them 23,241."""
        line = next_step(published_strategy(example, language))
        assert "FP8 e4m3fnuz per-head" in line
        assert line.index("1,387") < line.index("3,087")
        assert "INT8 per-head" in line
        assert "23,241" not in line

    def test_its_summary_says_by_how_much_and_what_serves_meanwhile(self, example: ModuleType, language: str) -> None:
        text = text_of(published_strategy(example, language))
        first, second = {"en": ("**Decision.**", "**By how much.**"), "zh": ("**决策**", "**差多少**")}[language]
        assert {"en": "keeps serving", "zh": "继续使用"}[language] in item(text, first)
        assert "INT8 per-head: Δ" in item(text, second)

    def test_schemes_without_an_arm_cannot_be_decided_by_those_that_come_after(
        self, example: ModuleType, language: str
    ) -> None:
        spec = published_strategy(example, language)
        store = open_store(spec)
        for scheme in store.raw("decide", "strategy", "schemes"):
            if scheme["role"] == "must":
                scheme |= {"arm": None, "gate": None, "reason": {"en": "no arm for it", "zh": "没有对应的 arm"}}
        assert not any(word in next_step(spec, store) for word in ("more sample pairs", "个样本对"))
        lines = text_of(spec, store).splitlines()
        reason = {"en": "no arm for it", "zh": "没有对应的 arm"}[language]
        assert f"- INT8 per-head: {reason}" in lines

    def test_an_excluded_required_scheme_without_an_arm_leaves_the_choice_to_those_that_come_after(
        self, example: ModuleType, language: str
    ) -> None:
        spec = published_strategy(example, language)
        store = open_store(spec)
        for scheme in store.raw("decide", "strategy", "schemes"):
            if scheme["role"] == "must":
                scheme |= {"arm": None, "gate": None, "eligible": False, "excluded_by": ["G10"]}
        assert {"en": "more sample pairs", "zh": "个样本对"}[language] in next_step(spec, store)

    def test_more_pairs_for_an_excluded_scheme_name_what_excludes_it(self, example: ModuleType, language: str) -> None:
        text = text_of(published_strategy(example, language))
        told = {"en": "INT8 per-tensor, which G10 excludes unless", "zh": "INT8 per-tensor (被 G10 排除"}[language]
        assert f"- {told}" in text


@pytest.mark.parametrize("adr", ["adr0011"], indirect=True)
class TestThroughputBesideNoise:
    """The example: 0.93 and 0.90 times the baseline's throughput, equal arms differ by up to 8.3 %."""

    def numbers(self, spec: Spec, noise: dict[str, Any]) -> str:
        store = open_store(spec)
        data = copy.deepcopy(store.documents["decide"].data)
        assert data is not None
        for metrics in data["noise"].values():
            metrics["output_tokens_per_s"].update(noise)
        store.documents["decide"].data = data
        title = {"en": "**By how much.**", "zh": "**差多少**"}[spec.language]
        return item(text_of(spec, store), title)

    def test_a_ratio_inside_the_noise_says_so(self, spec: Spec) -> None:
        line = self.numbers(spec, {})
        assert line.count({"en": "(inside the A/A noise)", "zh": "(在 A/A 噪声之内)"}[spec.language]) == 1

    def test_too_few_starts_to_know_the_noise_says_so(self, spec: Spec) -> None:
        line = self.numbers(spec, {"floor": None, "least": {"1": None, "2": 0.2}})
        assert line.count({"en": "(too few starts to tell", "zh": "(启动次数太少"}[spec.language]) == 2

    def test_a_ratio_beyond_the_noise_stands_alone(self, spec: Spec) -> None:
        line = self.numbers(spec, {"floor": 0.02, "least": {"1": 0.02, "2": 0.5}})
        assert not any(word in line for word in ("noise", "噪声"))


def h200(example: ModuleType, language: str, **paths: Any) -> Spec:
    """ADR 0010 of the H200 host as published, with further evidence."""
    return Spec.model_validate(
        {
            "platform": example.platform("h200-8b"),
            "decision": example.decision("adr0010"),
            "adr": "adr0010",
            "language": language,
            "evidence": {"decide": ROOT / "docs/evidence/h200/pipeline/decide_adr0010.json", **paths},
        }
    )


@pytest.mark.parametrize("language", ["en", "zh"], indirect=True)
def test_random_weights_are_no_matter_of_samples(example: ModuleType, language: str) -> None:
    line = next_step(h200(example, language))
    assert {"en": "here they are random", "zh": "权重为随机值"}[language] in line
    assert "platform `h200-small`" in line or "平台 `h200-small`" in line  # its accuracy is in the document
    assert not any(word in line for word in ("too near", "太近", "`samples`"))


def write(folder: Path, stage: str, name: str, platform: str = "h200-8b", **parts: Any) -> Path:
    path = folder / f"{name.replace('/', '-')}.json"
    at = "2026-11-30T14:00:00.000+00:00"
    evidence.write(
        path,
        Evidence(stage=stage, platform=platform, started_at=at, finished_at=at, **parts),  # type: ignore[arg-type]
    )
    return path


def device(folder: Path, declared: Platform, **changes: str) -> Path:
    found = {"vendor": declared.device.vendor, "arch": declared.device.arch, "name": "the card itself", "runtime": "x"}
    return write(folder, "device", "device", declared.name, resolved=found | changes)


def rounds(folder: Path) -> dict[str, Any]:
    return {
        arm: {
            str(number): {
                "1k-4k": write(
                    folder,
                    "serve",
                    f"serve/{arm}/{number}",
                    arm=arm,
                    round=number,
                    tier="1k-4k",
                    resolved={"attention_backend": "X"},
                    measured={"completed": 1},
                )
            }
            for number in (1, 2)
        }
        for arm in ("triton-attn", "flash-attn")
    }


@pytest.mark.parametrize("language", ["en", "zh"], indirect=True)
class TestUnverifiedPlatform:
    def test_rounds_of_the_declared_device_are_told(self, example: ModuleType, language: str, tmp_path: Path) -> None:
        declared = example.platform("h200-8b")
        spec = h200(example, language, device=device(tmp_path, declared), serve=rounds(tmp_path))
        text, line = text_of(spec), next_step(spec)
        assert NOBODY[language] not in text
        told = {"en": "on the card itself (4 server starts)", "zh": "测得, 共 4 次 server 启动"}[language]
        assert told in text
        assert {"en": "have not set `verified` yet", "zh": "尚未设置 `verified`"}[language] in text
        assert RUN[language] not in line
        assert {"en": "for the maintainers", "zh": "维护者"}[language] in line

    @pytest.mark.parametrize("changes", [{"arch": "sm_80"}, {"vendor": "amd"}])
    def test_rounds_of_another_device_are_none(
        self, example: ModuleType, language: str, tmp_path: Path, changes: dict[str, str]
    ) -> None:
        declared = example.platform("h200-8b")
        spec = h200(example, language, device=device(tmp_path, declared, **changes), serve=rounds(tmp_path))
        assert NOBODY[language] in text_of(spec)
        assert RUN[language] in next_step(spec)

    def test_a_device_that_was_only_probed_has_run_nothing(
        self, example: ModuleType, language: str, tmp_path: Path
    ) -> None:
        spec = h200(example, language, device=device(tmp_path, example.platform("h200-8b")))
        assert NOBODY[language] in text_of(spec)
        assert RUN[language] in next_step(spec)

    @pytest.mark.parametrize("platform", ["dcu-bw", "dcu-k100ai", "mi300x"])
    def test_amd_and_dcu_stay_plainly_unverified(self, example: ModuleType, language: str, platform: str) -> None:
        spec = Spec.model_validate(
            {
                "platform": example.platform(platform),
                "decision": example.decision("adr0010"),
                "adr": "adr0010",
                "language": language,
                "evidence": {},
            }
        )
        assert NOBODY[language] in text_of(spec)
        assert next_step(spec).partition(TITLES[language])[2].lstrip(": \n-").startswith(RUN[language])
