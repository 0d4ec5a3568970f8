"""The benchmark of what simulating costs a decode step, with stand-ins for engines: arms that fail, rounds, verdicts.

Cannot prove: any cost.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kv_simulation
import staggered_engine

STAND_IN = """
import json, sys, time
asked = json.loads(sys.argv[2])
name = (asked["simulation"] or {"scheme": "none"})["scheme"]
if name == "kivi2":
    time.sleep(600)  # never ready
print("READY " + json.dumps({"vllm": "stand-in"}), flush=True)
for number, line in enumerate(sys.stdin):
    if name == "kivi4" and number == 2:
        sys.exit("out of memory")
    times = {"none": 0.010, "int4_g32": 0.011, "int4_hadamard": 0.011 if number else 0.013, "atom_int4": 0.020}
    print("a line of the log", flush=True)
    print("READY " + json.dumps(times.get(name, 0.01)), flush=True)
"""
SCHEMES = ["int4_g32", "int4_hadamard", "atom_int4", "kivi4", "kivi2"]


@pytest.fixture
def found(tmp_path, monkeypatch):
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(kv_simulation, "__file__", str(script))
    (tmp_path / "config.json").write_text(
        json.dumps({"num_attention_heads": 2, "hidden_size": 128, "num_hidden_layers": 3})
    )
    output = tmp_path / "cost.json"
    command = ["--model", str(tmp_path), "--schemes", *SCHEMES, "--repeats", "4", "--ready-seconds", "15"]
    monkeypatch.setattr(sys, "argv", ["kv_simulation.py", *command, "--output", str(output)])
    with pytest.raises(SystemExit, match="arms are missing: model"):
        kv_simulation.main()
    return json.loads(output.read_text())["models"]["model"]


def test_arms_that_fail_are_named_and_the_others_are_measured(found):
    assert sorted(found["failed"]) == ["kivi2", "kivi4"]
    assert "ended:\nout of memory" in found["failed"]["kivi4"]
    assert "gave no answer in" in found["failed"]["kivi2"]
    rows = {row["scheme"]: row for row in found["rows"]}
    assert {name: row["rounds"] for name, row in rows.items()} == {
        "none": 4, "int4_g32": 4, "int4_hadamard": 4, "atom_int4": 4, "kivi4": 2,
    }  # fmt: skip
    told = {name: (row["within"], row["decided"]) for name, row in rows.items()}
    assert told == {
        "none": (True, True), "int4_g32": (True, True), "int4_hadamard": (True, False), "atom_int4": (False, True),
        "kivi4": (True, True),
    }  # fmt: skip
    hadamard = rows["int4_hadamard"]
    assert [round(hadamard[key], 6) for key in ("ratio", "least_ratio", "greatest_ratio")] == [1.1, 1.1, 1.3]


@pytest.mark.parametrize(("batch", "prompt", "budget"), [(32, 2048, 4096), (32, 2048, 64), (4, 512, 4096), (3, 100, 3)])
def test_every_repeat_has_its_tokens_however_the_prompts_are_prefilled(monkeypatch, capsys, batch, prompt, budget):
    engines = staggered_engine.install(monkeypatch)
    arguments = argparse.Namespace(prompt=prompt, steps=32, repeats=12, batch=batch, device="cpu",
                                   engine=json.dumps({"max_num_batched_tokens": budget}))  # fmt: skip
    asked = {"model": "none", "seed": 7, "prompt": prompt, "batch": batch, "steps": 32, "simulation": None}
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n" * 12))
    kv_simulation.worker(asked | {"engine": kv_simulation.engine(arguments, Path("none"), dummy=False)})
    answers = [line for line in capsys.readouterr().out.splitlines() if line.startswith(kv_simulation.READY)]
    assert len(answers) == 1 + 12
    tokens = [len(request.token_ids) for request in engines[0].requests]
    assert min(tokens) == 32 + 12 * 33
    assert max(tokens) - min(tokens) >= batch * prompt // budget - 1
    assert not any(request.finished for request in engines[0].requests)
