"""The main job for real, small: vLLM, OpenCompass and the embedded model, from nothing to both ADRs.

Cannot prove what the full configuration measures; it proves that every stage runs, that evidence is whole,
that nothing stays behind, and that a killed run is completed by the next one.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import yaml
from adrbench import evidence
from adrbench.config import host_cpu
from adrbench.paths import ROOT
from waiting import until

pytestmark = pytest.mark.slow

PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())


FP8 = PLATFORM["arms"][1]
SERVES_FP8 = bool(host_cpu.own_features() & set(FP8["cpu_needs"]["any_of"]))


def arms() -> list[dict]:
    """The baseline and an FP8 cache. Where this CPU cannot serve one, another setting under its name, and an arm that
    has to refuse."""
    baseline, fp8, other = copy.deepcopy(PLATFORM["arms"][:3])
    if SERVES_FP8:
        return [baseline, fp8]
    return [baseline, {"name": fp8["name"], "title": "stands for FP8", "block_size": 64}, other]


@pytest.fixture(scope="module", autouse=True)
def own_cpu():
    """What runs here is planned for this host's own CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(host_cpu.VARIABLE, raising=False)
        yield


def tiny() -> dict:
    """The CPU platform with two arms and the least work that still runs every stage."""
    platform = copy.deepcopy(PLATFORM)
    platform["arms"] = arms()
    platform["serve"] |= {"baseline_rounds": 1, "warmup_requests": 1}
    platform["tiers"] = [
        {"name": "short", "input_tokens": [64, 128], "output_tokens": 8, "prompts": 4, "concurrency": 2}
    ]
    platform["integrate"] = [m for m in platform["integrate"] if m["name"] != "L1"]
    platform["eval"]["tasks"] = [task | {"samples": 2, "length_tokens": 512} for task in platform["eval"]["tasks"]]
    platform["eval"]["control"] = False
    # Answers long enough that both requests decode together for a block of steps, however late the second comes.
    platform["profile"] = {"workload": {"requests": 2, "input_tokens": 128, "output_tokens": 48, "concurrency": 2}}
    return platform


@pytest.fixture(scope="module")
def temporary():
    """The temporary folder of all that is started here: nothing may stay in it. Short, as it holds sockets."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def work(tmp_path_factory, serve_python, temporary, own_cpu):
    """A working folder with the tiny configuration; returns (folder, command of the workflow)."""
    base = tmp_path_factory.mktemp("main job")  # a space in the path: nothing may split it
    (base / "platforms").mkdir()
    (base / "platforms/cpu.yaml").write_text(yaml.safe_dump(tiny(), allow_unicode=True))
    (base / "values.yaml").write_text(yaml.safe_dump({"platforms": str(base / "platforms")}))
    folder = base / "work"
    folder.mkdir()
    command = ["env", f"TMPDIR={temporary}", sys.executable, "-m", "snakemake", "--cores", "1"]
    command += ["-s", str(ROOT / "Snakefile"), "-d", str(folder)]
    tail = ["--configfile", str(ROOT / "config/config.yaml"), str(base / "values.yaml")]
    return folder, lambda *targets: [*command, *targets, *tail]


def ours(folder: Path) -> list[psutil.Process]:
    """Living processes that belong to this working folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(folder) in " ".join(process.cmdline()) or process.cwd() == str(folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return [process for process in found if process.pid != os.getpid()]


def run(command: list[str], timeout: float = 900) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=ROOT)


def all_evidence(folder: Path) -> list[Path]:
    paths = []
    for path in (folder / "results").rglob("*.json"):
        document = json.loads(path.read_text())
        if isinstance(document, dict) and {"schema_version", "stage", "measured"} <= set(document):
            paths.append(path)
    return paths


def wait_for(path: Path, text: str, process: subprocess.Popen, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if path.is_file() and text in path.read_text(errors="replace"):
            return
        time.sleep(0.1)
    pytest.fail(f"{text!r} did not appear in {path}")


@pytest.mark.timeout(1800)
def test_main_job(work, temporary):
    folder, command = work
    done = run(command("reports/adr0011.md", "reports/index.html"), timeout=1700)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    for name in ("adr0010.md", "adr0010.zh.md", "adr0011.md", "adr0011.zh.md", "index.html"):
        assert (folder / "reports" / name).stat().st_size > 2000
    paths = all_evidence(folder)
    stages = {evidence.read(path).stage for path in paths}
    assert {"device", "model", "kernels", "serve", "integrate", "eval", "profile"} <= stages
    assert [problem for path in paths for problem in evidence.verify_files(path)] == []
    assert not list((folder / "results/cpu").glob("rejected/*"))
    assert ours(folder) == []
    assert sorted(temporary.rglob("*")) == []


def test_second_call_has_nothing_to_do(work):
    _, command = work
    done = run(command("reports/adr0011.md"))
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def audited(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath")}
    command = [sys.executable, "-m", "adrbench.audit", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_every_number_is_computed_again_from_raw_files(work):
    """Scores by OpenCompass's evaluators, latencies from requests, shares from the trace, verdict, lock, text."""
    folder, _ = work
    done = audited(folder, "--eval-python", str(ROOT / ".envs/eval/bin/python"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " 0 findings" in done.stdout
    assert "BAD" not in done.stdout


# One of each kind of file that a report rests on: measured, and made from what was measured.
FILES = {
    "raw": [
        "results/cpu/serve/auto/r1/short/bench.json",
        "results/cpu/serve/auto/r1/short/before.prom",
        "results/cpu/serve/auto/r1/short/prompts.jsonl",
        "results/cpu/serve/auto/r1/server/server.log",
        "results/cpu/eval/auto/samples.json",
        "results/cpu/eval/auto/data/summary.jsonl",
        "results/cpu/eval/auto/opencompass/*/predictions/*/*.json",
        "results/cpu/profile/auto/windows.json",
        "results/cpu/profile/auto/trace/*.pt.trace.json*",
        "results/cpu/integrate/L3/server/server.log",
        "results/cpu/device/*.txt",
        "results/cpu/ceiling.json",
    ],
    "derived": [
        "results/cpu/decide/adr0011.json",
        "results/cpu/history/adr0011.json",
        "reports/cpu/lock/adr0011/lock.json",
        "reports/cpu/adr0011.zh.md",
    ],
    "store": ["history/cpu/adr0011/0001.json"],
    "published": ["reports/adr0011.md"],
}


@pytest.mark.parametrize("kind", FILES)
def test_one_flipped_byte_is_found_and_named(work, kind):
    folder, _ = work
    paths = [next(iter(sorted(folder.glob(pattern))), folder / pattern) for pattern in FILES[kind]]
    originals = {path: path.read_bytes() for path in paths}
    try:
        for path, data in originals.items():
            changed = bytearray(data)
            changed[len(changed) // 2] ^= 1
            path.write_bytes(bytes(changed))
        done = audited(folder, "adr0011")
    finally:
        for path, data in originals.items():
            path.write_bytes(data)
    assert done.returncode == 1
    findings = [line for line in done.stdout.splitlines() if line.startswith("FINDING")]
    told = [Path(os.path.normpath(line.split()[1].rstrip(":"))) for line in findings]
    assert [path for path in paths if path.relative_to(folder) not in told] == [], findings


def test_a_report_whose_evidence_changed_is_marked_until_it_is_restored(work):
    folder, command = work
    path, report = folder / "results/cpu/device.json", folder / "reports/adr0011.md"
    before, original, times = report.read_text(), path.read_bytes(), path.stat()
    path.write_bytes(original + b" ")
    assert run(command("status")).returncode == 0
    assert "**Stale.**" in report.read_text()
    path.write_bytes(original)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = run(command("status"))
    # What stands for FP8 has the baseline's pool: 16 bit is accepted.
    assert f"adr0011  {'Proposed' if SERVES_FP8 else 'Accepted'}" in done.stdout
    assert report.read_text() == before


def test_removing_results_keeps_the_history(work):
    folder, command = work
    entry = folder / "history/cpu/adr0011/0001.json"
    before = entry.read_bytes()
    (folder / "results/cpu/history/adr0011.json").unlink()
    assert run(command("results/cpu/history/adr0011.json")).returncode == 0
    assert entry.read_bytes() == before
    assert len(list(entry.parent.iterdir())) == 1


def test_every_file_that_the_page_links_to_is_there(work):
    folder, _ = work
    text = (folder / "reports/index.html").read_text(encoding="utf-8")
    targets = set(re.findall(r' href="([^"#][^"]*)"', text))
    assert len(targets) > 40
    assert [target for target in sorted(targets) if not (folder / "reports" / target).is_file()] == []


def test_snakemakes_own_report_is_made_from_what_is_there(work):
    """It holds the records, figures and tables as data, and loads nothing from elsewhere."""
    folder, command = work
    done = run([*command("reports/index.html"), "--report", "reports/report.html"])
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    text = (folder / "reports/report.html").read_text(encoding="utf-8")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']https?:", text)
    for name in ("adr0011.md", "claims.md", "gates.svg", "rounds.csv"):
        assert name in text
    for category in ("Decisions", "Figures", "Data", "Claims"):
        assert f'"{category}"' in text


def archived(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath")}
    command = [sys.executable, "-m", "adrbench.archive", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_evidence_of_every_stage_goes_on_in_another_folder_without_its_model(work, temporary):
    """A round more there: nothing is measured again, the model is made again, and all of it audits and packs."""
    folder, command = work
    there = folder.parent / "another host"
    there.mkdir()
    archived(folder, "pack", "--without-models", "--output", str(folder.parent / "evidence.tar.xz"))
    archived(there, "merge", str(folder.parent / "evidence.tar.xz"))
    names = [path.relative_to(folder) for path in all_evidence(folder)]
    assert [problem for name in names for problem in evidence.verify_files(there / name)] == []
    assert any(name.startswith("../") for path in names for name in evidence.read(there / path).files)
    assert not (there / "models").exists()

    def elsewhere(*targets: str) -> list[str]:
        return [str(there) if word == str(folder) else word for word in command(*targets)]

    added = "results/cpu/serve/auto/r2/short.json"
    done = run(elsewhere("reports/adr0011.md", added))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    said = done.stdout + done.stderr
    assert "models/cpu is not here: making it again, as results/cpu/model.json says" in said
    planned = set(re.findall(r"^(\w+) +\d+$", said, re.MULTILINE))
    measuring = {"device", "kernels", "model", "ceiling", "serve", "eval", "integrate", "profile", "memory", "claims"}
    assert planned & measuring == {"serve"}
    assert said.count("starting vllm serve") == 1
    assert [problem for name in [*names, added] for problem in evidence.verify_files(there / name)] == []
    done = audited(there, "--eval-python", str(ROOT / ".envs/eval/bin/python"))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    # The model stays: it is what the other folder made again, and packing its weights takes minutes.
    said = archived(there, "pack", "--without-models", "--output", str(folder.parent / "again.tar.xz"))
    assert "left out" not in said
    said = archived(folder, "merge", str(folder.parent / "again.tar.xz"))
    assert ": 1 results merged, " in said
    assert sorted(temporary.rglob("*")) == []


def test_served_settings_are_those_asked_for(work):
    folder, _ = work
    baseline = evidence.read(folder / "results/cpu/serve/auto/r1/short.json")
    arm = evidence.read(folder / "results/cpu/serve/fp8-e4m3/r1/short.json")
    served = [arm.resolved[key] for key in ("kv_cache_dtype", "block_size")]
    assert (baseline.resolved["kv_cache_dtype"], *served) == (
        ("auto", "fp8_e4m3", 128) if SERVES_FP8 else ("auto", "auto", 64)
    )
    more = arm.resolved["kv_pool_tokens"] / baseline.resolved["kv_pool_tokens"]
    assert more == pytest.approx(2 if SERVES_FP8 else 1, rel=0.02)
    for document in (baseline, arm):
        assert document.measured["completed"] == 4
        assert document.measured["output_tokens"]["total"] == 32


@pytest.mark.skipif(SERVES_FP8, reason="this CPU serves every arm")
def test_an_arm_that_this_cpu_cannot_serve_is_tried_and_told(work):
    folder, _ = work
    refused = evidence.read(folder / "results/cpu/integrate/refusal-fp8-e5m2.json")
    assert refused.measured["refused"]
    assert "requires x86 with AVX-512" in refused.measured["text"]
    assert "requires x86 with AVX-512" in (folder / "reports/adr0011.md").read_text()
    assert not (folder / "results/cpu/serve/fp8-e5m2").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_run_killed_in_the_middle_of_a_benchmark_is_completed_by_the_next(work, temporary, number):
    folder, command = work
    target = "results/cpu/serve/fp8-e4m3/r1/short.json"
    before = (folder / "results/cpu/serve/auto/r1/short.json").read_bytes()
    (folder / target).unlink(missing_ok=True)
    log = folder / "results/cpu/serve/fp8-e4m3/r1/server/server.log"
    log.unlink(missing_ok=True)
    process = subprocess.Popen(
        command(target),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background shells ignore it
    )
    wait_for(log, "Starting vLLM server", process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    process.wait(120)
    until(lambda: not ours(folder))
    assert [p.cmdline()[:4] for p in ours(folder)] == []
    assert not (folder / target).exists()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pythonpath"), "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-m", "adrbench.locks"], cwd=folder, env=environment, check=True)
    assert sorted(temporary.rglob("*")) == []
    done = run(command(target))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert evidence.verify_files(folder / target) == []
    assert (folder / "results/cpu/serve/auto/r1/short.json").read_bytes() == before
