"""The factors in which a decision lets its arms differ: everything else refuses, several at once are confounded."""

import pytest
from adrbench.config.decision import Decision
from adrbench.config.files import ConfigError
from adrbench.config.parse import parse
from adrbench.decide.__main__ import gather, judge
from adrbench.decide.spec import parse_spec
from decide_synthetic import decision

BASE = {"vllm_version": "0.27.0", "attention_backend": "CPU_ATTN", "kv_cache_dtype": "auto", "block_size": 128}
FP8 = BASE | {"kv_cache_dtype": "fp8_e4m3"}


def judged(world, factors, *, resolved=FP8, args=(), env=None, base_args=()):
    """Two rounds of the baseline and of an arm with its own arguments, judged with the decision's factors."""
    for number in (1, 2):
        for arm, own, shown, variables in (("auto", base_args, BASE, {}), ("fp8-e4m3", args, resolved, env or {})):
            asked = {
                "arm": {"name": arm, "args": list(own), "env": variables},
                "server": {"args": ["--dtype", "bfloat16", *own], "env": variables},
            }
            world.server(arm, number, resolved=shown, asked=asked)
    return judge(gather(parse_spec(world.spec(decision=decision(factors=factors)))))


def option(document):
    return next(o for o in document.options if o.arm == "fp8-e4m3")


@pytest.mark.parametrize(
    ("factors", "changes", "named"),
    [
        (["kv_cache_dtype"], {}, None),
        (["block_size"], {}, "kv_cache_dtype: baseline auto, arm fp8_e4m3"),
        ([], {}, "kv_cache_dtype"),
        (["kv_cache_dtype"], {"resolved": FP8 | {"block_size": 64}}, "block_size: baseline 128, arm 64"),
        (["kv_cache_dtype"], {"resolved": FP8 | {"hybrid_block_size": 784}}, "block_size: baseline 128, arm 784"),
        (["kv_cache_dtype", "block_size"], {"resolved": FP8 | {"block_size": 64}}, None),
        (["kv_cache_dtype"], {"resolved": FP8 | {"attention_backend": "TRITON_ATTN"}}, "attention_backend"),
        (["kv_cache_dtype"], {"resolved": FP8 | {"prefix_caching": "True"}}, "prefix_caching"),
        (["kv_cache_dtype"], {"resolved": FP8 | {"plugin": [{"pid": 1, "cpu_products": "fp32 products"}]}}, None),
        (["kv_cache_dtype"], {"resolved": FP8 | {"plugin": [{"mechanism": "L3"}]}}, "plugin: baseline -, arm L3"),
        (["kv_cache_dtype"], {"args": ["--enforce-eager"]}, "--enforce-eager: baseline -, arm true"),
        (["kv_cache_dtype", "--enforce-eager"], {"args": ["--enforce-eager"]}, None),
        (["kv_cache_dtype"], {"base_args": ["--enforce-eager"]}, "--enforce-eager: baseline true, arm -"),
        (["kv_cache_dtype"], {"args": ["-cc", '{"mode": 3}']}, "--compilation-config.mode"),
        (["kv_cache_dtype", "--compilation-config"], {"args": ["-cc", '{"mode": 3}']}, None),
        (["kv_cache_dtype", "--compilation-config.mode"], {"args": ["-cc", '{"mode": 3}']}, None),
        (["kv_cache_dtype", "--compilation-config.mode"], {"args": ["-cc", '{"mode": 3, "x": 1}']}, "config.x"),
        (["kv_cache_dtype"], {"env": {"VLLM_X": "1"}}, "env:VLLM_X"),
        (["kv_cache_dtype", "env:VLLM_*"], {"env": {"VLLM_X": "1"}}, None),
        (["kv_cache_dtype", "env:VLLM_Y"], {"env": {"VLLM_X": "1"}}, "env:VLLM_X"),
        (None, {"args": ["--enforce-eager"], "env": {"VLLM_X": "1"}}, None),
        (None, {"args": ["--tokenizer", "/other"]}, "--tokenizer: baseline -, arm /other"),
        (["kv_cache_dtype"], {"args": ["--chat-template=x.jinja"]}, "it is never a factor"),
    ],
)  # fmt: skip
def test_a_difference_that_is_no_factor_refuses_and_is_named(world, factors, changes, named):
    found = option(judged(world, factors, **changes))
    if named is None:
        assert found.state == "measured"
    else:
        assert found.state == "absent"
        assert named in found.reason.en


def test_one_round_that_resolved_otherwise_refuses_the_arm(world):
    judged(world, ["kv_cache_dtype"])
    world.server("fp8-e4m3", 3, resolved=FP8 | {"attention_backend": "TRITON_ATTN"},
                 asked={"arm": {"name": "fp8-e4m3"}})  # fmt: skip
    found = option(judge(gather(parse_spec(world.spec(decision=decision(factors=["kv_cache_dtype"]))))))
    assert (found.state, "round 3" in found.reason.en) == ("absent", True)


def test_factors_that_change_together_are_printed_as_confounded(world):
    """INT8 exists on one backend only: no number says whether the cache or the backend made the difference."""
    resolved = FP8 | {"attention_backend": "CUSTOM"}
    document = judged(world, ["kv_cache_dtype", "attention_backend", "--seed"], resolved=resolved, args=["--seed", "2"])
    assert {(c.factor, c.baseline, c.value) for c in document.confounded} == {
        ("attention_backend", "CPU_ATTN", "CUSTOM"),
        ("kv_cache_dtype", "auto", "fp8_e4m3"),
        ("--seed", "-", "2"),
    }


def test_a_plugin_that_only_reports_the_choice_is_no_factor(world):
    """Every arm's plugin tells the backend that was chosen: a difference there is the backend's, counted once."""
    chosen = {"chosen": "CUSTOM", "engine": True, "path": "a.B", "pid": 7, "process": "EngineCore"}
    resolved = BASE | {"attention_backend": "CUSTOM", "plugin": [chosen]}
    document = judged(world, ["attention_backend"], resolved=resolved)
    assert document.confounded == []
    assert not document.missing or not any("plugin" in m.en for m in document.missing)


def test_a_plugin_that_changes_the_engine_is_told_in_words(world):
    report = {"mechanism": "L3", "scheme": "int8_per_token_head", "engine": True, "pid": 7, "process": "EngineCore"}
    resolved = BASE | {"attention_backend": "CUSTOM", "plugin": [report]}
    found = judged(world, ["attention_backend", "plugin"], resolved=resolved).confounded
    assert {(c.factor, c.baseline, c.value) for c in found} == {
        ("attention_backend", "CPU_ATTN", "CUSTOM"),
        ("plugin", "-", "L3 scheme int8_per_token_head"),
    }


def test_an_arm_of_no_option_is_neither_refused_nor_confounded(world):
    judged(world, ["kv_cache_dtype"])
    for number in (1, 2):
        world.server("other", number, resolved=FP8 | {"attention_backend": "TRITON_ATTN"},
                     asked={"arm": {"name": "other"}})  # fmt: skip
    document = judge(gather(parse_spec(world.spec(decision=decision(factors=["kv_cache_dtype"])))))
    assert {c.arm for c in document.confounded} == set()
    assert not any("other" in m.en for m in document.missing)


@pytest.mark.parametrize(
    ("factor", "said"),
    [("backend", "is no factor; allowed are attention_backend"), ("--tokenizer", "never compared"),
     ("--model", "never compared"), ("env:A B", "is no factor"), ("env:", "is no factor")],
)  # fmt: skip
def test_a_factor_that_is_none_is_refused_with_the_file(factor, said):
    with pytest.raises(ConfigError, match=said):
        parse(Decision, decision(factors=[factor]), "config/decisions/x.yaml")
