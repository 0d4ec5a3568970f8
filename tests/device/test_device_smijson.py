"""Damaged JSON: what has one reading is repaired and said to be, the rest is refused."""

import pytest
from adrbench.device import smijson


def test_sound_json_has_no_problems() -> None:
    assert smijson.read('{"card0": {"a": "1", "b": 2}}') == ({"card0": {"a": "1", "b": 2}}, [])


def test_missing_commas_and_repeated_blank_keys() -> None:
    text = (
        '{"card0": {"Power (W)": "91.0""Core (W)": "20.0","mclk": "1800Mhz","": "", "": ""} "card1": {"x": "{\\"},"}}'
    )
    value, problems = smijson.read(text)
    assert value == {"card0": {"Power (W)": "91.0", "Core (W)": "20.0", "mclk": "1800Mhz"}, "card1": {"x": '{"},'}}
    assert problems == ["2 missing comma(s) added", "blank key dropped"]


def test_blank_keys_alone_are_a_problem_too() -> None:
    assert smijson.read('{"a": 1, "": ""}') == ({"a": 1}, ["blank key dropped"])


def test_a_warning_before_the_object_and_a_stray_comma() -> None:
    value, problems = smijson.read('WARNING: low-power state\n\n{"a": "1",}\n')
    assert value == {"a": "1"}
    assert problems == ["1 stray comma(s) dropped", "text around the JSON object ignored"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No device found",
        '{"card0": {"a": "1", "b',
        '{"card0": {"power": 80W}}',
        '{"card0": {"a": "1}, "b": "2"}}',
        '{"a": "1" "b" "2"}',
        '{"a": "1", "a": "2"}',
        '{"a": 1} {"b": 2}',
        '{"a": : 1}',
    ],
    ids=["empty", "prose", "cut off", "unit", "quote lost", "colon lost", "two values", "two objects", "two colons"],
)  # fmt: skip
def test_more_than_one_reading_is_refused(text: str) -> None:
    with pytest.raises(smijson.Unreadable):
        smijson.read(text)
