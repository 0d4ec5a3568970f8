"""What a server's processes could not write down: the engine goes on, and the measurement does not count.

A stand-in for ``vllm serve`` calls the plugin as an engine does. A limit on the size of files (RLIMIT_FSIZE) stands for
the full disk: a write fails in the same way, with another errno. Cannot prove: that vLLM's own processes
outlive a full disk; what of vLLM writes there is its log, whose failures it ignores.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from adrbench.job import JobError
from adrbench.serve.plugin import INCOMPLETE
from adrbench.serve.resolved import read_plugin_report, read_reports
from adrbench.serve.server import serving

ROOT = Path(__file__).parents[2]

# A server whose process reports once when it starts and once for each completion after the first, as if a kernel was
# compiled then. With STANDIN_ROOM the disk has that many bytes left while it does so for the first time.
STANDIN = """
import http.server, json, os, resource, sys
from adrbench.serve import plugin
port, counted = int(sys.argv[sys.argv.index("--port") + 1]), []
plugin.report(chosen="CPU_ATTN")
class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, body):
        self.send_response(200); self.send_header("Content-Type", "application/json"); self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        if self.headers["Authorization"] == "Bearer " + os.environ["ADRBENCH_API_KEY"] or "STANDIN_OPEN" in os.environ:
            self.reply({"version": "0.27.0"})
        else:
            self.send_error(401)
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])); counted.append(1)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if len(counted) == 2 and "STANDIN_ROOM" in os.environ:
            size = os.path.getsize(plugin.settings()["report"]) + int(os.environ["STANDIN_ROOM"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        if len(counted) > 1:
            plugin.report(compiled_late="store")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        self.reply({"usage": {"completion_tokens": 4}})
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def standin(tmp_path) -> dict:
    """A specification whose interpreter is the stand-in."""
    program, model = tmp_path / "python", tmp_path / "model"
    program.write_text(f"#!{sys.executable}\n{STANDIN}")
    program.chmod(0o755)
    model.mkdir()
    (model / "config.json").write_text("{}")
    environment = {"PYTHONPATH": str(ROOT / "pythonpath")}
    return {"python": str(program), "model": str(model), "env": environment, "ready_timeout_s": 60.0}


def complete(server) -> None:
    server.request("/v1/completions", {"model": "model", "prompt": "x", "max_tokens": 1}, 60)


def test_what_is_reported_during_the_load_is_in_what_was_resolved(standin, tmp_path):
    with serving(standin, tmp_path / "server") as server:
        assert [report.get("chosen") for report in server.resolved["plugin"]] == ["CPU_ATTN"]
        complete(server)
    assert [report.get("compiled_late") for report in server.resolved["plugin"]] == [None, "store"]


def test_a_server_that_answers_without_its_key_is_refused(standin, tmp_path):
    """As a front end does that runs no middleware: any process of the host could load it beside a measurement."""
    standin["env"]["STANDIN_OPEN"] = "1"
    with (
        pytest.raises(JobError, match="answered 200 to a request without its key") as caught,
        serving(standin, tmp_path),
    ):
        pass
    assert caught.value.reason == "unguarded"


def test_the_device_is_waited_for_where_the_log_cannot_be_redacted(standin, tmp_path, monkeypatch):
    """A full disk refuses the redacted copy; what comes next needs the device free all the same."""
    waited = []

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("adrbench.serve.server.redact_file", full)
    monkeypatch.setattr("adrbench.serve.server.wait_free", lambda kind, _: waited.append(kind))
    with pytest.raises(OSError, match="No space left"), serving(standin, tmp_path / "server"):
        pass
    assert len(waited) == 1


@pytest.mark.parametrize("room", [0, 7], ids=["nothing is written", "a part of the line is written"])
def test_a_lost_line_ends_no_engine_and_lets_no_measurement_count(standin, tmp_path, room):
    standin["env"]["STANDIN_ROOM"] = str(room)
    with pytest.raises(JobError, match=r"plugin\.jsonl: .*free space on its disk and rerun") as caught:  # noqa: PT012
        with serving(standin, tmp_path / "server") as server:
            for _ in range(3):  # the disk has space again after the first of them
                complete(server)
            assert server.alive()
    assert caught.value.reason == "report-lost"
    # The next start does not inherit it.
    with serving(standin, tmp_path / "server") as server:
        pass
    assert len(server.resolved["plugin"]) == 1


REPORTED = {"chosen": "CPU_ATTN"}


def written(folder: Path, *lines: str) -> Path:
    (folder / "plugin.jsonl").write_text("".join(lines))
    return folder


def test_a_report_that_lost_lines_since_the_start_is_refused(tmp_path):
    ready = {"plugin": [REPORTED], "kv_simulation": None}
    late = {"compiled_late": "store"}
    found = read_reports(written(tmp_path, json.dumps(REPORTED) + "\n", json.dumps(late) + "\n"), ready)
    assert found == {"plugin": [REPORTED, late], "kv_simulation": None}
    for lines in ([], [json.dumps(late) + "\n"], [json.dumps(REPORTED) + "\n", '{"compiled_l']):
        with pytest.raises(JobError, match="free space") as caught:
            read_reports(written(tmp_path, *lines), ready)
        assert caught.value.reason == "report-lost"
    (tmp_path / "plugin.jsonl").unlink()
    with pytest.raises(JobError, match="lines of it are gone"):
        read_reports(tmp_path, ready)
    assert read_plugin_report(tmp_path / "plugin.jsonl") == []  # a server without the plugin


def report_to(path: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{before}\nfrom adrbench.serve import plugin\nplugin.report(mechanism='L2')"
    settings = {"PYTHONPATH": str(ROOT / "pythonpath"), "ADRBENCH_PLUGIN": json.dumps({"report": str(path)})}
    return subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, text=True)


def test_a_disk_that_is_full_from_the_start(tmp_path):
    path = tmp_path / "plugin.jsonl"
    done = report_to(path, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
    assert done.returncode == 0, done.stderr
    assert report_to(path).returncode == 0  # there is space again, and a line is missing all the same
    assert path.with_name(path.name + INCOMPLETE).is_file()
    with pytest.raises(JobError, match="could not write a line"):
        read_plugin_report(path)


def test_an_engine_whose_loss_nobody_would_learn_of_ends(tmp_path):
    """A folder that is gone has nothing to withdraw."""
    done = report_to(tmp_path / "gone/plugin.jsonl")
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr


def test_a_file_that_cannot_be_renamed_is_removed(tmp_path):
    path = tmp_path / "plugin.jsonl"
    full = "import os, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    refuse = "def refuse(*names): raise OSError(28, 'No space left on device')\nos.rename = refuse"
    assert report_to(path).returncode == 0
    done = report_to(path, f"{full}\n{refuse}")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


COUNTS = """
import json, resource, sys
from pathlib import Path
from types import SimpleNamespace
from adrbench.serve.simulation.counts import Counts
path = Path(sys.argv[1])
counts, found = Counts(str(path), {"scheme": "kivi4", "layers": 1}), []
def look(tokens, limit):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    counts.tokens = SimpleNamespace(tolist=lambda: [tokens, tokens])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit if limit is not None else hard, hard))
    counts.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    found.append(json.loads(path.read_text())["tokens_seen"] if path.exists() else None)
    found.append(sorted(p.name for p in path.parent.iterdir() if p != path))
look(5, None); look(9, 10); look(9, None)
print(json.dumps(found))
"""


def test_counts_that_could_not_be_written_are_not_those_of_before(tmp_path):
    """Nor is the count lost for good: it is written when there is space again."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pythonpath")}
    command = [sys.executable, "-c", COUNTS, str(tmp_path / "kv_simulation.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [5, [], None, [], 9, []]


def test_a_load_without_its_last_counts_is_refused(tmp_path):
    with pytest.raises(JobError, match=r"kv_simulation\.json: the engine could not write its last counts") as caught:
        read_reports(tmp_path, {"plugin": [], "kv_simulation": {"tokens_seen": 5}})
    assert caught.value.reason == "report-lost"
