"""Loading a configuration: what is refused, and whether the message names file, key, value and remedy.

Cannot prove that vLLM accepts what passes here: only a started server can.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from adrbench.config import ConfigError, load
from adrbench.config.files import read_yaml
from adrbench.config.load import context_limit
from adrbench.config.servers import devices
from adrbench.paths import ROOT

MAIN = {"platform": "cpu", "adrs": ["adr0010", "adr0011"]}
PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


@pytest.fixture
def project(tmp_path: Path):
    """A copy of config/ whose platform file the test changes; returns a function that loads it."""
    for name in ("policies.yaml", "decisions/adr0010.yaml", "decisions/adr0011.yaml"):
        target = tmp_path / "config" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / "config" / name).read_text())

    def run(platform: dict | str, main: dict | None = None):
        target = tmp_path / "config/platforms/cpu.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(platform if isinstance(platform, str) else yaml.safe_dump(platform, allow_unicode=True))
        return load({**MAIN, **(main or {})}, root=tmp_path)

    return run


def changed(**changes) -> dict:
    """The CPU platform with values replaced by dotted path."""
    data = copy.deepcopy(PLATFORM)
    for path, value in changes.items():
        current = data
        *parents, last = [int(p) if p.isdigit() else p for p in path.split("__")]
        for part in parents:
            current = current[part]
        current[last] = value
    return data


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "config/platforms").glob("*.yaml")))
def test_shipped_platform_is_valid(name):
    assert load({**MAIN, "platform": name}).platform.name == name


REFUSED = {
    "unknown-key": (changed(serve__rouns=2), ["serve.rouns", "unknown key", "did you mean `rounds`"]),
    "wrong-type": (changed(serve__rounds="two"), ["serve.rounds", "'two'", "integer"]),
    "string-for-number": (changed(serve__rounds="2"), ["serve.rounds", "'2'"]),
    "two-arms-of-one-name": (changed(arms__1__name="auto"), ["'auto' is used twice"]),
    "no-baseline": (changed(arms__0__baseline=False), ["exactly one arm needs `baseline: true`", "none"]),
    "two-baselines": (changed(arms__1__baseline=True), ["exactly one arm", "auto, fp8-e4m3"]),
    "name-with-shell-signs": (changed(arms__1__name="$(reboot)"), ["arms[$(reboot)].name", "pattern"]),
    "int8-without-it": (
        changed(arms__1__kv_cache_dtype="int8"),
        ["arms[fp8-e4m3].kv_cache_dtype", "'int8' does not exist in vLLM"],
    ),
    "tier-too-long": (changed(tiers__2__input_tokens=[512, 4090]), ["tiers[long]", "exceed --max-model-len 4096"]),
    "task-too-long": (changed(eval__tasks__0__length_tokens=4096), ["eval.tasks[multi_hop_qa]", "exceed"]),
    "lengths-reversed": (
        changed(tiers__0__input_tokens=[300, 100]),
        ["tiers[short].input_tokens", "least <= greatest"],
    ),
    "unknown-profile-arm": (changed(profile__arms=["nobody"]), ["'nobody' is not an arm"]),
    "unknown-policy": (changed(policy="olympic"), ["policy 'olympic' is unknown", "contest, cpu"]),
    "folder-without-path": (changed(model={"source": "folder"}), ["model", "`path` is needed"]),
    "goodput": (changed(serve__goodput={"tftt": 5.0}), ["goodput", "tftt"]),
    "products-of-another-kind": (
        changed(serve__env={"ADRBENCH_CPU_PRODUCTS": "bf16"}),
        ["arms[auto].env.ADRBENCH_CPU_PRODUCTS: 'bf16' is unknown; use torch or fp32"],
    ),
    "needs-of-anything": (
        changed(arms__1__cpu_needs={"any_of": ["avx512f"], "refusal": ".*"}),
        ["arms[fp8-e4m3].cpu_needs.refusal", "fits any text"],
    ),
    "needs-of-the-baseline": (
        changed(arms__0__cpu_needs={"any_of": ["avx512f"], "refusal": "no"}),
        ["arms[auto].cpu_needs", "the baseline has to start on every host"],
    ),
    "needs-nothing": (
        changed(arms__1__cpu_needs={"any_of": [], "refusal": "no"}),
        ["arms[fp8-e4m3].cpu_needs.any_of"],
    ),
    "regex-of-anything": (changed(arms__1__expect_failure=".*"), ["arms[fp8-e4m3].expect_failure", "fits any text"]),
    "not-a-number": (changed(device__memory_gib=float("nan")), ["device.memory_gib", "nan", "finite"]),
    "infinite": (changed(serve__client_timeout_s=float("inf")), ["serve.client_timeout_s", "inf", "finite"]),
    "string-for-limit": (changed(serve__ready_timeout_s="900"), ["serve.ready_timeout_s", "'900'"]),
    "goodput-below-0": (changed(serve__goodput={"ttft": -1.0}), ["serve.goodput.ttft", "-1.0"]),
    "rounds-without-end": (changed(serve__rounds=10**30), ["serve.rounds", "1000"]),
    "seed-below-0": (changed(eval__seed=-1), ["eval.seed", "-1"]),
    "variable": (changed(arms__1__env={"A=B": "1"}), ["arms[fp8-e4m3].env", "A=B", "pattern"]),
    "argument-with-nul": (changed(arms__1__args=["--x", "a\0b"]), ["arms[fp8-e4m3].args[1]", "control characters"]),
    "title-with-escape": (changed(title="\x1b[31mred"), ["title", "control characters"]),
    "task-class": (changed(eval__tasks__0__name="nope"), ["eval.tasks[nope]", "no task class", "summary"]),
    "tier-of-a-raw-folder": (changed(tiers__0__name="server"), ["tiers", "'server'"]),
    "arm-named-as-a-file": (changed(arms__1__name="auto.json"), ["'auto.json'", ".json"]),
    "regex-of-many-levels": (
        changed(arms__1__expect_failure="(" * 5000 + ")" * 5000),
        ["arms[fp8-e4m3].expect_failure", "recursion"],
    ),
    "regex-of-many-repeats": (changed(arms__1__expect_failure="a{99999999999999}"), ["expect_failure", "too large"]),
    "json-of-many-levels": (changed(arms__1__args=["-cc", "[" * 5000 + "]" * 5000]), ["-cc [", "too many levels"]),
    "version": (changed(serve__vllm_version="../../x"), ["serve.vllm_version", "pattern"]),
    "no-interpreter": (changed(serve__python=""), ["serve.python", "at least 1"]),
    "bad-regex": (changed(arms__1__expect_failure="("), ["arms[fp8-e4m3].expect_failure", "regular expression"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_file_key_and_remedy(project, case):
    platform, wanted = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        project(platform)
    message = str(caught.value)
    assert "config/platforms/cpu.yaml" in message
    for text in wanted:
        assert text in message, message


FORBIDDEN = {
    "plain": ["--max-model-len", "8192"],
    "underscore-and-equals": ["--max_num_seqs=8"],
    "abbreviated": ["--max-num-batched", "64"],
    "json": ["--additional-config", '{"scheduler": {"max_num_seqs": 8}}'],
    "dotted": ["--scheduler-config.max_num_seqs=8"],
    "quantised": ["--quantization", "fp8"],
    "quantised-short": ["-q", "fp8"],
    "remote-code": ["--trust-remote-code"],
    "attached-short": ["-qawq"],
    "short-abbreviation": ["--qua", "fp8"],
}


@pytest.mark.parametrize("spelling", FORBIDDEN)
def test_forbidden_flag_is_found_in_every_spelling(project, spelling):
    with pytest.raises(ConfigError, match="is forbidden by policy `cpu`"):
        project(changed(arms__1__args=FORBIDDEN[spelling]))


def test_forbidden_flag_is_found_in_a_config_file(project, tmp_path):
    file = tmp_path / "vllm.yaml"
    file.write_text("max-num-seqs: 8\n")
    with pytest.raises(ConfigError, match=r"max-num-seqs.*C01"):
        project(changed(arms__1__args=["--config", str(file)]))


def test_an_unreadable_config_file_is_refused(project):
    with pytest.raises(ConfigError, match="cannot be read"):
        project(changed(arms__1__args=["--config", "/nowhere.yaml"]))


CONTEST = {
    "eager": (["--enforce-eager"], "C06"),
    "eager-equals": (["--enforce_eager=true"], "C06"),
    "compile-mode-json": (["--compilation-config", '{"mode": 0}'], "C05"),
    "compile-mode-dotted": (["-cc.mode=0"], "C05"),
    "optimisation-level": (["-O0"], "C05"),
    "optimisation-level-spaced": (["-O", "0"], "C05"),
    "compile-mode-abbreviated": (["--compilation", '{"mode": 0}'], "C05"),
    "compile-mode-abbreviated-dotted": (["--comp.mode=0"], "C05"),
    "no-graphs": (["--compilation-config", '{"cudagraph_mode": "NONE"}'], "C05"),
    "dummy-weights": (["--load", "dummy"], "C03"),
    "scheduler": (["--scheduler-cls", "mine.Scheduler"], "C02"),
    "other-dtype": (["--dtype", "float16"], "C04"),
}


@pytest.mark.parametrize("case", CONTEST)
def test_contest_policy(case):
    """A rule of the contest finds what it forbids, on the platform that declares it."""
    arguments, rule = CONTEST[case]
    run = load({**MAIN, "platform": "mi300x"})
    arm = run.platform.baseline.model_copy(update={"args": arguments})
    assert rule in {violation.rule for violation in run.violations(arm, "contest")}


def test_the_official_limits_of_the_platform_are_allowed():
    run = load({**MAIN, "platform": "mi300x"})
    assert run.violations(run.platform.baseline, "contest") == []


def test_forbidden_variable():
    run = load({**MAIN, "platform": "mi300x"})
    arm = run.platform.baseline.model_copy(update={"env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}})
    assert [violation.rule for violation in run.violations(arm, "contest")] == ["C15"]


def test_an_arm_outside_the_policy_is_measured_when_it_says_so(project):
    platform = changed(arms__1__args=["--max-num-seqs", "8"])
    platform["arms"][1]["outside_policy"] = True
    assert project(platform).violations(project(platform).platform.arms[1], "cpu")


def test_a_quantised_checkpoint_breaks_c03():
    from adrbench.config.policy import violations

    run = load({**MAIN, "platform": "mi300x"})
    found = violations(run.policies["contest"], run.platform, run.platform.baseline, {"quantization_config": {}})
    assert [violation.rule for violation in found] == ["C03"]


def test_a_backend_that_its_architecture_refuses_must_be_expected_to_fail(tmp_path):
    """ROCM_AITER_FA is valid on gfx942 and gfx950 only: elsewhere its refusal is what a smoke test expects."""
    platform = yaml.safe_load((ROOT / "config/platforms/dcu-bw.yaml").read_text())
    arm = next(arm for arm in platform["arms"] if arm["name"] == "rocm-aiter-fa")
    del arm["expect_failure"]
    (tmp_path / "dcu-bw.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    with pytest.raises(ConfigError, match=r"ROCM_AITER_FA' is refused on gfx936 .*expect_failure"):
        load({**MAIN, "platform": "dcu-bw", "platforms": str(tmp_path)})


@pytest.mark.parametrize("argument", ["--host", "--port", "--api-key", "--served-model-name"])
def test_what_the_job_owns_cannot_be_set_by_an_arm(project, argument):
    """Another host would be public, a key in argv is visible to every user of the machine."""
    with pytest.raises(ConfigError, match="belongs to the job"):
        project(changed(arms__1__args=[argument, "x"]))


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "ADRBENCH_API_KEY", "PYTHONPATH"])
def test_variables_that_the_job_owns_are_refused(project, name):
    with pytest.raises(ConfigError, match=f"env.{name}.*belongs to the job"):
        project(changed(arms__1__env={name: "x"}))


@pytest.mark.parametrize("content", [b"\xff", b"a: 2024-13-45", b"a: " + b"[" * 900 + b"]" * 900])
def test_a_damaged_config_file_is_refused(project, tmp_path, content):
    (tmp_path / "serve.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"--config .*serve.yaml: the file cannot be read .* against the policy"):
        project(changed(arms__1__args=["--config", str(tmp_path / "serve.yaml")]))


def test_a_digit_that_is_no_number_is_no_limit(project):
    """Python's isdigit() takes a superscript, int() does not: vLLM says what is wrong with it."""
    assert context_limit(["--max-model-len", "\u00b2"]) is None
    run = project(changed(arms__1__args=["--tensor-parallel-size", "\u00b2"]))
    assert devices(run, run.platform.arms[1]) == 1


def test_a_config_file_that_is_a_list_is_refused(project, tmp_path):
    (tmp_path / "vllm.yaml").write_text("- max-num-seqs\n")
    with pytest.raises(ConfigError, match="a mapping of arguments is needed"):
        project(changed(arms__1__args=["--config", str(tmp_path / "vllm.yaml")]))


@pytest.mark.parametrize(
    ("values", "key", "near", "there"),
    [
        ({"platform": "nowhere"}, "platform: 'nowhere'", "there are", "cpu, cpu-0181"),
        ({"platform": "H200"}, "platform: 'H200'", "did you mean `h200`?", "mi300x"),
        ({"platform": "H100"}, "platform: 'H100'", "did you mean `h200`?", "mi300x"),
        ({"platform": "CPU_KV"}, "platform: 'CPU_KV'", "did you mean `cpu-kv`?", "mi300x"),
        ({"platform": "../cpu"}, "platform: '../cpu'", "did you mean `cpu`?", "mi300x"),
        ({"adrs": ["ADR0011"]}, "adrs: 'ADR0011'", "did you mean `adr0011`?", "adr0013"),
        ({"adrs": ["adr0010", "adr0012"]}, "adrs: 'adr0012'", "did you mean", "adr0013"),
    ],
)
def test_a_name_without_a_file_is_refused_with_the_nearest_and_all(values, key, near, there):
    with pytest.raises(ConfigError) as caught:
        load(MAIN | values)
    message = str(caught.value)
    assert message.startswith(f"config/config.yaml: {key} is no file of config/")
    assert near in message
    assert there in message
    assert "pattern" not in message


def test_a_key_given_twice_is_an_error(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(ConfigError, match=r"'a' is given twice[\s\S]*line 3"):
        read_yaml(file)


def test_every_problem_is_reported_at_once(project):
    with pytest.raises(ConfigError) as caught:
        project(changed(serve__rounds="two", tiers__0__prompts="many"))
    assert len(str(caught.value).splitlines()) == 2


def test_baseline_has_more_rounds_than_other_arms():
    run = load(MAIN)
    first, *others = [list(run.rounds(arm)) for arm in run.platform.arms]
    assert (first, {tuple(rounds) for rounds in others}) == ([1, 2], {(1,)})


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], 1),
        (["--tensor-parallel-size", "2"], 2),
        (["-tp=4"], 4),
        (["--tensor-parallel-size=2", "--pipeline-parallel-size", "2"], 4),
    ],
)
def test_devices_of_an_arm(args, expected):
    """A tensor-parallel arm is given as many devices as its server uses."""
    run = load({"platform": "h200", "adrs": ["adr0010"]})
    arm = run.platform.arms[0].model_copy(update={"args": args})
    assert devices(run, arm) == expected
