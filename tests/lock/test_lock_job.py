"""The files of a lock: rendered only for an accepted decision, readable by a shell, refusing a second mechanism.

What this cannot prove: that an image builds from the fragment (no container tool here), and that the plugin's
mechanisms serve on a device. That the script starts a real server is tested in test_lock_server.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from adrbench.decide.verdict import ObjectiveResult, OptionResult, Status, Verdict
from adrbench.decide.words import text
from adrbench.evidence import digest_file, write_json
from adrbench.lock.__main__ import NAMES, work
from adrbench.lock.spec import Lock
from adrbench.serve.server import compiled_folder

NASTY = "it's $(touch HERE); `id`"
ARMS = {
    "base": {"args": ["--dtype", "bfloat16"], "env": {"OMP_NUM_THREADS": "1", "NOTE": NASTY}},
    "fp8": {"args": ["--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3", "--note", NASTY], "env": {}},
    "first": {"args": [], "env": {}, "plugin": {"mechanism": "L2", "priority": ["ROCM_ATTN"]}},
    "third": {"args": [], "env": {}, "plugin": {"mechanism": "L3", "backend": "CUSTOM", "scheme": "kivi4"}},
    "two": {"args": ["--attention-backend", "A"], "env": {}, "plugin": {"mechanism": "L2", "priority": ["B"]}},
}


def option(arm: str) -> OptionResult:
    goal = ObjectiveResult(
        metric="output_tokens_per_s", value=1.0, low=None, high=None, gain=None, gain_low=None, gain_high=None,
        noise=None, p_value=None, verdict="better", basis=text("x", "x"),
    )  # fmt: skip
    return OptionResult(
        name=f"option {arm}", title=text(arm, arm), arm=arm, state="measured", reason=None, violations=[], gates=[],
        objective=goal, eligible=True,
    )  # fmt: skip


def verdict(word: str, arm: str | None) -> Verdict:
    return Verdict(
        decision="adr0011", platform="p", policy="cpu", confidence=0.95, gain_rule="estimate", baseline="base",
        status=Status(word=word, option=f"option {arm}" if arm else None, text=text("why", "原因")),
        options=[option(name) for name in ARMS], accuracy={}, noise={}, latency={}, evidence={"a.json": "0" * 64},
    )  # fmt: skip


@pytest.fixture
def lock(tmp_path: Path):
    """Render the lock of an arm; returns (document, folder)."""
    model = tmp_path / "model folder"
    model.mkdir()
    (model / "config.json").write_text("{}")

    def render(word: str = "Accepted", arm: str | None = "fp8", **changes: Any) -> tuple[Lock, Path]:
        write_json(tmp_path / "decide.json", verdict(word, arm).model_dump(mode="json"))
        servers = {name: {"python": "/bin/echo", "model": str(model), **parts} for name, parts in ARMS.items()}
        spec = {
            "platform": "p", "adr": "adr0011", "number": "0011", "verdict": str(tmp_path / "decide.json"),
            "mechanisms": ["flag", "priority", "register"], "arms": servers, "package": str(tmp_path / "package"),
        }  # fmt: skip
        output = tmp_path / "lock" / "lock.json"
        work(spec | changes, output)
        return Lock.model_validate_json(output.read_text()), output.parent

    return render


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM", "ADRBENCH", "SERVE"))}
    return subprocess.run(
        [str(folder / "serve.sh"), *arguments], env=base | environment, capture_output=True, text=True, timeout=30
    )


def test_an_accepted_option_is_rendered_with_its_digests(lock) -> None:
    document, folder = lock()
    assert (document.state, document.arm, document.mechanism, document.backend) == ("locked", "fp8", "flag", None)
    assert sorted(document.files) == sorted(NAMES)
    assert all(digest_file(folder / name) == digest for name, digest in document.files.items())
    assert document.files["serve.sh"] in (folder / "RESTORE.md").read_text()


@pytest.mark.parametrize(("word", "arm"), [("Proposed", None), ("Blocked", None)])
def test_what_is_not_accepted_is_not_locked_and_an_old_lock_goes(lock, word: str, arm: str | None) -> None:
    _, folder = lock()
    assert (folder / "serve.sh").is_file()
    document, folder = lock(word, arm)
    assert document.state == "open"
    assert word in document.reason.en
    assert [name for name in NAMES if (folder / name).exists()] == []


def test_two_mechanisms_are_refused_and_nothing_is_rendered(lock) -> None:
    document, folder = lock(arm="two")
    assert document.state == "refused"
    assert "two mechanisms are active (C14): priority B and flag A" in document.reason.en
    assert not (folder / "serve.sh").exists()


def test_a_mechanism_that_the_decision_does_not_allow_is_refused(lock) -> None:
    document, _ = lock(arm="first", mechanisms=["flag"])
    assert (document.state, "allows flag" in document.reason.en) == ("refused", True)


def test_a_record_of_facts_locks_nothing(lock) -> None:
    document, folder = lock(arms={}, mechanisms=[])
    assert document.state == "none"
    assert not (folder / "serve.sh").exists()


@pytest.mark.parametrize("arm", ["base", "fp8", "first"])
def test_the_script_is_valid_shell(lock, arm: str) -> None:
    _, folder = lock(arm=arm)
    subprocess.run(["bash", "-n", str(folder / "serve.sh")], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(folder / "serve.sh")], check=True)


def test_values_reach_vllm_word_for_word(lock) -> None:
    _, folder = lock(arm="fp8")
    done = start(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith(f"--dtype bfloat16 --kv-cache-dtype fp8_e4m3 --note {NASTY}")
    assert "--host 127.0.0.1 --port 8000" in done.stdout
    assert not list(folder.glob("HERE"))


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ((), {"ADRBENCH_LOCK": "p/adr0010"}, "the image is locked by p/adr0010"),
        ((), {"ADRBENCH_PLUGIN": "{}"}, "ADRBENCH_PLUGIN is set"),
        ((), {"VLLM_ATTENTION_BACKEND": "X"}, "no such variable"),
        ((), {"VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": "1"}, "changes the order of backends"),
        (("--attention-backend", "X"), {}, "would change what was decided"),
        (("--attention_config.backend=X",), {}, "would change what was decided"),
        (("--kv-cache-dtype=auto",), {}, "would change what was decided"),
    ],
)
def test_a_second_mechanism_is_refused_at_start(lock, arguments, environment, words: str) -> None:
    _, folder = lock(arm="fp8")
    done = start(folder, *arguments, **environment)
    assert done.returncode == 64
    assert "refused (C14" in done.stderr
    assert words in done.stderr
    assert done.stdout == ""


def test_its_own_lock_and_other_arguments_are_accepted(lock) -> None:
    _, folder = lock(arm="fp8")
    done = start(folder, "--disable-log-requests", ADRBENCH_LOCK="p/adr0011", SERVE_PORT="9001")
    assert done.returncode == 0, done.stderr
    assert "--port 9001" in done.stdout
    assert done.stdout.rstrip().endswith("--disable-log-requests")


def test_servers_whose_plugins_differ_do_not_share_compiled_code(lock, tmp_path: Path) -> None:
    """vLLM's key of it knows the flags alone, and what is compiled depends on the plugin (serve/server.py)."""
    package, kept = tmp_path / "python", {}
    (package / "adrbench").mkdir(parents=True)
    for arm, mechanisms in (("first", ["priority"]), ("third", ["register"]), ("base", ["flag"])):
        _, folder = lock(arm=arm, mechanisms=mechanisms)
        script = folder / "serve.sh"
        script.write_text(
            script.read_text().replace('exec "$python" -m', 'echo "$VLLM_CACHE_ROOT"; exit; exec "$python" -m')
        )
        kept[arm] = [
            start(folder, ADRBENCH_PYTHONPATH=str(package), **place).stdout.strip()
            for place in ({"XDG_CACHE_HOME": "/c"}, {"VLLM_CACHE_ROOT": "/d"})
        ]
    assert kept["base"] == ["", "/d"]
    assert kept["first"] == [
        f"/c/vllm/{compiled_folder(ARMS['first']['plugin'])}",
        f"/d/{compiled_folder(ARMS['first']['plugin'])}",
    ]
    assert kept["third"][0] not in kept["first"]


def test_a_missing_model_or_plugin_is_named(lock, tmp_path: Path) -> None:
    _, folder = lock(arm="fp8")
    done = start(folder, SERVE_MODEL=str(tmp_path / "nowhere"))
    assert (done.returncode, "set SERVE_MODEL" in done.stderr) == (66, True)
    _, folder = lock(arm="first")
    done = start(folder)
    assert (done.returncode, "set ADRBENCH_PYTHONPATH" in done.stderr) == (66, True)
    assert "COPY src /opt/adrbench/python/adrbench" in (folder / "Dockerfile.fragment").read_text()
