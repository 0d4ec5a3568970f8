"""Adaptive runs: what a look drops, when it stops, what it accounts for, and what it refuses."""

from pathlib import Path

import pytest
from adrbench.decide import stopping
from adrbench.decide.__main__ import verdict_of
from adrbench.decide.adaptive import AdaptiveSpec, check_plan, look, read
from adrbench.decide.multiplicity import holm
from adrbench.evidence import write_json
from adrbench.job import JobError
from decide_synthetic import TASKS, decision

ARMS = ("triton-attn", "rocm-attn", "flash-attn")
RATE = {"triton-attn": 50.0, "rocm-attn": 60.0, "flash-attn": 42.0}
MINUTES = {"triton-attn": 3.0, "rocm-attn": 2.0, "flash-attn": 4.0}
LOOKS = [2, 3, 4, 5]


def block(world, number, arms=ARMS, noise=0.005, rate=RATE):
    """One round: the baseline twice."""
    for arm in arms:
        for own in (2 * number - 1, 2 * number) if arm == ARMS[0] else (number,):
            world.server(arm, own, rate=rate[arm], noise=noise, requests=60, minutes=MINUTES[arm],
                         resolved={"attention_backend": arm.upper()})  # fmt: skip


def equal_scores(world, arms=ARMS, pairs=240):
    for arm in arms:
        world.accuracy(arm, {task: [50.0] * pairs for task in TASKS})


def spec(world, rounds, budget=None, looks=LOOKS):
    decide = world.spec(decision=decision("adr0010"), gain_rule="estimate") | {"looks": looks}
    raw = {
        "platform": "cpu", "decide": decide, "rounds": rounds,
        "per_block": {"triton-attn": 2, "rocm-attn": 1, "flash-attn": 1},
        "devices": dict.fromkeys(ARMS, 2), "budget_minutes": budget,
    }  # fmt: skip
    return AdaptiveSpec.model_validate(raw)


def write(world, verdict, name):
    path = Path(world.folder) / f"{name}.json"
    write_json(path, verdict.model_dump(mode="json"))
    return str(path)


@pytest.fixture
def first(world):
    """The first look: noise that leaves the winner open, a clear loser."""
    rate = RATE | {"rocm-attn": 52.0}
    for number in (1, 2):
        block(world, number, rate=rate)
    equal_scores(world)
    return look(spec(world, 2), None)


def test_a_loser_is_dropped_and_the_open_option_goes_on_with_the_baseline(first):
    run = first.adaptive
    assert (first.status.word, run.stop, run.next) == ("Proposed", None, ["triton-attn", "rocm-attn"])
    assert [d.option for d in run.looks[0].dropped] == ["FLASH_ATTN"]
    assert "FLASH_ATTN: output throughput -16" in run.looks[0].dropped[0].reason.en
    assert run.rounds == {"triton-attn": 4, "rocm-attn": 2, "flash-attn": 2}


def test_what_a_look_put_out_stays_out_with_its_numbers(world, first):
    # Later evidence that would contradict it is not looked at: its arm was to get no further round.
    block(world, 3, arms=("triton-attn", "rocm-attn"))
    world.server("flash-attn", 3, rate=500.0, resolved={"attention_backend": "FLASH-ATTN"})
    second = look(spec(world, 3), first)
    old, new = (next(o for o in v.options if o.name == "FLASH_ATTN") for v in (first, second))
    assert new.decided_at == 2
    assert new.model_copy(update={"decided_at": None}) == old
    assert second.adaptive.looks[0] == first.adaptive.looks[0]
    assert second.adaptive.looks[1].dropped == []


def test_a_winner_stops_it_and_the_saving_is_told(world):
    for number in (1, 2):
        block(world, number)
    equal_scores(world)
    verdict = look(spec(world, 2), None)
    run = verdict.adaptive
    assert (verdict.status.option, run.stop, run.next) == ("ROCM_ATTN", "decided", [])
    assert (run.starts, run.grid_starts) == (8, 5 * 4)
    # Two devices: 2 rounds of 2 x (3 + 3 + 2 + 4) accelerator minutes out of 5.
    assert (run.minutes, run.grid_minutes) == (pytest.approx(48.0), pytest.approx(120.0))
    assert run.saved == pytest.approx(0.6)
    assert "decided after 2 of 5 planned rounds" in run.reason.en


def test_a_full_grid_saves_nothing(world):
    for number in (1, 2, 3):
        block(world, number, rate=RATE | {"rocm-attn": 52.0}, noise=0.03)
    run = look(spec(world, 3, looks=[2, 3]), None).adaptive
    assert (run.starts, run.saved) == (run.grid_starts, 0.0)


def test_every_look_spends_its_own_error(first):
    assert first.adaptive.looks[0].confidence == pytest.approx(1 - 0.05 * (2 / 5) ** 2)
    assert first.look.confidence == first.adaptive.looks[0].confidence


def test_a_plan_that_changes_after_a_look_is_refused(world, first):
    folder = Path(world.folder) / "adaptive" / "adr0010"
    folder.mkdir(parents=True)
    write(world, first, "adaptive/adr0010/look2")
    check_plan(folder / "look3.json", LOOKS)
    check_plan(folder / "look2.json", [2, 3])  # this one is made anew
    with pytest.raises(JobError, match=r"look2\.json: looks were planned at \[2, 3, 4, 5\] rounds, now at \[2, 3\]"):
        check_plan(folder / "look3.json", [2, 3])
    write(world, first, "adaptive/adr0010")
    with pytest.raises(JobError, match=r"adr0010\.json: looks were planned"):
        check_plan(folder / "look2.json", [2, 3])


def test_a_document_that_is_no_look_is_named(tmp_path):
    path = tmp_path / "look2.json"
    path.write_text("{}")
    with pytest.raises(JobError, match=r"look2\.json"):
        read(str(path))


def test_an_adaptive_verdict_is_made_again_from_its_evidence(world, first):
    """Every look from the first: what was dropped, its numbers, minutes and savings."""
    block(world, 3, arms=("triton-attn", "rocm-attn"), rate=RATE | {"rocm-attn": 52.0})
    path = write(world, look(spec(world, 3), first), "adaptive")
    assert verdict_of({"adaptive": path}) == read(path)
    # One number in one raw evidence file of the first look.
    evidence = Path(world.serve["flash-attn"]["1"]["short"])
    evidence.write_text(evidence.read_text().replace('"output_tokens_per_s": 4', '"output_tokens_per_s": 9'))
    with pytest.raises(JobError, match=r"adaptive\.json: does not follow from its evidence"):
        verdict_of({"adaptive": path})


def option(verdict="undecided", gates=(), eligible=False, arm="a", state="measured", broken=()):
    """A result, as far as the stopping rule reads it."""
    from adrbench.decide.verdict import GateResult, ObjectiveResult, OptionResult

    found = [GateResult.model_construct(metric=metric, verdict=outcome) for metric, outcome in gates]
    return OptionResult.model_construct(
        name=arm, arm=arm, state=state, gates=found, violations=list(broken), eligible=eligible,
        objective=ObjectiveResult.model_construct(verdict=verdict),
    )  # fmt: skip


BASE = option("baseline", arm="base")
PASSED, OPEN, DELTA = ("ttft_ms", "passed"), ("ttft_ms", "undecided"), ("accuracy_delta", "undecided")
WINS = option("better", [PASSED], eligible=True)


@pytest.mark.parametrize(
    ("options", "rounds", "left", "expected"),
    [
        ([option()], 3, None, (None, ("base", "a"))),
        ([option(), option("worse", arm="b")], 3, None, (None, ("base", "a"))),
        ([option(), option(arm="b", gates=[("ttft_ms", "failed")])], 3, None, (None, ("base", "a"))),
        ([option("better", gates=[OPEN])], 3, None, (None, ("base", "a"))),
        # Passing by itself, but not yet as one of several.
        ([option("better", gates=[PASSED])], 3, None, (None, ("base", "a"))),
        ([option("better", gates=[PASSED, DELTA])], 3, None, ("needs other evidence", ())),
        ([option(state="absent")], 3, None, ("needs other evidence", ())),
        # Two that win are told apart by rounds; one that wins and an accuracy that is open are not.
        ([WINS, WINS.model_copy(update={"arm": "b"})], 3, None, (None, ("base", "a", "b"))),
        ([option()], 10, None, ("plan", ())),
        ([option()], 3, 20.0, (None, ("base", "a"))),
        ([option()], 3, 19.9, ("budget", ())),
    ],
)  # fmt: skip
def test_what_follows_a_look(options, rounds, left, expected):
    step = stopping.step([BASE, *options], "base", True, rounds, 10, {"base": 10.0, "a": 10.0, "b": 10.0}, left)
    assert (step.stop, step.arms) == expected


def test_a_decision_stops_whatever_is_left_open():
    assert stopping.step([BASE, option()], "base", False, 3, 10, {}, None) == stopping.Step("decided")


def test_dropped_options_stay_in_the_family():
    """An option that is out makes the others' p values no smaller."""
    assert holm({"a": 0.02} | {"settled/b": 1.0, "settled/c": 1.0})["a"] == pytest.approx(0.06)
