"""The simulated scheme in a real vLLM on CPU, against a plain torch model that reads back the same reference.

In fp32: logits equal within 1e-2 of their norm, and the same greedy tokens, for requests in one batch, computed
in chunks, preempted, on reused blocks. A scheme that differs in group, axis, window or maximum does not pass.
A default run proves a few schemes; ``make test-kv`` all of them.

Cannot prove: GPU backends (benchmarks/simulation_proof.py, on a GPU host), nor that a scheme's own kernel would give
these numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "kv"))

import cases
import pytest
import yaml
from adrbench.job import JobError
from adrbench.kernels.formats import schemes
from adrbench.serve.server import serving

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "kv"
SUBSET = ("int8_per_token_head", "kivi4", "first256_int4")
NEW_TOKENS = 4
ENGINE = cases.ENGINE | {"dtype": "float32", "enforce_eager": True}
SUBSET_WRONG = ("another-axis", "keys-per-token", "another-window", "another-end-of-the-window")


def environment_0181() -> dict[str, str]:
    """What the platform's file sets for this vLLM: it does not start without two preloaded libraries."""
    found = yaml.safe_load((ROOT / "config/platforms/cpu-0181.yaml").read_text())["serve"]["env"]
    return {name: value.replace("{project}", str(ROOT)) for name, value in found.items()}


def python(
    *arguments: str | Path, plugin: dict[str, Any] | None = None, role: str = "serve", timeout: float = 1500
) -> str:
    """Run one of the scripts beside this test in the interpreter of a role."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "pythonpath"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **(environment_0181() if role == "serve-0181" else {}),
        **({"ADRBENCH_PLUGIN": json.dumps(plugin)} if plugin else {}),
    }
    command = [str(ROOT / f".envs/{role}/bin/python"), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def compare(first: Path, second: Path) -> dict[str, dict[str, Any]]:
    """By case of ``second``: largest relative difference of logits and whether the greedy tokens agree."""
    return json.loads(python(HERE / "compare.py", first, second).splitlines()[-1])


class Bench:
    """Live runs of one vLLM and references in one folder. ``role``: the environment that has this vLLM."""

    def __init__(self, folder: Path, model: Path, role: str = "serve") -> None:
        self.folder, self.model, self.scales, self.role = folder, model, folder / "scales.json", role
        python(HERE / "calibrate.py", model, ROOT / "README.md", self.scales)

    def settings(self, name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return cases.settings(name, str(self.scales), parameters)

    def live(self, label: str, asked_cases: list[dict[str, Any]], plugin: bool = True, **engine: Any) -> Path:
        asked, output = self.folder / f"{label}.json", self.folder / f"{label}.pt"
        text = str(ROOT / "README.md")
        asked.write_text(
            json.dumps({"model": str(self.model), "engine": ENGINE | engine, "text": text, "cases": asked_cases})
        )
        settings = {"report": str(self.folder / f"{label}.jsonl"), "kv_simulation": {"scheme": "bf16"}}
        python(HERE / "live.py", asked, output, plugin=settings if plugin else None, role=self.role)
        return output

    def reference(self, label: str, live: Path, asked_cases: list[dict[str, Any]]) -> Path:
        asked, output = self.folder / f"{label}.json", self.folder / f"{label}.pt"
        asked.write_text(json.dumps({"model": str(self.model), "live": str(live), "cases": asked_cases}))
        python(HERE / "reference.py", asked, output)
        return output

    def case(self, name: str, prompts: list[list[int]] | None = None) -> dict[str, Any]:
        return {
            "name": name,
            "settings": {"kv_simulation": self.settings(name)},
            "prompts": prompts or (cases.LONG if cases.windowed(name) else cases.SHORT),
            "new_tokens": NEW_TOKENS,
        }

    def proof(self, label: str, names: list[str], wrong: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """Each scheme against its reference, and against the references that must not agree."""
        live = self.live(label, [self.case(name) for name in names])
        right = [{"name": name, "live": name, **self.settings(name)} for name in names]
        others = [
            {"name": label, "live": cases.WRONG[label][0], **self.settings(*cases.WRONG[label][1:])} for label in wrong
        ]
        return compare(live, self.reference(f"{label}-reference", live, right + others))


@pytest.fixture(scope="session")
def bench(serve_python, embedded_model, tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("kv"), embedded_model)


@pytest.fixture(scope="session")
def bench_0181(serve_python, embedded_model, tmp_path_factory):
    """vLLM 0.18.1, whose CPU_ATTN writes the cache inside ``forward``; the reference stays where it is."""
    if not (ROOT / ".envs/serve-0181/.complete").is_file():
        pytest.skip("vLLM 0.18.1 is not set up: python3 envs/setup.py serve-0181")
    return Bench(tmp_path_factory.mktemp("kv-0181"), embedded_model, "serve-0181")


@pytest.fixture(scope="session")
def whole_0181(bench_0181):
    return bench_0181.proof("whole-0181", sorted(schemes()), tuple(cases.WRONG))


@pytest.fixture(scope="session")
def subset(bench):
    return bench.proof("subset", list(SUBSET), SUBSET_WRONG)


@pytest.fixture(scope="session")
def whole(bench):
    return bench.proof("whole", sorted(schemes()), tuple(cases.WRONG))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSET)
def test_served_logits_are_those_of_the_reference(subset, name):
    assert cases.agrees(subset[name]), subset[name]


@pytest.mark.slow
@pytest.mark.parametrize("case", SUBSET_WRONG)
def test_a_wrong_scheme_does_not_agree(subset, case):
    assert not cases.agrees(subset[case]), subset[case]


@pytest.mark.kv
@pytest.mark.parametrize("name", sorted(schemes()))
def test_every_scheme_serves_the_logits_of_its_reference(whole, name):
    assert cases.agrees(whole[name]), whole[name]


@pytest.mark.kv
@pytest.mark.parametrize("case", cases.WRONG)
def test_no_wrong_scheme_agrees(whole, case):
    assert not cases.agrees(whole[case]), whole[case]


@pytest.mark.kv
@pytest.mark.parametrize("name", sorted(schemes()))
def test_every_scheme_in_vllm_0181(whole_0181, name):
    assert cases.agrees(whole_0181[name]), whole_0181[name]


@pytest.mark.kv
@pytest.mark.parametrize("case", cases.WRONG)
def test_no_wrong_scheme_agrees_in_vllm_0181(whole_0181, case):
    assert not cases.agrees(whole_0181[case]), whole_0181[case]


@pytest.mark.kv
@pytest.mark.parametrize("name", ["kivi4", "first256_int4", "int8_per_token_head"])
def test_preemption_in_vllm_0181(bench_0181, name):
    preempted(bench_0181, name)


@pytest.mark.kv
@pytest.mark.parametrize("name", cases.PREEMPTED)
def test_preemption_and_reused_blocks(bench, name):
    preempted(bench, name)


def preempted(bench, name):
    """A pool of 23 usable blocks of 32 tokens holds two prompts of 11, not what is generated: one request is
    preempted and starts again, and a second batch takes used blocks."""
    first, second = bench.case(name, cases.CROWDED), bench.case(name, cases.AFTERWARDS)
    first["new_tokens"], second["name"] = cases.CROWDED_TOKENS, "again"
    live = bench.live(f"pool-{name}", [first, second], **cases.POOL)
    reference = bench.reference(
        f"pool-{name}-reference", live, [{"name": n, "live": n, **bench.settings(name)} for n in (name, "again")]
    )
    found = compare(live, reference)
    assert found[name]["restarts"] > 0, "the pool was large enough for all: nothing was preempted"
    assert cases.agrees(found[name]), found
    assert cases.agrees(found["again"]), found


@pytest.mark.kv
@pytest.mark.parametrize("name", [name for name in sorted(schemes()) if cases.windowed(name)])
def test_windows_that_complete_while_decoding(bench, name):
    decoded(bench, name)


@pytest.mark.kv
@pytest.mark.parametrize("name", ["kivi4", "first256_int4"])
def test_windows_that_complete_while_decoding_in_vllm_0181(bench_0181, name):
    decoded(bench_0181, name)


def decoded(bench, name):
    """Decoding crosses every limit: 128 tokens (KIVI's keys), 256 (the first tokens), and the newest 128 move on."""
    case = bench.case(name) | {"new_tokens": cases.DECODED_TOKENS}
    live = bench.live(f"decode-{name}", [case])
    asked = {"name": name, "live": name, **bench.settings(name)}
    found = compare(live, bench.reference(f"decode-{name}-reference", live, [asked]))[name]
    assert found["steps_of_one"] >= cases.DECODED_TOKENS - 1, "the tokens were not decoded one by one"
    assert cases.agrees(found), found


@pytest.mark.kv
def test_bf16_through_the_plugin_is_bit_identical(bench):
    case = bench.case("bf16", cases.SHORT)
    with_plugin = bench.live("bf16", [case], dtype="bfloat16")
    without = bench.live("plain", [case | {"settings": None}], plugin=False, dtype="bfloat16")
    found = compare(with_plugin, without)["bf16"]
    assert found["difference"] == 0
    assert found["same_tokens"]


def simulated(spec: dict[str, Any], name: str) -> dict[str, Any]:
    simulation = {"scheme": name, "parameters": {}, "scales": None}
    return spec | {"plugin": {"kv_simulation": simulation}, "expect": {"kv_simulation": name}}


@pytest.mark.slow
def test_a_server_reports_what_its_engine_process_simulated(server_spec, tmp_path):
    with serving(simulated(server_spec, "kivi4"), tmp_path) as server:
        ready = dict(server.resolved["kv_simulation"])
        body = {"model": server.model, "prompt": "Write one more line. " * 40, "max_tokens": 4, "temperature": 0}
        server.request("/v1/completions", body, 120)
    done = server.resolved["kv_simulation"]
    assert ready["scheme"] == done["scheme"] == "kivi4"
    assert done["backend"].endswith("CPUAttentionBackend")
    assert done["engine"]
    assert done["pid"] != server.process.pid
    assert done["layers"] == 30
    assert ready["tokens_quantised"] == 0 < ready["tokens_seen"] < done["tokens_seen"]
    assert done["tokens_quantised"] == 128, "one step of KIVI's window fits between 129 and 255 tokens"


@pytest.mark.kv
def test_a_server_whose_engine_has_no_plugin_fails_the_arm(server_spec, tmp_path):
    spec = simulated(server_spec, "kivi4")
    spec["env"] = spec["env"] | {"VLLM_PLUGINS": "none_of_ours"}
    with pytest.raises(JobError, match="not simulated in the engine process"):
        with serving(spec, tmp_path):
            pass
