"""How many splits: the model of decode's time against what an H200 measured, the counts it takes, the benchmark.

Cannot prove: that a count is faster; only ``decode_splits.py`` on a GPU can. The benchmark runs in the interpreter,
with caches, kernels and checks as on a GPU, and a clock that says 20 us.
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def facts(facts_of):
    return facts_of("splits_facts.py")


@pytest.fixture(scope="module")
def run(facts):
    return facts["bench"]["run"]


def test_the_model_gives_back_what_it_was_fitted_to(facts):
    assert facts["fitted"]["rows"] == 90
    assert facts["fitted"]["rms"] <= 0.02
    assert facts["fitted"]["worst"] <= 0.045


def test_the_model_predicts_other_visits(facts):
    assert facts["others"]["rows"] == 26
    assert facts["others"]["rms"] <= 0.015
    assert facts["others"]["worst"] <= 0.03


def test_the_model_predicts_what_other_counts_cost(facts):
    # docs/kernels.md, log: "B1 wants 32, not 64 (26.4 to 24.9 us)", "4 instead of 16: 284 to 278 us". Not fitted.
    assert facts["pairs"]["one"] == pytest.approx([24.9, 26.4], rel=0.02)
    assert facts["pairs"]["many"] == pytest.approx([278, 284], rel=0.03)


@pytest.mark.parametrize("grown", ["length", "real", "padding"])
def test_more_work_is_never_predicted_to_be_faster(facts, grown):
    assert facts["slower"][grown]


def test_a_count_keeps_the_bounds(facts):
    assert len(facts["counts"]) > 1000
    for row in facts["counts"]:
        for rule, least in (("candidate", row["today"]), ("fewer", 1)):
            assert least <= row[rule] <= 128
            assert row[rule] == row["today"] or row["length"] // row[rule] >= 256


def test_counts_differ_from_todays_where_todays_leave_a_round_empty(facts):
    changed = [row for row in facts["counts"] if row["candidate"] != row["today"]]
    assert 0.2 * len(facts["counts"]) < len(changed) < 0.8 * len(facts["counts"])
    assert any(row["candidate"] & (row["candidate"] - 1) for row in changed)


def test_no_batch_without_padding_is_predicted_to_be_slower(facts):
    for row in facts["counts"]:
        if row["sequences"] != 4 and row["sequences"] % 8:
            for rule in ("candidate", "fewer"):
                # Tiles are whole in this time, and were not when the count was chosen.
                assert row["full_us"][rule] <= 1.04 * row["full_us"]["today"], row


@pytest.mark.parametrize("sequences", [1, 32, 128])
def test_the_batches_that_were_measured_are_not_predicted_to_be_slower(facts, sequences):
    rows = [row for row in facts["counts"] if row["sequences"] == sequences]
    assert len(rows) == 18
    for row in rows:
        assert row["full_us"]["candidate"] <= 1.01 * row["full_us"]["today"]


def test_a_padded_graph_costs_little_when_it_is_full(facts):
    for row in facts["counts"]:
        assert row["full_us"]["candidate"] <= 1.1 * row["full_us"]["today"], row


@pytest.mark.parametrize("graph", ["10", "16"])
def test_ten_requests_of_32k_are_predicted_to_gain(facts, graph):
    before, after = facts["served"][graph]
    assert after < 0.9 * before


def test_few_variants_of_the_combine_kernel_are_needed(facts):
    padded = {1 << (row["candidate"] - 1).bit_length() for row in facts["counts"]}
    assert len(padded) <= 8


def test_what_was_not_measured_gets_no_count(facts):
    assert facts["unknown"] == [None, None, None]


def test_the_default_cases_are_cases(facts):
    found = facts["defaults"]
    assert found["read"] == found["texts"]
    assert len(set(found["texts"])) == len(found["texts"]) > 60
    assert found["groups"][0] == found["groups"][1], "a group's caches are filled once"
    assert found["spread"] == [325, 775, 0, 0]
    assert found["shortest"] >= 256
    assert any(found["powers"])
    assert not all(found["powers"])


def test_the_served_case_comes_first(facts):
    found = facts["defaults"]
    assert found["texts"][0] == found["summary"]["case"] == "int8_per_token_head/d256/1600/32768/10in16"
    assert found["summary"]["today"] == 8
    assert found["summary"]["least_us"] <= found["summary"]["candidate_us"] < found["summary"]["today_us"]


def test_a_case_is_timed_and_right_at_every_count(run):
    assert run["failed"] == {}
    assert run["not_begun"] == []
    one, two = ([row for row in run["rows"] if row["case"].endswith(end)] for end in ("1in3", "2in3/spread"))
    assert [row["splits"] for row in one] == [1, 2]
    assert [row["splits"] for row in two] == [1, 2, 4, 5]
    assert [row["programs"] for row in two] == [2, 4, 8, 8]  # 7 and 16 tiles make only 4 of 5 splits
    assert [row["rounds"] for row in two] == [0.5, 1.0, 2.0, 2.0]
    assert all(row["rules"].count("today") == (row["splits"] == 1) for row in run["rows"])
    for row in one + two[:-1]:
        assert 0.005 < row["error"] < 0.012
        assert row["median_us"] == 20.0
        assert row["bytes_per_s"] == pytest.approx(row["of_read_ceiling"] * 4e12) == pytest.approx(row["bytes"] / 20e-6)
    assert {row["bytes"] for row in one} == {600 * 264}
    assert {row["bytes"] for row in two[:-1]} == {(422 + 1007) * 264}


def test_a_count_whose_output_is_wrong_has_no_time(run):
    *_, wrong = run["rows"]
    assert wrong["splits"] == 5
    assert "is above" in wrong["failed"]
    assert "median_us" not in wrong


def test_todays_count_is_timed_again_and_buffers_take_turns(facts, run):
    assert [row.get("again_us") for row in run["rows"]] == [20.0, None, 20.0, None, None, None]
    assert facts["bench"]["buffers"] == [2, 2, 2, 1, 1, 1, 1]


def test_results_are_saved_after_each_case(facts, run):
    assert run["saved"] == [2, 6]
    assert facts["bench"]["late"]["not_begun"] == ["int8_per_token_head/tiny/80/600/1in3"]
    assert facts["bench"]["late"]["rows"] == []


def test_a_case_that_cannot_be_filled_does_not_stop_the_next(facts):
    failed = facts["bench"]["full"]["failed"]
    assert len(failed) == 2
    assert set(failed.values()) == {"MemoryError: too large"}


@pytest.fixture(scope="module")
def variants(facts_of):
    return facts_of("splits_variants.py")


def test_no_case_waits_for_the_compiler(variants):
    """By the keys of Triton's own binder: what a case needs was launched by the processes that compile ahead."""
    assert len(variants["kinds"]) == 4
    for kind, (primed, needed, missing) in variants["kinds"].items():
        assert missing == [], kind
        assert primed >= needed >= 5  # store, partial, and three of combine


def test_the_programs_a_unit_holds_are_known_from_what_was_compiled(variants):
    assert variants["resident"] == [2, True]
