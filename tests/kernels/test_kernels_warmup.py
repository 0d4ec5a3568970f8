"""The warm-up of CUSTOM inside the Python sources of vLLM: every variant that served steps need, before the first.

Variants are compared by the keys of Triton's own binder for a GPU, so a specialisation that changes from step to step
is seen without one. Cannot prove: that the compiled kernels run, and how long anything takes;
``test_kernels_warmup_device.py`` counts what Triton really compiles.
"""

from __future__ import annotations

import pytest

CASES = [("int8_per_token_head", "sm_90"), ("kivi4", "gfx942")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def found(request, checks):
    return checks(*request.param, script="warmup_checks.py")


@pytest.mark.parametrize("way", ["served", "triton", "small", "any splits"])
def test_no_served_step_needs_a_variant_that_was_not_warmed_up(found, way):
    assert found[way]["late"] == []


def test_the_check_sees_what_a_warm_up_without_some_steps_leaves_out(found):
    assert any(name.startswith("load") for name in found["without prompts"]["late"])
    assert "decode_combine_kernel" in found["without decodes"]["late"]


def test_the_number_of_variants_is_small(found):
    warmed = found["served"]["warmed"]
    # One for each power of two that splits are padded to; everything else once.
    assert warmed.pop("decode_combine_kernel") <= 8
    assert set(warmed.values()) == {1}
    assert found["served"]["steps"] <= 14


def test_split_counts_of_every_kind_need_no_more_variants(found):
    counts = found["any splits"]
    assert 4 <= counts["warmed"]["decode_combine_kernel"] <= 7  # padded to 1 (with a window 8) ... 64
    assert counts["steps"] <= 14


def test_this_steps_tokens_are_found_among_all_that_are_attended_to(found):
    assert found["places"] == 0


def test_drafts_that_may_still_be_refused_are_not_attended_to(found):
    assert found["guessed"] in (None, [8, 8, 4])


def test_the_cache_that_vllm_profiles_with_is_not_kept(found):
    assert found["profiled"] == [7, True]


def test_a_worker_warms_up_before_vllm_captures_its_graphs(found):
    assert found["started"] == [[["warmed", "warmup_steps"], "vLLM"], ""]


def test_a_warm_up_that_fails_keeps_the_server_from_starting(found):
    happened, error = found["failed"]
    assert happened == []
    assert "warm-up of Step(" in error
    assert "no kernel image" in error


def test_a_variant_that_comes_late_is_reported(found):
    watched = found["watched"]
    assert watched["warmed"] == {"store_blocks_kernel": 1, "load_kernel": 1}
    assert watched["late"] == ["load_kernel"]
    assert watched["reported"] == [{"compiled_late": "load_kernel"}]
    assert watched["compiled"] == ["a", "b", "c", "other"]
    assert watched["binaries"] == ["binary of a", "binary of b", "binary of c"]
    assert watched["earlier"] == {}
