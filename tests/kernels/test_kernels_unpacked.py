"""4-bit codes unpacked to fp16, and KIVI-4's store, in the interpreter: data that are hard for fp16, refusals.

Cannot prove: the inline assembly of NVIDIA (the interpreter has none; ``decode_variants.py`` compares it with fp32 on a
GPU), nor speed.
"""

import pytest

NAMES = ("int4_per_token_head", "int4_g32", "kivi4")


@pytest.fixture(scope="module")
def facts(facts_of):
    return facts_of("unpacked_facts.py")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", ["plain", "tiny"])
def test_fp16_holds_ordinary_and_small_numbers(facts, name, data):
    found = facts["decode"][name][data]
    assert found["finite"]
    assert found["kernel_error"] <= 4e-3


@pytest.mark.parametrize("name", NAMES)
def test_outliers_of_ten_thousand_cost_no_more_than_their_storage(facts, name):
    # One number of 1e4 makes a scale of 667: fixed factors of 4096 on scales, as codes in the low mantissa bits
    # need them, would be infinite.
    found = facts["decode"][name]["outliers"]
    assert found["finite"]
    assert found["kernel_error"] <= max(4e-3, 0.5 * found["scheme_error"])


def test_what_an_unwritten_slot_holds_does_not_reach_the_output(facts):
    assert len(facts["unwritten"]) == 4
    assert {name for name, same in facts["unwritten"].items() if not same} == set()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("amd", "NVIDIA only"),
        ("bits", "only 4-bit codes"),
        ("tile", "tiles be groups"),
        ("page", "multiple of 32"),
        ("kivi2", "no kernel"),
        ("dtype", "must not differ"),
        ("rows", "rows must be int32 [1]"),
        ("starts", "starts must be int32 [2]"),
        ("kernel", "'wide'; use"),
        ("stages", "use at least 2"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused_by_name(facts, case, words):
    assert words in facts["refusals"][case]


def test_a_number_that_is_none_spoils_its_group_only(facts):
    # A key of token 5: its channel in the group of 32 tokens. A value of token 7: its group of 32 dimensions.
    spoiled = facts["spoiled"]
    assert spoiled["keys"] == [[0, 3]]
    assert spoiled["key_tokens"] == 32
    assert spoiled["value_tokens"] == [7]
    assert spoiled["values"] == 32


def test_the_grid_has_a_block_for_all_that_leaves_the_window(facts):
    assert facts["blocks"] == []


def test_a_wave_of_amd_holds_the_accumulators_of_its_head(facts):
    assert facts["amd_config"] == [1, 1, 2]
