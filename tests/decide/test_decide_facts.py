"""Records of facts, the resolved block size, and usable KV tokens, from synthetic evidence.

What this cannot prove: that the numbers a device gives are right; only what follows from given numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from adrbench import evidence
from adrbench.config.platform import Device
from adrbench.decide import facts
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.facts_spec import parse_facts
from adrbench.decide.spec import parse_spec
from adrbench.decide.verdict import Verdict
from adrbench.evidence import Evidence
from adrbench.job import JobError
from decide_synthetic import World, decision, started

GIB = 2**30
TIERS = [
    {"name": name, "input_tokens": [100, 900], "output_tokens": 100, "prompts": 16, "concurrency": 4}
    for name in ("short", "long")
]


def single(world: World, stage: Any, resolved: dict[str, Any], measured: dict[str, Any]) -> str:
    path = world.folder / "cpu" / f"{stage}.json"
    document = Evidence(
        stage=stage,
        platform="cpu",
        resolved=resolved,
        measured=measured,
        started_at=started(0),
        finished_at=started(0),
    )
    evidence.write(path, document)
    return str(path)


def spec_of(world: World, name: str, **changes: Any) -> dict[str, Any]:
    """A facts job over what the world holds, on a device of 8 GiB whose declaration fits."""
    declared = Device(vendor="cpu", arch="x86_64", devices=1, memory_gib=6).model_dump(mode="json")
    return {
        "platform": "cpu",
        "decision": decision(name),
        "policy": "cpu",
        "baseline": "auto",
        "declared": declared,
        "tiers": TIERS,
        "evidence": {"serve": world.serve, "eval": {}, "integrate": {}, **changes.pop("files", {})},
    } | changes


def host(world: World, fp8: str = "passed", weights: float = 1.0, arch: str = "x86_64") -> dict[str, str]:
    device = {"vendor": "cpu", "arch": arch, "name": "A CPU"}
    measured = {"devices": [{"memory_bytes": 8 * GIB}], "fp8": {"status": fp8}}
    return {
        "device": single(world, "device", device, measured),
        "model": single(world, "model", {}, {"weight_bytes": weights * GIB}),
    }


def run(world: World, name: str, **changes: Any) -> Verdict:
    return facts.judge(parse_facts(spec_of(world, name, **changes)))


class TestDevice:
    def test_accepted_names_the_device(self, world: World) -> None:
        world.server("auto", 1, pool=46_592)
        found = run(world, "adr0001", files=host(world))
        assert (found.status.word, found.status.option) == ("Accepted", "A CPU (x86_64)")
        values = {check.id: check.value for check in found.checks if check.tier in (None, "long")}
        assert values == {"identified": 1.0, "fp8": 1.0, "weights": 0.125, "kv": pytest.approx(4 * 1000 / 46_592)}

    def test_weights_that_do_not_fit_block(self, world: World) -> None:
        world.server("auto", 1)
        found = run(world, "adr0001", files=host(world, weights=7.9))
        assert found.status.word == "Blocked"
        assert "weights take at most 90 %" in found.status.text.en

    def test_another_device_blocks(self, world: World) -> None:
        world.server("auto", 1)
        found = run(world, "adr0001", files=host(world, arch="gfx936"))
        assert found.status.word == "Blocked"

    def test_a_pool_that_is_too_small_is_to_be_cleared_up(self, world: World) -> None:
        world.server("auto", 1, pool=3000)
        found = run(world, "adr0001", files=host(world))
        assert found.status.word == "Proposed"
        assert [check.tier for check in found.checks if check.verdict == "failed"] == ["short", "long"]

    def test_a_self_check_that_did_not_run_is_undecided(self, world: World) -> None:
        world.server("auto", 1)
        found = run(world, "adr0001", files=host(world, fp8="not_run"))
        assert found.status.word == "Proposed"
        assert "a run of the FP8 self-check" in found.missing[0].en

    def test_without_evidence_everything_is_missing(self, world: World) -> None:
        found = run(world, "adr0001")
        assert found.status.word == "Proposed"
        assert {check.verdict for check in found.checks} == {"undecided"}


class TestBaseline:
    def figures(self, *values: float) -> dict[str, Any]:
        reference = {"platforms": ["cpu"], "tokens_per_s": list(values), "source": {"en": "a source", "zh": "出处"}}
        return {"decision": decision("adr0003") | {"reference": reference}}

    def test_two_rounds_make_the_numbers(self, world: World) -> None:
        for number in (1, 2):
            world.server("auto", number, rate=50.0)
        found = run(world, "adr0003")
        assert (found.status.word, found.status.option) == ("Accepted", "auto")
        assert set(found.noise) == {"short", "long"}
        assert found.latency["auto"]["short"]["ttft_ms"].rounds == 2
        assert not [check for check in found.checks if check.id == "official"]

    def test_an_accepted_baseline_is_called_by_its_title(self, world: World) -> None:
        for number in (1, 2):
            world.server("auto", number, rate=50.0)
        found = run(world, "adr0003", baseline_title={"en": "bf16 on the CPU", "zh": "CPU 上的 bf16"})
        assert (found.status.option, found.baseline) == ("bf16 on the CPU", "auto")

    def test_one_round_is_too_few(self, world: World) -> None:
        world.server("auto", 1)
        assert run(world, "adr0003").status.word == "Proposed"

    def test_official_figures_are_compared_on_their_platform(self, world: World) -> None:
        for number in range(1, 6):
            world.server("auto", number, rate=50.0, noise=0.005)
        assert run(world, "adr0003", **self.figures(50.0, 50.0)).status.word == "Accepted"
        off = run(world, "adr0003", **self.figures(50.0, 80.0))
        assert off.status.word == "Proposed"
        failed = [(check.tier, check.limit) for check in off.checks if check.verdict == "failed"]
        assert failed == [("long", 0.9)]
        assert off.checks[-2].value == pytest.approx(50 / 80, rel=0.05)

    def test_one_round_bounds_no_ratio(self, world: World) -> None:
        world.server("auto", 1)
        found = [c for c in run(world, "adr0003", **self.figures(50.0, 50.0)).checks if c.id == "official"]
        assert {(c.low, c.high, c.verdict) for c in found} == {(None, None, "undecided")}

    def test_a_failed_request_counts(self, world: World) -> None:
        for number in (1, 2):
            world.server("auto", number, measured={"failed": 1})
        found = run(world, "adr0003")
        assert found.status.word == "Blocked"
        assert next(c for c in found.checks if c.id == "completion").value == pytest.approx(16 / 17)


def test_a_wrong_key_is_named(world: World) -> None:
    with pytest.raises(JobError, match="facts specification: colour"):
        parse_facts(spec_of(world, "adr0003") | {"colour": "red"})


def test_the_same_evidence_gives_the_same_document(world: World) -> None:
    world.server("auto", 1)
    assert run(world, "adr0003").model_dump_json() == run(world, "adr0003").model_dump_json()


class TestBlockSize:
    """ADR 0007 and 0008: an option is what vLLM resolved, not what was asked."""

    def spec(self, world: World, name: str) -> Verdict:
        arms = [{"name": "auto", "baseline": True}, {"name": "block-16", "block_size": 16}]
        raw = world.spec(decision=decision(name), arms=arms, gain_rule="estimate")
        return judge(gather(parse_spec(raw)))

    @pytest.mark.parametrize("name", ["adr0007", "adr0008"])
    def test_a_size_that_vllm_overrides_is_blocked(self, world: World, name: str) -> None:
        for arm in ("auto", "block-16"):
            world.server(arm, 1, resolved={"block_size": 784})
        found = self.spec(world, name)
        option = next(o for o in found.options if o.name == "block 16")
        assert (option.state, found.status.word) == ("blocked", "Blocked")
        assert option.reason is not None
        assert "asked for block_size 16 and resolved 784" in option.reason.en

    def test_a_size_that_takes_effect_is_compared(self, world: World) -> None:
        world.server("auto", 1)
        world.server("block-16", 1, resolved={"block_size": 16})
        option = next(o for o in self.spec(world, "adr0007").options if o.name == "block 16")
        assert option.state == "measured"

    def test_usable_tokens_lose_the_rest_of_the_last_block(self, world: World, tmp_path: Path) -> None:
        tier = {"tier": {"name": "short", "prompts": 16, "output_tokens": 40}}
        lengths = {"input_tokens": {"total": 16 * 160}}
        world.server("auto", 1, pool=1280, tiers=("short",), asked=tier, measured=lengths)
        world.server(
            "block-16", 1, pool=1280, tiers=("short",), resolved={"block_size": 16}, asked=tier, measured=lengths
        )
        raw = world.spec(decision=decision("adr0007"), tiers=[{"name": "short", "weight": 1.0}])
        runs = gather(parse_spec(raw)).runs
        # 200 tokens a sequence: 2 of 10 blocks of 128, so 5 sequences; 13 of 80 blocks of 16, so 6.
        assert runs["auto"][1]["short"].usable_tokens == 1000
        assert runs["block-16"][1]["short"].usable_tokens == 1200
