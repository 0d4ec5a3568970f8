"""Block B where a ceiling contradicts itself: flagged in the tables, in G06 and in the summary, in both languages.

What this cannot prove: that a host which shows no contradiction was quiet.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from adrbench.report.collect import collect, open_store
from adrbench.report.lookup import Store
from adrbench.report.markdown import render
from adrbench.report.spec import Spec

MIB, GIB = 2**20, 2**30
FLAG = {"en": "ot reliable", "zh": "不可靠"}
QUIET = {"en": "measure again on a quiet host", "zh": "请在安静的主机上重新测量"}

pytestmark = pytest.mark.parametrize("adr", ["adr0011"], indirect=True)


def lines_of(spec: Spec, store: Store) -> list[str]:
    return render(collect(spec, store), spec.language, Path("reports/cpu/adr.md"), ["en", "zh"]).splitlines()


def summary(spec: Spec, lines: list[str]) -> str:
    """The line of the bottleneck, which begins with the arm that was profiled."""
    start = {"en": "**Bottleneck.** bf16 (auto): step", "zh": "**瓶颈**: bf16 (auto): step"}[spec.language]
    return next(line for line in lines if start in line)


def row(lines: list[str], *cells: str) -> str:
    return next(line for line in lines if line.startswith("| " + " | ".join(cells) + " |"))


def measured(store: Store, name: str) -> dict[str, Any]:
    """What a document measured, as a copy that a test may change."""
    document = store.documents[name]
    document.data = copy.deepcopy(document.data)
    assert document.data is not None
    found: dict[str, Any] = document.data["measured"]
    return found


def interval(middle: float, spread: float = 0.02) -> dict[str, float]:
    return {"median": middle, "low": middle * (1 - spread), "high": middle * (1 + spread)}


def sizes(store: Store, **speeds: tuple[float, ...]) -> None:
    """Bandwidths in GB/s over 16 MiB, 64 MiB, 256 MiB, 1 GiB and 2 GiB; the last-level cache has 32 MiB."""
    data = measured(store, "ceiling")
    data["last_level_cache_bytes"] = 32 * MIB
    quiet = (54.0, 28.3, 25.3, 26.9, 27.5)
    data["by_size"] = [
        {"bytes": size} | {kind: interval(1e9 * speeds.get(kind, quiet)[step]) for kind in ("read", "write", "copy")}
        for step, size in enumerate((16 * MIB, 64 * MIB, 256 * MIB, GIB, 2 * GIB))
    ]


def test_every_phase_is_in_the_summary(spec: Spec) -> None:
    line = summary(spec, lines_of(spec, open_store(spec)))
    assert {"en": "47 % prefill, 41 % decode, 12 % mixed", "zh": "prefill 47 %, decode 41 %, 混合 12 %"}[
        spec.language
    ] in line


def test_a_profile_without_mixed_steps_names_none(spec: Spec) -> None:
    store = open_store(spec)
    del measured(store, "profile/auto")["phases"]["mixed"]
    line = summary(spec, lines_of(spec, store))
    assert "12 %" not in line
    assert not any(word in line for word in ("mixed", "混合", "unverified", "未验证"))


def test_ceilings_of_a_quiet_host_are_not_doubted(spec: Spec) -> None:
    store = open_store(spec)
    sizes(store)
    assert not any(FLAG[spec.language] in line for line in lines_of(spec, store))


def test_a_phase_above_its_ceiling_is_flagged_everywhere(spec: Spec) -> None:
    store = open_store(spec)
    sizes(store)
    bounds = measured(store, "profile/auto")["bounds"]
    bounds["prefill"]["shares"]["compute"] = {"median": 1.353, "low": 1.169, "high": 1.449}
    lines = lines_of(spec, store)
    prefill = row(lines, "auto", "prefill")
    assert FLAG[spec.language] in prefill
    assert {"en": "135 % [117, 145]: more than all", "zh": "135 % [117, 145]: 超过全部"}[spec.language] in prefill
    # The example's decode leads with launch and bandwidth: another limit, another ceiling.
    assert FLAG[spec.language] not in row(lines, "auto", "decode")
    line = summary(spec, lines)
    assert FLAG[spec.language] in line
    assert "135 % [117, 145]" in line
    assert QUIET[spec.language] in line
    ceiling = next(line for line in lines if "bfloat16 |" in line and "FLOP/s" in line)
    assert {"en": "**not reached**", "zh": "**未测到上限**"}[spec.language] in ceiling


def test_a_doubtful_rate_reaches_every_phase_whose_verdict_rests_on_it(spec: Spec) -> None:
    store = open_store(spec)
    bounds = measured(store, "profile/auto")["bounds"]
    bounds["prefill"]["shares"]["compute"] = interval(1.35)
    bounds["decode"]["leading"] = ["compute", "bandwidth"]
    lines = lines_of(spec, store)
    assert FLAG[spec.language] in row(lines, "auto", "decode")


@pytest.mark.parametrize(("median", "low", "doubted"), [(1.02, 0.97, False), (1.04, 1.01, True), (1.2, 0.9, True)])
def test_noise_around_the_whole_is_no_contradiction(spec: Spec, median: float, low: float, doubted: bool) -> None:
    store = open_store(spec)
    shares = measured(store, "profile/auto")["bounds"]["prefill"]["shares"]
    shares["compute"] = {"median": median, "low": low, "high": median + 0.05}
    lines = lines_of(spec, store)
    assert (FLAG[spec.language] in row(lines, "auto", "prefill")) is doubted
    assert (FLAG[spec.language] in summary(spec, lines)) is doubted


def test_read_ceilings_that_differ_by_two_are_flagged_everywhere(spec: Spec) -> None:
    """As seen beside other load: 16 GB/s over 64 MiB, 32 GB/s over 1 GiB, of which the ceiling was made."""
    store = open_store(spec)
    sizes(store, read=(36.4, 16.2, 14.8, 31.7, 33.5))
    lines = lines_of(spec, store)
    read = next(
        line for line in lines if line.startswith({"en": "| memory read | 9", "zh": "| 内存读 | 9"}[spec.language])
    )
    assert {"en": "**disturbed**", "zh": "**受干扰**"}[spec.language] in read
    for line in (summary(spec, lines), next(line for line in lines if "**G06**" in line)):
        assert FLAG[spec.language] in line
    assert FLAG[spec.language] in row(lines, "auto", "decode")
    assert FLAG[spec.language] not in row(lines, "auto", "prefill")
    note = next(
        line for line in lines if line.startswith({"en": "**Not reliable.**", "zh": "**不可靠。**"}[spec.language])
    )
    assert "14.8 GB/s" in note
    assert "33.5 GB/s" in note
    # Nothing follows from a gate that rests on such a ceiling.
    follows = {"en": "Fewer KV bytes cannot buy much", "zh": "减少 KV"}[spec.language]
    assert follows not in next(line for line in lines if "**G06**" in line)


def test_a_cache_that_still_holds_half_of_a_set_is_no_disturbance(spec: Spec) -> None:
    store = open_store(spec)
    sizes(store, read=(80.0, 50.0, 27.0, 26.9, 27.5))
    assert not any(FLAG[spec.language] in line for line in lines_of(spec, store))


def test_uneven_writes_are_flagged_without_touching_a_verdict(spec: Spec) -> None:
    store = open_store(spec)
    sizes(store, write=(32.4, 17.3, 17.0, 13.8, 25.5))
    lines = lines_of(spec, store)
    write = next(
        line for line in lines if line.startswith({"en": "| memory write | 7", "zh": "| 内存写 | 7"}[spec.language])
    )
    assert {"en": "**disturbed**", "zh": "**受干扰**"}[spec.language] in write
    assert FLAG[spec.language] not in summary(spec, lines)
    assert FLAG[spec.language] not in row(lines, "auto", "decode")


def test_uneven_writes_doubt_the_verdict_where_they_made_the_ceiling(spec: Spec) -> None:
    """Where memory was seen to write quicker than a reduction reads, bandwidth is held against that."""
    store = open_store(spec)
    sizes(store, write=(32.4, 17.3, 17.0, 13.8, 25.5))
    measured(store, "profile/auto")["decode"]["ceiling_bytes_per_s"]["kind"] = "write"
    lines = lines_of(spec, store)
    assert FLAG[spec.language] in summary(spec, lines)
    assert FLAG[spec.language] in row(lines, "auto", "decode")


def with_second_starts(spec: Spec) -> tuple[Spec, Store]:
    """The example with a second start of each arm that differs a little from its first."""
    spec = spec.model_copy(deep=True)
    for arm in ("fp8-e4m3", "fp8-e5m2"):
        spec.evidence.serve[arm]["2"] = spec.evidence.serve[arm]["1"]
    store = open_store(spec)
    for name in store.names("serve/fp8"):
        if "/r2/" in name:
            measured(store, name)["tpot_ms"]["p50"] *= 1.04
    return spec, store


def outcomes(lines: list[str]) -> list[str]:
    """Last cells of the table of predictions."""
    heading = next(n for n, line in enumerate(lines) if line.startswith(("| Arm | Where |", "| arm | 场景 |")))
    rows = []
    for line in lines[heading + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(line.split(" | ")[-1].strip(" |"))
    return rows


def test_one_start_of_an_arm_agrees_with_no_prediction(spec: Spec) -> None:
    """The range over starts of the baseline alone says nothing about the arm's."""
    told = {"en": "one start of the arm or the baseline has no range", "zh": "只启动一次, 无法给出范围"}[spec.language]
    found = outcomes(lines_of(spec, open_store(spec)))
    assert len(found) == 6
    assert all(told in outcome for outcome in found)


def test_predictions_and_levers_that_rest_on_a_doubtful_ceiling_say_so(spec: Spec) -> None:
    spec, store = with_second_starts(spec)
    quiet = outcomes(lines_of(spec, store))
    assert not any(FLAG[spec.language] in outcome for outcome in quiet)
    sizes(store, read=(36.4, 16.2, 14.8, 31.7, 33.5))
    lines = lines_of(spec, store)
    assert all(FLAG[spec.language] in outcome for outcome in outcomes(lines))
    lever = next(
        line for line in lines if line.startswith({"en": "| quantise KV to", "zh": "| KV 量化"}[spec.language])
    )
    assert FLAG[spec.language] in lever
    # What falls away with launching does not rest on the bandwidth.
    other = next(
        line for line in lines if line.startswith({"en": "| compile, graphs", "zh": "| compile"}[spec.language])
    )
    assert FLAG[spec.language] not in other


def test_noise_that_two_starts_cannot_bound_is_not_left_blank(spec: Spec) -> None:
    store = open_store(spec)
    document = store.documents["decide"]
    document.data = copy.deepcopy(document.data)
    assert document.data is not None
    for metrics in document.data["noise"].values():
        for noise in metrics.values():
            noise["floor"] = None
    told = {"en": "| unbounded: too few starts |", "zh": "| 无界: 启动次数太少 |"}[spec.language]
    assert any(line.endswith(told) for line in lines_of(spec, store))


@pytest.mark.parametrize("share", [0.95, 1.04, 1.3])
def test_a_phase_above_the_roof_is_told_below_the_figure(spec: Spec, share: float) -> None:
    store = open_store(spec)
    rate = measured(store, "ceiling")["matmul_flop_per_s"]["bfloat16"]["median"]
    bounds = measured(store, "profile/auto")["bounds"]
    del bounds["decode"]
    bound = bounds["prefill"]
    bound |= {"matrix_dtype": "bfloat16", "flops_per_byte": 1e9, "flops": share * rate, "seconds": interval(1.0)}
    lines = lines_of(spec, store)
    told = [line for line in lines if line.startswith(("**Above the roof**", "**高于屋顶**"))]
    assert len(told) == (share > 1)
    for line in told:
        assert {"en": f"prefill of auto at {share:.0%}", "zh": f"auto 的 prefill, 为其 {share:.0%}"}[
            spec.language
        ].replace("%", " %") in line
        assert {"en": "counts too many FLOP or bytes", "zh": "偏高"}[spec.language] in line
