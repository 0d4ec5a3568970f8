"""Figures: well-formed, everything in them, and points where the numbers put them."""

import re
from xml.etree import ElementTree

import pytest
from adrbench.profile.figures import (
    COLOURS,
    HEIGHT,
    LABELS,
    WIDTH,
    bandwidth,
    binary_size,
    engineering,
    roofline,
    shares,
)
from adrbench.profile.op_classes import CLASSES


def spread(value):
    return {"median": value, "low": value, "high": value}


CEILING = {
    "read_bytes_per_s": spread(1e10),
    "matmul_flop_per_s": {"bfloat16": spread(1e12)},
    "by_size": [
        {"bytes": 4**i * 65536, "read": spread(9e10 / (i + 1)), "copy": spread(7e10), "write": spread(5e10)}
        for i in range(6)
    ],
    "last_level_cache_bytes": 2 << 20,
}
BOUNDS = {
    "prefill": {"flops": 4e11, "seconds": spread(1.0), "flops_per_byte": 800.0, "matrix_dtype": "bfloat16"},
    "decode": {"flops": 1e9, "seconds": spread(0.05), "flops_per_byte": 4.0, "matrix_dtype": "bfloat16"},
}
PHASES = {"decode": {"share": 0.8, "classes": {"gemm": 3.0, "host": 1.0}}}


def parse(text):
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    return root


def circles(text):
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)]


@pytest.mark.parametrize("language", sorted(LABELS))
def test_figures_are_well_formed_and_stay_on_the_page(language):
    texts = [
        roofline(CEILING, {"a<b & c": BOUNDS}, language, "t & t"),
        bandwidth(CEILING, language, "t"),
        shares({"a<b": PHASES}, language, "t"),
    ]
    for text in texts:
        parse(text)
        for points in re.findall(r'points="([^"]+)"', text):
            for pair in points.split():
                x, y = (float(v) for v in pair.split(","))
                assert 0 <= x <= WIDTH
                assert 0 <= y <= HEIGHT


def test_roofline_puts_phases_below_the_roof_and_in_order():
    text = roofline(CEILING, {"auto": BOUNDS}, "en", "t")
    (x_prefill, y_prefill), (x_decode, y_decode) = circles(text)
    assert x_decode < x_prefill
    assert y_decode > y_prefill  # pixels grow downwards: decode reaches fewer FLOP/s
    roof = re.search(r'points="([^"]+)" fill="none" stroke="' + COLOURS[0], text).group(1).split()
    peak_y = float(roof[1].split(",")[1])
    assert y_prefill > peak_y


def test_a_point_on_the_bandwidth_roof_lies_on_the_line():
    bounds = {"decode": {"flops": 4e10, "seconds": spread(1.0), "flops_per_byte": 4.0, "matrix_dtype": "bfloat16"}}
    text = roofline(CEILING, {"auto": bounds}, "en", "t")
    ((x, y),) = circles(text)
    (x1, y1), (x2, y2) = [
        tuple(float(v) for v in pair.split(","))
        for pair in re.search(r'points="([^"]+)" fill="none" stroke="' + COLOURS[0], text).group(1).split()[:2]
    ]
    assert y == pytest.approx(y1 + (y2 - y1) * (x - x1) / (x2 - x1), abs=0.3)


@pytest.mark.parametrize(("arms", "rates"), [({}, {"bfloat16": spread(1e12)}), ({"a": BOUNDS}, {})])
def test_no_roof_without_numbers(arms, rates):
    with pytest.raises(ValueError, match="no roofline"):
        roofline({**CEILING, "matmul_flop_per_s": rates}, arms, "en", "t")


def test_shares_have_the_widths_of_their_time():
    text = shares({"auto": PHASES}, "en", "t")
    widths = {
        name: float(re.search(rf'width="([\d.]+)"[^>]*><title>{name}', text).group(1)) for name in ("gemm", "host")
    }
    assert widths["gemm"] == pytest.approx(3 * widths["host"], rel=0.01)
    assert "gemm 75.0%" in text


def test_device_time_goes_before_host_time_in_the_bars():
    row = {**PHASES["decode"], "device": {"classes": {"attention": 1.0}}}
    assert "attention 100.0%" in shares({"auto": {"decode": row}}, "en", "t")


def test_every_class_has_a_colour():
    assert len(set(COLOURS)) == len(CLASSES)


def test_both_languages_name_the_same_things():
    assert LABELS["en"].keys() == LABELS["zh"].keys()


def test_units():
    assert [engineering(v) for v in (0.5, 1e3, 2.5e9, 1e15)] == ["0.5", "1 k", "2.5 G", "1 P"]
    assert [binary_size(v) for v in (512, 16384, 3 << 20, 2 << 30)] == ["512 B", "16 KiB", "3 MiB", "2 GiB"]


def scaled(share):
    """The example with a prefill that reaches this share of the roof: 1e12 FLOP/s at 800 FLOP per byte."""
    return {"auto": BOUNDS | {"prefill": BOUNDS["prefill"] | {"flops": share * 1e12}}}


@pytest.mark.parametrize("language", sorted(LABELS))
def test_a_phase_above_the_roof_is_ringed_and_explained(language):
    text = roofline(CEILING, scaled(1.25), language, "t")
    assert text.count("<path") == 1
    assert f"auto {LABELS[language]['prefill']} 125%" in text
    assert LABELS[language]["above"] in text
    height = float(re.search(r'viewBox="0 0 \d+ (\d+)"', text).group(1))
    assert max(float(y) for y in re.findall(r'<text x="[^"]+" y="([^"]+)"', text)) < height


def test_a_phase_below_the_roof_is_not():
    text = roofline(CEILING, scaled(0.99), "en", "t")
    assert "<path" not in text
    assert LABELS["en"]["above"] not in text


def test_a_phase_is_held_against_its_own_matrix_format():
    """Another arm's faster format lifts the line that is drawn, not the roof of this phase."""
    ceiling = CEILING | {"matmul_flop_per_s": {"bfloat16": spread(1e12), "float8": spread(4e12)}}
    other = {"prefill": BOUNDS["prefill"] | {"matrix_dtype": "float8"}}
    assert "auto prefill 125%" in roofline(ceiling, scaled(1.25) | {"fp8": other}, "en", "t")
