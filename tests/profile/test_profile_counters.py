"""The deeper pass: finding a tool, its command line, its output, and what happens where there is none.

The samples follow the tools' documented CSV (Nsight Compute 2025 with ``--csv --print-units base``, rocprofv3 of
ROCm 6.4 to 7.1). Cannot prove: that a tool counts right, or runs at all on a device; rocprofv3 was never run.
"""

import json
import os
import stat

import pytest
import staggered_engine
from adrbench.evidence import read, verify_files
from adrbench.job import JobError
from adrbench.profile import counters, counters_window
from adrbench.profile.counters import (
    Absent,
    find_tool,
    ncu_command,
    parse_ncu,
    parse_rocprof,
    rocprof_command,
    traffic,
    within,
)

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def ncu_row(number, kernel, metric, unit, value):
    return (
        f'"{number}","4711","python3.12","127.0.0.1","{kernel}","1","7","(128, 1, 1)","(264, 1, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


NCU = "\n".join(
    [
        "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
        '==PROF== Profiling "nvjet_tst" - 0: 0%....50%....100% - 1 pass',
        "==PROF== Disconnected from process 4711",
        HEAD,
        ncu_row(0, "void nvjet_tst<a, b>(int, x)", "dram__bytes_read.sum", "byte", "1,048,576"),
        ncu_row(0, "void nvjet_tst<a, b>(int, x)", "dram__bytes_write.sum", "byte", "2,048"),
        ncu_row(0, "void nvjet_tst<a, b>(int, x)", "gpu__time_duration.sum", "ns", "12,345"),
        ncu_row(1, "reshape_and_cache", "dram__bytes_read.sum", "Kbyte", "1.5"),
        ncu_row(1, "reshape_and_cache", "dram__bytes_write.sum", "byte", "512"),
        ncu_row(1, "reshape_and_cache", "gpu__time_duration.sum", "us", "n/a"),
    ]
)
ROCPROF_HEAD = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
    '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
    '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"'
)


def rocprof_text(counter, *values):
    rows = [
        f'{i},{i},"Agent 4",1,225049,225049,1048576,10,"void kernel_{i}<float>(float*, int)",64,0,0,8,0,16,"{counter}",'
        f"{value:.6f},{1000 * i},{1000 * i + 500}"
        for i, value in enumerate(values, 1)
    ]
    return "\n".join([ROCPROF_HEAD, *rows])


@pytest.fixture
def file(tmp_path):
    def make(text, name="out.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


def test_ncu_rows_become_dispatches_in_bytes(file):
    first, second = parse_ncu(file(NCU))
    assert (first.kernel, first.read, first.write) == ("void nvjet_tst<a, b>(int, x)", 1048576.0, 2048.0)
    assert (second.read, second.write) == (1500.0, 512.0)


def test_ncu_without_the_right_to_count_says_what_to_do(file):
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    with pytest.raises(Absent, match="NVreg_RestrictProfilingToAdminUsers"):
        parse_ncu(file(text))


@pytest.mark.parametrize("text", ["", "==WARNING== No kernels were profiled.", '"ID","Kernel Name"\n"0","k"'])
def test_ncu_output_without_a_table_is_absent(file, text):
    with pytest.raises(Absent, match="no table"):
        parse_ncu(file(text))


def test_rocprof_counts_kib_and_only_the_window(file):
    dispatches = parse_rocprof(file(rocprof_text("FETCH_SIZE", 1.0, 10.0, 100.0)))
    assert [d.read for d in dispatches] == [1024.0, 10240.0, 102400.0]
    assert [d.read for d in within(dispatches, 2000, 2999)] == [10240.0]
    assert all(d.write is None for d in dispatches)


def test_rocprof_output_of_older_releases_has_fewer_columns(file):
    text = rocprof_text("WRITE_SIZE", 3.0).replace('"Kernel_Id",', "").replace('"Accum_VGPR_Count",', "")
    text = text.replace(",10,", ",").replace(",8,0,16,", ",8,16,")
    (only,) = parse_rocprof(file(text))
    assert (only.write, only.begin_ns) == (3072.0, 1000)


def test_rocprof_output_without_a_table_is_absent(file):
    with pytest.raises(Absent, match="Counter_Name"):
        parse_rocprof(file('"Kernel_Name","Calls"\n"k",3'))


def test_traffic_is_per_step_and_names_the_readers(file):
    counted = traffic(parse_ncu(file(NCU)), steps=2)
    assert counted["read_bytes_per_step"] == (1048576 + 1500) / 2
    assert counted["written_bytes_per_step"] == (2048 + 512) / 2
    assert counted["biggest_readers"][0] == ["void nvjet_tst<a, b>(int, x)", 1048576 / 2]


def test_nothing_counted_is_absent():
    with pytest.raises(Absent, match="no kernel"):
        traffic([], 4)


def test_commands_switch_counting_and_keep_caches_and_clocks(tmp_path):
    command = ncu_command("/x/ncu", tmp_path / "log.csv", ["python3", "w.py"])
    assert command[-2:] == ["python3", "w.py"]
    for flag, value in (("--profile-from-start", "off"), ("--cache-control", "none"), ("--clock-control", "none")):
        assert command[command.index(flag) + 1] == value
    command = rocprof_command("/x/rocprofv3", tmp_path, "FETCH_SIZE", ["python3", "w.py"])
    assert command[command.index("--") + 1 :] == ["python3", "w.py"]
    assert command[command.index("--pmc") + 1] == "FETCH_SIZE"


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "amd", "hygon"])
def test_no_tool_is_absent_with_its_name(vendor, monkeypatch):
    monkeypatch.setenv("PATH", "")
    nowhere = {"ncu": ("/nowhere/*/ncu",), "rocprofv3": ("/nowhere/rocprofv3",)}
    expected = {"cpu": "no counter tool", "nvidia": "ncu is not installed"}.get(vendor, "rocprofv3 is not installed")
    with pytest.raises(Absent, match=expected):
        find_tool(vendor, nowhere)


def test_the_newest_of_several_installed_tools_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    for version in ("2024.1", "2025.3"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "ncu").touch()
    assert find_tool("nvidia", {"ncu": (f"{tmp_path}/*/ncu",)}) == str(tmp_path / "2025.3" / "ncu")


CONFIG = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "tie_word_embeddings": True,
}
# A tool that runs nothing, writes the window's result and its own CSV as the real ones name their files.
FAKE_NCU = """#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
cat > "$2" <<'CSV'
{csv}
CSV
for last; do :; done
echo '{window}' > "$last"
"""
WINDOW = {"steps": 2, "batch": 2, "context_tokens": 100.0, "begin_ns": 1000, "end_ns": 1600}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Runs the job with a fake tool on PATH; gives its evidence."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    output = tmp_path / "results" / "counters" / "auto.json"

    def run(name, script, vendor):
        if name:
            (tools / name).write_text(script)
            (tools / name).chmod((tools / name).stat().st_mode | stat.S_IXUSR)
        spec = {
            "platform": "x",
            "vendor": vendor,
            "arm": {"name": "auto"},
            "python": "python3",
            "model": str(model),
            "args": [],
            "env": {},
            "workload": {"requests": 2, "input_tokens": 96},
        }
        counters.work(spec, output)
        assert verify_files(output) == []
        return read(output)

    return run


def test_counted_bytes_stand_beside_the_models(work):
    evidence = work("ncu", FAKE_NCU.format(csv=NCU, window=json.dumps(WINDOW)), "nvidia")
    measured = evidence.measured
    weights = 2 * (40 * 16 + 2 * (16 * 16 * 2 + 2 * 16 * 8 + 3 * 16 * 24) + 5 * 16)
    model = weights + 2 * 100 * 32 * 1 + 2 * 32
    assert measured["model_bytes_per_step"] == pytest.approx(weights + 2 * 101 * 64)
    assert model < measured["model_bytes_per_step"]
    total = measured["read_bytes_per_step"] + measured["written_bytes_per_step"]
    assert measured["counted_over_model"] == pytest.approx(total / measured["model_bytes_per_step"])
    assert (evidence.tier, evidence.arm) == ("counters", "auto")


def test_both_passes_of_rocprof_are_put_together(work):
    script = f"""#!/bin/sh
counter=$2
while [ "$1" != --output-directory ]; do shift; done
mkdir -p "$2/host"
name=$(echo $counter | tr A-Z a-z)
printf '%s\\n' '{ROCPROF_HEAD}' "1,1,4,1,7,7,64,10,\\"k\\",64,0,0,8,0,16,\\"$counter\\",2.000000,1200,1300" \\
  > "$2/host/${{name}}_counter_collection.csv"
for last; do :; done
echo '{json.dumps(WINDOW)}' > "$last"
"""
    evidence = work("rocprofv3", script, "amd")
    assert evidence.measured["read_bytes_per_step"] == 1024.0
    assert evidence.measured["written_bytes_per_step"] == 1024.0
    assert "unverified" in evidence.notes[0]


@pytest.mark.parametrize(
    ("name", "script", "vendor", "reason"),
    [
        (None, "", "cpu", "no counter tool"),
        ("ncu", "#!/bin/sh\necho cannot open the driver; exit 9", "nvidia", "code 9: cannot open the driver"),
        ("rocprofv3", "#!/bin/sh\nfor last; do :; done; echo '" + json.dumps(WINDOW) + "' > $last", "amd", "wrote no"),
    ],
    ids=["none", "fails", "empty"],
)
def test_what_cannot_be_counted_is_recorded_with_its_reason(work, name, script, vendor, reason):
    measured = work(name, script, vendor).measured
    assert reason in measured["absent"]
    assert set(measured) == {"absent"}


def test_a_specification_that_lacks_a_key_is_refused(tmp_path):
    with pytest.raises(JobError, match="vendor"):
        counters.work({"platform": "x"}, tmp_path / "results" / "x.json")


def test_the_window_decodes_the_whole_batch_however_its_prompts_are_prefilled(monkeypatch):
    staggered_engine.install(monkeypatch)
    engine = staggered_engine.Engine(4096, max_model_len=2048 + 64)
    window = counters_window.run(engine, {"requests": 32, "input_tokens": 2048}, counters.STEPS)
    tokens = [len(request.token_ids) for request in engine.requests]
    assert max(tokens) - min(tokens) > 15
    assert (window["steps"], min(tokens)) == (counters.STEPS, 1 + counters_window.SETTLE_STEPS + counters.STEPS)
