"""The simulated scheme in a real vLLM on CPU, against a plain torch model that reads back the same reference.

In fp32: logits equal within 1e-2 of their norm, and the same greedy tokens, for requests in one batch, computed
in chunks, preempted, on reused blocks. A scheme that differs in group, axis, window or maximum does not pass.
A default run proves a few schemes; ``make test-kv`` all of them.

Cannot prove: GPU backends (their caches: test_serve_simulation.py), nor that a scheme's own kernel would give
these numbers.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from adrbench.job import JobError
from adrbench.kernels.formats import scheme, schemes
from adrbench.serve.server import serving

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "kv"
SUBSET = ("int8_per_token_head", "kivi4", "first256_int4")
SHORT, LONG = [[0, 45], [200, 100]], [[0, 45], [500, 290]]
NEW_TOKENS = 4
TOLERANCE = 1e-2
APART = 1e-3
ENGINE = {
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_batched_tokens": 64,  # prompts are computed in chunks, beside other requests' steps
    "max_num_seqs": 4,
    "enforce_eager": True,
    "enable_prefix_caching": False,
}
# name: (scheme that vLLM simulates, what the reference does instead)
WRONG = {
    "another-group": ("int4_g32", "int4_g32", {"group": 64}),
    "another-axis": ("int8_per_token_head", "int8_per_head", {}),
    "keys-per-token": ("kivi4", "first256_int4", {"sink": 0}),
    "another-window": ("kivi4", "kivi4", {"residual": 64}),
    "another-end-of-the-window": ("first256_int4", "int4_g32", {}),
    "448-for-240": ("fp8_e4m3fnuz_per_token_head", "fp8_e4m3fnuz_per_token_head", {"limit": 448.0}),
    "240-for-448": ("fp8_per_token_head", "fp8_per_token_head", {"limit": 240.0}),
    "no-rotation": ("int4_hadamard", "int4_per_token_head", {}),
    "no-smoothing": ("qserve_kv4", "qserve_kv4_plain", {}),
}
SUBSET_WRONG = ("another-axis", "keys-per-token", "another-window", "another-end-of-the-window")


def python(*arguments: str | Path, plugin: dict[str, Any] | None = None, timeout: float = 1500, **env: str) -> str:
    """Run one of the scripts beside this test in the serving interpreter."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "pythonpath"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **({"ADRBENCH_PLUGIN": json.dumps(plugin)} if plugin else {}),
        **env,
    }
    command = [str(ROOT / ".envs/serve/bin/python"), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def compare(first: Path, second: Path) -> dict[str, dict[str, Any]]:
    """By case of ``second``: largest relative difference of logits and whether the greedy tokens agree."""
    return json.loads(python(HERE / "compare.py", first, second).splitlines()[-1])


class Bench:
    """Live runs and references in one folder."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model, self.scales = folder, model, folder / "scales.json"
        python(HERE / "calibrate.py", model, ROOT / "README.md", self.scales)

    def settings(self, name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        needed = scheme(name).needs_calibration or scheme(name).is_static
        return {"scheme": name, "parameters": parameters or {}, "scales": str(self.scales) if needed else None}

    def live(self, label: str, cases: list[dict[str, Any]], plugin: bool = True, **engine: Any) -> Path:
        asked, output = self.folder / f"{label}.json", self.folder / f"{label}.pt"
        text = str(ROOT / "README.md")
        asked.write_text(
            json.dumps({"model": str(self.model), "engine": ENGINE | engine, "text": text, "cases": cases})
        )
        settings = {"report": str(self.folder / f"{label}.jsonl"), "kv_simulation": {"scheme": "bf16"}}
        python(HERE / "live.py", asked, output, plugin=settings if plugin else None)
        return output

    def reference(self, label: str, live: Path, cases: list[dict[str, Any]]) -> Path:
        asked, output = self.folder / f"{label}.json", self.folder / f"{label}.pt"
        asked.write_text(json.dumps({"model": str(self.model), "live": str(live), "cases": cases}))
        python(HERE / "reference.py", asked, output)
        return output

    def case(self, name: str, prompts: list[list[int]] | None = None) -> dict[str, Any]:
        windowed = any(p.sink > 1 or p.depends_on_length for p in (scheme(name).key, scheme(name).value))
        return {
            "name": name,
            "settings": {"kv_simulation": self.settings(name)},
            "prompts": prompts or (LONG if windowed else SHORT),
            "new_tokens": NEW_TOKENS,
        }

    def proof(self, label: str, names: list[str], wrong: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        """Each scheme against its reference, and against the references that must not agree."""
        live = self.live(label, [self.case(name) for name in names])
        right = [{"name": name, "live": name, **self.settings(name)} for name in names]
        others = [{"name": label, "live": WRONG[label][0], **self.settings(*WRONG[label][1:])} for label in wrong]
        return compare(live, self.reference(f"{label}-reference", live, right + others))


@pytest.fixture(scope="session")
def bench(serve_python, embedded_model, tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("kv"), embedded_model)


@pytest.fixture(scope="session")
def subset(bench):
    return bench.proof("subset", list(SUBSET), SUBSET_WRONG)


@pytest.fixture(scope="session")
def whole(bench):
    return bench.proof("whole", sorted(schemes()), tuple(WRONG))


def agrees(found: dict[str, Any]) -> bool:
    """Logits and tokens agree, and the keys and values that were rounded are those of the reference's model."""
    return found["difference"] < TOLERANCE and found["same_tokens"] and found["apart"] < APART


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSET)
def test_served_logits_are_those_of_the_reference(subset, name):
    assert agrees(subset[name]), subset[name]


@pytest.mark.slow
@pytest.mark.parametrize("case", SUBSET_WRONG)
def test_a_wrong_scheme_does_not_agree(subset, case):
    assert not agrees(subset[case]), subset[case]


@pytest.mark.kv
@pytest.mark.parametrize("name", sorted(schemes()))
def test_every_scheme_serves_the_logits_of_its_reference(whole, name):
    assert agrees(whole[name]), whole[name]


@pytest.mark.kv
@pytest.mark.parametrize("case", WRONG)
def test_no_wrong_scheme_agrees(whole, case):
    assert not agrees(whole[case]), whole[case]


@pytest.mark.kv
@pytest.mark.parametrize("name", ["kivi4", "first256_int4", "int8_per_token_head"])
def test_preemption_and_reused_blocks(bench, name):
    """A pool of 23 usable blocks of 32 tokens holds two prompts of 11, not what is generated: one request is
    preempted and starts again, and a second batch takes used blocks."""
    prompts = [[0, 330], [400, 330]]
    first, second = bench.case(name, prompts), bench.case(name, [[900, 130], [0, 300]])
    first["new_tokens"], second["name"] = 60, "again"
    live = bench.live(f"pool-{name}", [first, second], num_gpu_blocks_override=24, block_size=32)
    reference = bench.reference(
        f"pool-{name}-reference", live, [{"name": n, "live": n, **bench.settings(name)} for n in (name, "again")]
    )
    found = compare(live, reference)
    assert found[name]["restarts"] > 0, "the pool was large enough for all: nothing was preempted"
    assert agrees(found[name]), found
    assert agrees(found["again"]), found


@pytest.mark.kv
def test_bf16_through_the_plugin_is_bit_identical(bench):
    case = bench.case("bf16", SHORT)
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
