"""Formats and layouts without torch. Cannot prove: that torch or a device agrees (test_kernels_job does)."""

import math

import pytest
from adrbench.kernels.formats import VALUES, Plane, scheme, schemes
from adrbench.kernels.formats.layout import PageLayout
from adrbench.kernels.formats.values import decode


@pytest.mark.parametrize(
    ("name", "finite", "smallest"),
    [("fp8_e4m3fn", 254, 2.0**-9), ("fp8_e4m3fnuz", 255, 2.0**-10), ("fp8_e5m2", 248, 2.0**-16)],
)
def test_eight_bit_floats_by_their_definition(name, finite, smallest):
    values = VALUES[name].finite_values()
    assert len(values) == finite
    assert max(values.values()) == VALUES[name].maximum
    assert min(value for value in values.values() if value > 0) == smallest


def test_fnuz_has_no_negative_zero_and_twice_the_resolution():
    assert math.isnan(decode("fp8_e4m3fnuz", 0x80))
    assert decode("fp8_e4m3fn", 0x38) == 1.0
    assert decode("fp8_e4m3fnuz", 0x38) == 0.5  # the same bits mean half: mixing the two halves a cache


@pytest.mark.parametrize(
    ("name", "expected_bytes"),
    [
        ("bf16", 2048),
        ("fp8_per_head", 1024),
        ("int8_per_token_head", 1056),
        ("int4_per_token_head", 544),
        ("int4_g32", 640),
        ("kivi4", 640),
    ],
)
def test_bytes_per_token_count_the_scales(name, expected_bytes):
    assert scheme(name).bytes_per_token(kv_heads=4, head_dim=128) == expected_bytes


def test_kivi4_is_five_bits():
    assert scheme("kivi4").bits_per_value(128) == 5.0


def test_every_scheme_is_found_once_and_unknown_names_say_what_exists():
    assert len(schemes()) == len({entry.name for entry in schemes().values()}) >= 10
    with pytest.raises(KeyError, match="int8_per_head"):
        scheme("int8_per_heat")


@pytest.mark.parametrize("name", sorted(schemes()))
@pytest.mark.parametrize("page_size", [16, 64, 784, 1568])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_planes_are_aligned_and_a_page_is_no_larger_than_its_tokens(name, page_size, head_dim):
    layout = PageLayout(scheme(name), kv_heads=3, head_dim=head_dim, page_size=page_size)
    for offset in (layout.value_offset, layout.key_scale_offset, layout.value_scale_offset, layout.page_bytes):
        assert offset % 16 == 0
    content = layout.scheme.bytes_per_token(3, head_dim) * page_size
    padding = 3 * page_size * (layout.key_row_bytes - layout.scheme.key.code_bytes(head_dim))
    assert content - 1e-6 <= layout.page_bytes <= content + padding + 32


@pytest.mark.parametrize("page_size", [0, 8, 100])
def test_page_sizes_that_break_the_transposed_blocks_are_refused(page_size):
    with pytest.raises(ValueError, match="multiple of 16"):
        PageLayout(scheme("int8_per_head"), 1, 128, page_size)


@pytest.mark.parametrize(
    ("name", "head_dim", "row"), [("int4_per_token_head", 80, 48), ("kivi2", 96, 32), ("kvquant3", 64, 32)]
)
def test_short_rows_are_padded_to_sixteen_bytes(name, head_dim, row):
    assert PageLayout(scheme(name), 1, head_dim, 16).key_row_bytes == row


def test_a_head_dimension_that_the_groups_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="80 is not a multiple of the group of 32"):
        PageLayout(scheme("int4_g32"), 1, 80, 16)


def test_a_group_without_a_size_is_refused():
    with pytest.raises(ValueError, match="row_group"):
        Plane(VALUES["int4"], "row_group")
