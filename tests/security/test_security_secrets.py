"""Keys and tokens: in no argv, log, evidence or report; a configuration that holds one is refused."""

from __future__ import annotations

import copy
import json
import os
import secrets
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from adrbench import config
from adrbench.paths import ROOT
from adrbench.redact import MARK, is_secret_name, looks_secret, redact, redact_file
from adrbench.serve.process import Guarded, job_environment
from adrbench.serve.server import Server, command, server_environment
from adrbench.serve.spec import ServerSpec

# Made up; written in parts so that no scanner takes this file for a leak.
TOKENS = {
    "Hugging Face": "hf_" + "aB3" * 11,
    "OpenAI": "sk-" + "proj-" + "xY9" * 12,
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitLab": "glpat-" + "a1B2c" * 4,
    "AWS": "AKIA" + "ABCD1234EFGH5678",
    "Google": "AIza" + "a1B2c" * 7,
    "Slack": "xoxb-" + "123456789012",
}


@pytest.mark.parametrize("issuer", TOKENS)
def test_tokens_are_redacted_by_their_form(issuer):
    text = redact(f"loading with token={TOKENS[issuer]}, done")
    assert TOKENS[issuer] not in text
    assert MARK in text
    assert text.endswith(", done")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: Bearer abcdefghijklmnop1234", f"Authorization: Bearer {MARK}"),
        ("http://user:hunter2@proxy:3128/x", f"http://user:{MARK}@proxy:3128/x"),
        ("the key is k-123", f"the key is {MARK}"),
    ],
)
def test_other_forms(text, clean):
    assert redact(text, ["k-123"]) == clean


@pytest.mark.parametrize(
    "text",
    ["sk_head_dim 128", "http://127.0.0.1:8000/v1", "hf_overrides", "max_tokens=16", "a" * 200, "bearer of news"],
)
def test_ordinary_text_stays_as_it_is(text):
    assert redact(text) == text
    assert not looks_secret(text)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("OPENAI_API_KEY", True), ("AWS_SECRET_ACCESS_KEY", True), ("DB_PASSWORD", True),
        ("GITHUB_TOKEN", True), ("TOKENIZERS_PARALLELISM", False), ("MAX_TOKENS", False), ("KEYBOARD", False),
        ("VLLM_CPU_KVCACHE_SPACE", False), ("TRITON_CACHE_DIR", False),
    ],
)  # fmt: skip
def test_names_of_variables_that_hold_secrets(name, secret):
    assert is_secret_name(name) is secret


def test_a_log_is_redacted_in_place_and_otherwise_untouched(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(b"one\r\n\xff\xfe two\nkey=" + TOKENS["Hugging Face"].encode() + b"\nthe-key\nlast")
    assert redact_file(log, ["the-key"])
    assert log.read_bytes() == f"one\r\n|| two\nkey={MARK}\n{MARK}\nlast".encode().replace(b"||", b"\xff\xfe")
    before = log.stat().st_ino
    assert not redact_file(log, ["the-key"])
    assert log.stat().st_ino == before
    assert not redact_file(tmp_path / "none.log")
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


def test_secrets_of_the_shell_reach_no_child(monkeypatch):
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "WANDB_API_KEY", "HTTPS_PROXY", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    environment = job_environment()
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "WANDB_API_KEY", "VLLM_API_KEY"} & set(environment)
    assert "HTTPS_PROXY" not in environment
    assert environment["TOKENIZERS_PARALLELISM"] == "false"


def test_the_key_of_a_server_is_in_its_environment_only(tmp_path):
    spec = ServerSpec(python="python", model="/m", args=["--dtype", "bfloat16"])
    key = secrets.token_urlsafe(24)
    environment = server_environment(spec, key, tmp_path)
    assert [name for name, value in environment.items() if key in value] == ["ADRBENCH_API_KEY", "VLLM_API_KEY"]
    environment = server_environment(spec.model_copy(update={"device_kind": "nvidia"}), key, tmp_path)
    assert [name for name, value in environment.items() if key in value] == ["ADRBENCH_API_KEY"]
    argv = command(spec, 8000)
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert not any("key" in word for word in argv)


CLIENT = """
import os, sys
from pathlib import Path
key = os.environ["OPENAI_API_KEY"]
assert len(key) > 20
seen = [p.parent.name for p in Path("/proc").glob("[0-9]*/cmdline") if key.encode() in p.read_bytes()]
print("seen in", seen)
print("a client that is careless:", key)
print("token", sys.argv[1][::-1])
"""


def test_a_client_gets_the_key_unseen_and_its_log_does_not_keep_it(tmp_path):
    """A real client under the real guardian; only the server beside it is a sleeping process."""
    key = secrets.token_urlsafe(24)
    process = Guarded(["sleep", "60"], tmp_path / "server.log", job_environment(), 1.0)
    try:
        server = Server("http://127.0.0.1:1", key, "model", tmp_path, {}, 0.0, process)
        assert key not in repr(server)
        log = tmp_path / "client.log"
        code = server.run_client([sys.executable, "-c", CLIENT, TOKENS["Hugging Face"][::-1]], log, 30)
        said = log.read_text()
        assert code == 0, said
        assert "seen in []" in said
        assert f"a client that is careless: {MARK}" in said
        assert f"token {MARK}" in said
    finally:
        process.stop()


JOB = """
import sys, os
from adrbench.job import JobError, run
from adrbench.evidence import Evidence, now, write
def work(spec, output):
    if spec["how"] == "refuse":
        raise JobError("bad", "the server said " + spec["text"][::-1])
    if spec["how"] == "fail":
        raise ValueError("the server said " + spec["text"][::-1])
    output.parent.mkdir(parents=True, exist_ok=True)
    (output.parent / "raw.txt").write_text("x")
    write(output, Evidence(stage="serve", platform="cpu", started_at=now(), finished_at=now()))
run("serve", work)
"""


def run_job(tmp_path: Path, how: str, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    spec = {"platform": "cpu", "how": how, "text": TOKENS["Hugging Face"][::-1]}
    output = tmp_path / "results/cpu/serve/a.json"
    command = [sys.executable, "-c", JOB, "--spec", json.dumps(spec), "--output", str(output)]
    return subprocess.run(command, env=job_environment(), capture_output=True, text=True, timeout=60, umask=umask)


@pytest.mark.parametrize("how", ["refuse", "fail"])
def test_a_failing_job_says_and_records_no_token(tmp_path, how):
    done = run_job(tmp_path, how)
    assert done.returncode == 1
    written = "".join(path.read_text() for path in (tmp_path / "results").rglob("*.json"))
    for text in (done.stdout + done.stderr, written):
        assert TOKENS["Hugging Face"] not in text
        assert f"the server said {MARK}" in text


def test_what_a_job_writes_nobody_else_can_change(tmp_path):
    assert run_job(tmp_path, "write", umask=0).returncode == 0
    made = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert len(made) == 2
    assert [path for path in made if stat.S_IMODE(path.stat().st_mode) & 0o022] == []


PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
MAIN = yaml.safe_load((ROOT / "config/config.yaml").read_text())


def load(tmp_path: Path, change) -> None:
    platform = copy.deepcopy(PLATFORM)
    change(platform)
    (tmp_path / "cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    config.load(MAIN | {"platforms": str(tmp_path)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda p: p["serve"]["env"].update(HF_TOKEN="x"), r"serve.env.HF_TOKEN: a secret does not belong"),
        (lambda p: p["arms"][1].update(env={"MY_PASSWORD": "x"}), r"arms\[fp8-e4m3\].env.MY_PASSWORD: a secret"),
        (lambda p: p["arms"][0].update(args=["--x", TOKENS["GitHub"]]), r"looks like a token"),
        (lambda p: p["eval"].update(data={"ruler": "https://me:hunter2@host/x"}), r"looks like a token or a password"),
        (lambda p: p["arms"][0].update(args=["--hf-token", "x"]), r"--hf-token x belongs to the job"),
        (lambda p: p["arms"][0].update(args=["--api-key=x"]), r"--api-key=x belongs to the job"),
        (lambda p: p["arms"][0].update(args=["--host", "0.0.0.0"]), r"belongs to the job \(loopback"),
        (lambda p: p["arms"][0].update(args=["--load-format", "pt"]), r"reads pickled weights"),
        (lambda p: p["serve"]["env"].update(VLLM_ALLOW_INSECURE_SERIALIZATION="1"), r"unpickle what it is sent"),
        (lambda p: p["serve"]["env"].update(VLLM_SERVER_DEV_MODE="1"), r"change a running server"),
        (lambda p: p["arms"][1].update(args=["--trust-remote-code"]), r"forbidden by policy `cpu` \(C18\)"),
        (lambda p: p["arms"][1].update(args=["--trust-remote"]), r"forbidden by policy `cpu` \(C18\)"),
    ],
)
def test_a_configuration_that_is_unsafe_is_refused(tmp_path, change, text):
    with pytest.raises(config.ConfigError, match=text) as refused:
        load(tmp_path, change)
    assert not any(token in str(refused.value) for token in (TOKENS["GitHub"], "hunter2"))


def test_shipped_platforms_are_safe():
    for path in (ROOT / "config/platforms").glob("*.yaml"):
        config.load(MAIN | {"platform": path.stem})


REMOTE = """
import json, sys
from pathlib import Path
folder, marker = Path(sys.argv[1]), Path(sys.argv[2])
(folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\\nclass Own: pass\\n")
settings = json.loads((folder / "tokenizer_config.json").read_text())
settings |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
from adrbench.eval import samples
if sys.argv[3] == "ours":
    samples.set_remote_code(False)
from transformers import AutoTokenizer
try:
    AutoTokenizer.from_pretrained(str(folder), trust_remote_code=True)  # as OpenCompass calls it
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize(("whose", "ran"), [("theirs", True), ("ours", False)])
def test_code_in_a_model_folder_does_not_run_in_the_accuracy_client(whose, ran, tmp_path):
    """OpenCompass loads tokenizers with trust_remote_code: the first case shows that the code would run."""
    python = ROOT / ".envs/eval/bin/python"
    if not python.exists():
        pytest.skip("the eval environment is not installed: run `make setup`")
    folder, marker = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    environment = job_environment({"HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"})
    done = subprocess.run(
        [python, "-c", REMOTE, folder, marker, whose], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert marker.exists() is ran, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(("args", "trusted"), [(["--trust-remote-code"], True), ([], False), (["--trust"], True)])
def test_the_accuracy_client_trusts_code_only_where_the_server_does(args, trusted):
    from adrbench.config.policy import trusts_remote_code
    from adrbench.eval import opencompass

    assert trusts_remote_code(["--dtype", "bfloat16", *args]) is trusted
    argv = opencompass.argv("python", Path("c"), Path("w"), "n", Path("s"), trusts_remote_code(args))
    assert ("--trust-remote-code" in argv) is trusted


def test_remote_code_that_is_configured_is_shown_in_the_report():
    from adrbench.report.verdicts import cautions

    arms = [SimpleNamespace(name=name, attention_backend=None, kv_cache_dtype="auto", block_size=None, args=args)
            for name, args in (("plain", []), ("own", ["--trust-remote-code"]))]  # fmt: skip
    platform = SimpleNamespace(arms=arms, serve=SimpleNamespace(args=[]))
    store = SimpleNamespace(raw=lambda *_: None)
    found = cautions(SimpleNamespace(store=store, spec=SimpleNamespace(platform=platform), served_arms=list))
    assert [phrase.key for phrase in found] == ["remote_code"]
    assert "own" in str(found[0])
    texts = yaml.safe_load((ROOT / "src/report/texts.yaml").read_text())
    assert set(texts["remote_code"]) == {"en", "zh"}


def test_the_configuration_of_opencompass_is_read_and_not_run(tmp_path):
    from adrbench.eval.samples import read_config

    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text("models = [{'abbr': 'served'}]\ndatasets = []\n")
    assert read_config(good) == {"models": [{"abbr": "served"}], "datasets": []}
    marker = tmp_path / "ran"
    for text in (f"models = open({str(marker)!r}, 'w')\n", f"open({str(marker)!r}, 'w')\n", "import os\n"):
        bad.write_text(text)
        with pytest.raises(ValueError, match=r"malformed node|no plain assignment"):
            read_config(bad)
    assert not os.path.exists(marker)
