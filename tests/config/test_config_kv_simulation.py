"""Arms with a simulated KV scheme: what is refused before anything runs, and what reaches the server's job."""

from __future__ import annotations

import copy

import pytest
import yaml
from adrbench.config import ConfigError, jobs, load, servers
from adrbench.config.platform import Platform
from adrbench.paths import ROOT

MAIN = {"platform": "cpu", "adrs": ["adr0011"]}
PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


@pytest.fixture
def run(tmp_path):
    """Load the CPU platform with one more arm."""

    def loaded(arm: dict, serve_args: list[str] | None = None):
        platform = copy.deepcopy(PLATFORM)
        platform["arms"] = [*platform["arms"][:1], {"name": "simulated", **arm}]
        if serve_args is not None:
            platform["serve"]["args"] = serve_args
        for name in ("policies.yaml", "decisions/adr0011.yaml"):
            target = tmp_path / "config" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text((ROOT / "config" / name).read_text())
        target = tmp_path / "config/platforms/cpu.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(yaml.safe_dump(platform, allow_unicode=True))
        return load(MAIN, root=tmp_path)

    return loaded


CACHING = ["--dtype", "bfloat16", "--max-model-len", "4096"]
REFUSED = {
    "unknown-scheme": ({"scheme": "kivi5"}, ["kv_simulation.scheme", "'kivi5'", "did you mean `kivi4`"]),
    "unknown-parameter": ({"scheme": "kivi4", "parameters": {"grup": 64}}, ["'grup' is unknown", "group"]),
    "parameter-of-another-type": ({"scheme": "kivi4", "parameters": {"group": 1.5}}, ["group", "whole number"]),
    "parameters-that-do-not-fit": (
        {"scheme": "kivi4", "parameters": {"key.step": 33}},
        ["33", "multiple of the group"],
    ),
    "static-without-scales": ({"scheme": "int8_per_head"}, ["kv_simulation.scales", "calibration evidence"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_arm_key_and_remedy(run, case):
    simulation, parts = REFUSED[case]
    with pytest.raises(ConfigError) as error:
        run({"kv_simulation": simulation})
    for part in ("config/platforms/cpu.yaml: arms[simulated]", *parts):
        assert part in str(error.value)


def test_another_scheme_than_the_simulated_one_is_refused(run):
    """Its row of table C would show what another scheme loses."""
    with pytest.raises(ConfigError, match="'kivi4' is simulated, but `scheme` says 'int8_per_head'"):
        run({"kv_simulation": {"scheme": "kivi4"}, "scheme": "int8_per_head"})


@pytest.mark.parametrize("said", [{}, {"scheme": "kivi4"}])
def test_what_is_simulated_is_what_the_arm_measures(run, said):
    arm = run({"kv_simulation": {"scheme": "kivi4"}, **said}).platform.arm("simulated")
    assert arm.measures == "kivi4"


def test_a_second_quantisation_by_vllm_is_refused(run):
    with pytest.raises(ConfigError, match="fp8_e4m3' with `kv_simulation` would quantise twice"):
        run({"kv_simulation": {"scheme": "kivi4"}, "kv_cache_dtype": "fp8_e4m3"})


def test_a_scheme_beside_one_that_the_backend_stores_is_refused(run):
    plugin = {"mechanism": "L3", "backend": "CUSTOM", "scheme": "int8_per_token_head"}
    with pytest.raises(ConfigError, match="CUSTOM already stores int8_per_token_head"):
        run({"kv_simulation": {"scheme": "int4_g32"}, "plugin": plugin})


@pytest.mark.parametrize(("scheme", "refused"), [("kivi4", True), ("first256_int4", False), ("int4_g32", False)])
def test_prefix_caching_is_refused_where_a_cached_block_would_be_read_in_two_ways(run, scheme, refused):
    if not refused:
        assert run({"kv_simulation": {"scheme": scheme}}, CACHING)
        return
    with pytest.raises(ConfigError, match="--no-enable-prefix-caching"):
        run({"kv_simulation": {"scheme": scheme}}, CACHING)


@pytest.mark.parametrize(
    ("scheme", "caching", "words"),
    [
        ("kivi4", False, None),
        ("kivi4", True, "plugin.scheme: kivi4 keeps the newest tokens in 16 bit.*--no-enable-prefix-caching"),
        ("int4_g32", True, None),
        ("kivi2", False, "plugin.scheme: backend CUSTOM cannot serve it.*no kernel.*can serve .*kivi4"),
        ("int8_per_head", False, "plugin.scheme: backend CUSTOM cannot serve it.*needs calibrated scales"),
    ],
)
def test_the_backend_s_schemes_are_those_that_it_has_kernels_for(run, scheme, caching, words):
    arm = {"attention_backend": "CUSTOM", "plugin": {"mechanism": "L3", "backend": "CUSTOM", "scheme": scheme}}
    arguments = CACHING if caching else [*CACHING, "--no-enable-prefix-caching"]
    if words is None:
        assert run(arm, arguments)
        return
    with pytest.raises(ConfigError, match=words):
        run(arm, arguments)


def test_the_settings_reach_the_plugin_and_the_expectation(run):
    loaded = run({"kv_simulation": {"scheme": "kivi4", "parameters": {"group": 64}}})
    server = servers.server(loaded, loaded.platform.arm("simulated"), "models/cpu", "python")
    assert server["plugin"]["kv_simulation"].items() >= {"scheme": "kivi4", "parameters": {"group": 64}}.items()
    assert server["expect"]["kv_simulation"] == "kivi4"
    baseline = servers.server(loaded, loaded.platform.arm("auto"), "models/cpu", "python")
    assert baseline["plugin"] == {}
    assert "kv_simulation" not in baseline["expect"]


def custom(scheme: str) -> dict:
    return {"attention_backend": "CUSTOM", "plugin": {"mechanism": "L3", "backend": "CUSTOM", "scheme": scheme}}


def test_an_arm_measures_what_its_backend_stores_also_where_only_the_plugin_says_it(run):
    """Its row was missing in ADR 0011's table C, and in the arithmetic of memory."""
    loaded = run(custom("int4_g32"), [*CACHING, "--no-enable-prefix-caching"])
    assert loaded.platform.arm("simulated").measures == "int4_g32"
    arms = {arm["name"]: arm["scheme"] for arm in jobs.memory(loaded, "results/cpu", "model.json", {})["arms"]}
    assert arms["simulated"] == "int4_g32"


def test_an_arm_that_says_two_schemes_is_refused(run):
    with pytest.raises(ConfigError, match=r"plugin.scheme: 'int4_g32' is stored, but `scheme` says 'fp8_per_tensor'"):
        run(custom("int4_g32") | {"scheme": "fp8_per_tensor"}, CACHING)


def test_every_shipped_custom_arm_has_a_scheme_to_its_name():
    found = {}
    for file in sorted((ROOT / "config/platforms").glob("*.yaml")):
        for arm in Platform.model_validate(yaml.safe_load(file.read_text())).arms:
            if arm.attention_backend == "CUSTOM":
                found[file.stem, arm.name] = arm.measures
    assert found["h200-8b", "custom-int8"] == "int8_per_token_head"
    assert None not in found.values()
