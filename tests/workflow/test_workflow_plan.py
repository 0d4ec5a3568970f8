"""The workflow's plan: what a change of the configuration reruns, counted in dry runs.

Finished jobs are stood in for by ``snakemake --touch`` on hand-made evidence files: what is proved is which
jobs Snakemake plans, not that they succeed (tests/e2e runs them).
"""

from __future__ import annotations

import copy
import json
import re
import shlex

import pytest
import yaml
from adrbench.config import host_cpu
from adrbench.paths import ROOT

PLATFORM = yaml.safe_load((ROOT / "config/platforms/cpu.yaml").read_text())
PLATFORMS = sorted(p.stem for p in (ROOT / "config/platforms").glob("*.yaml"))


def planned(output: str) -> dict[str, int]:
    """Jobs by rule of a dry run's table."""
    table = output.split("Job stats:")[-1].split("\n\n")[0]
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+)\s+(\d+)$", table, re.MULTILINE) if m[1] != "total"}


@pytest.mark.parametrize("name", PLATFORMS)
def test_dry_run_of_every_shipped_platform(name, snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", "--quiet", "rules", "--config", f"platform={name}")
    assert done.returncode == 0, done.stderr[-2000:]
    platform = yaml.safe_load((ROOT / f"config/platforms/{name}.yaml").read_text())
    serving = [arm for arm in platform["arms"] if "expect_failure" not in arm]
    jobs = planned(done.stdout)
    extra = (platform["serve"].get("baseline_rounds") or platform["serve"].get("rounds", 1)) - platform["serve"].get(
        "rounds", 1
    )
    # A simulated scheme has no speed of its own: no decision asks for its serving evidence.
    timed = [arm for arm in serving if "kv_simulation" not in arm]
    assert jobs["serve"] == len(timed) * platform["serve"].get("rounds", 1) + extra
    # Answers of random weights mean nothing: no job that reads them.
    shape = platform["model"]["source"] == "shape"
    assert jobs.get("eval", 0) == (0 if shape else len(serving))
    assert not shape or not {"agreement", "compare", "calibrate"} & set(jobs)
    assert jobs.get("refusal", 0) == len(platform["arms"]) - len(serving)


def test_accuracy_of_random_weights_is_refused(snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", "results/h200-8b/eval/triton-attn.json", "--config", "platform=h200-8b")
    assert done.returncode != 0
    assert "platform h200-8b serves random weights" in done.stdout + done.stderr


@pytest.mark.parametrize("target", ["reports/h200-8b/adr0010.md", "results/h200-8b/device.json"])
def test_a_target_of_another_platform_is_answered_with_the_call_that_makes_it(target, snakemake, tmp_path):
    """Snakemake itself: no rule makes it."""
    done = snakemake(tmp_path, "-n", target)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert f"{target} is platform h200-8b's, and this run is of platform cpu" in said
    assert f"snakemake --cores 1 --config platform=h200-8b -- {target}" in said
    assert snakemake(tmp_path, "-n", "--quiet", "all", "--config", "platform=h200-8b", "--", target).returncode == 0


def test_a_blocked_mechanism_asks_for_no_device(snakemake, tmp_path):
    """It starts nothing: on a queue it would wait for a device, on a host without one it failed."""
    target = "results/h200-8b/integrate/L2.json"
    done = snakemake(tmp_path, "--cores", "1", target, "--config", "platform=h200-8b")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "blocked" in json.loads((tmp_path / target).read_text())["measured"]


@pytest.mark.parametrize("adr", ["adr0009", "adr0010", "adr0011", "adr0013"])
@pytest.mark.parametrize("name", ["h200-8b", "h200-27b", "h200-small", "nvidia"])
def test_reports_of_the_nvidia_platforms_are_planned(name, adr, snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", f"reports/{adr}.md", "--quiet", "rules", "--config", f"platform={name}")
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def finished(snakemake, tmp_path_factory):
    """A working folder in which everything has run; returns a function that plans a changed configuration."""
    tmp_path = tmp_path_factory.mktemp("finished")
    folder, values = tmp_path / "work", tmp_path / "values.yaml"
    platforms = tmp_path / "platforms"
    platforms.mkdir()

    def plan(platform: dict, *targets: str, arguments: tuple[str, ...] = ("-n", "--quiet", "rules")):
        (platforms / "cpu.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
        values.write_text(yaml.safe_dump({"platforms": str(platforms)}))
        return snakemake(folder, *arguments, *targets, "--configfile", str(ROOT / "config/config.yaml"), str(values))

    listing = plan(PLATFORM, arguments=("-n", "--summary"))
    assert listing.returncode == 0, listing.stderr[-2000:]
    for line in listing.stdout.splitlines():
        path = folder / line.split("\t")[0]
        if path.name == "output_file" or line.startswith("Using"):
            continue
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"made": "by a test"}))
        else:
            path.mkdir(parents=True, exist_ok=True)
    touched = plan(PLATFORM, arguments=("--touch", "--forceall", "--quiet", "all"))
    assert touched.returncode == 0, touched.stderr[-2000:]
    return plan


def test_an_import_rebuilds_the_page_and_nothing_that_decides(finished, tmp_path_factory):
    folder = next(path for path in tmp_path_factory.getbasetemp().glob("finished*/*/results/cpu"))
    imported = folder / "imported/theirs.json"
    imported.parent.mkdir()
    imported.write_text("{}")
    jobs = planned(finished(PLATFORM).stdout)
    imported.unlink()
    imported.parent.rmdir()
    assert jobs == {"tidy": 1, "figures": 1, "page": 1, "publish_page": 1, "all": 1}


def test_nothing_to_do(finished):
    done = finished(PLATFORM)
    assert "Nothing to be done" in done.stdout + done.stderr


def edited(change) -> dict:
    platform = copy.deepcopy(PLATFORM)
    change(platform)
    return platform


def test_editing_one_arm_reruns_that_arm_only(finished):
    jobs = planned(finished(edited(lambda p: p["arms"][1].update(args=["--max-logprobs", "5"]))).stdout)
    assert {
        k: v for k, v in jobs.items() if k in ("device", "model", "kernels", "serve", "eval", "integrate", "profile")
    } == {
        "serve": 1,
        "eval": 1,
    }


def test_another_title_measures_nothing_again(finished):
    jobs = planned(finished(edited(lambda p: p["arms"][1].update(title="FP8"))).stdout)
    assert not {"serve", "eval", "integrate", "profile"} & set(jobs)


def test_another_round_keeps_the_old_ones(finished):
    jobs = planned(finished(edited(lambda p: p["serve"].update(rounds=2))).stdout)
    assert (jobs.get("serve"), jobs.get("eval"), jobs.get("profile")) == (len(PLATFORM["arms"]) - 1, None, None)


@pytest.mark.parametrize("document", ["README.md", "README.zh-CN.md"])
def test_a_row_of_a_table_is_four_lines_of_yaml_away(document, snakemake, tmp_path):
    """The arm of the document, put where it says: the report whose option it is asks for its measurements."""
    text = (ROOT / document).read_text(encoding="utf-8")
    assert "a row of ADR 0007's table: these four lines" in text or "ADR 0007 表格中的一行: 仅此四行" in text
    (block,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(block.splitlines()) == 4
    old = (ROOT / "config/platforms/cpu.yaml").read_text()
    (tmp_path / "platforms").mkdir()
    new = old.replace("integrate:\n", f"{block}integrate:\n")
    assert len(new.splitlines()) - len(old.splitlines()) == len(block.splitlines())
    (tmp_path / "platforms/cpu.yaml").write_text(new)
    listing = snakemake(
        tmp_path / "work", "-n", "--summary", "reports/adr0007.md", "--config", f"platforms={tmp_path}/platforms"
    ).stdout
    assert "results/cpu/serve/block-32/r1/short.json" in listing
    spec = snakemake(
        tmp_path / "work", "-n", "-p", "reports/adr0007.md", "--config", f"platforms={tmp_path}/platforms"
    ).stdout
    line = next(line for line in spec.splitlines() if "-m adrbench.report " in line)
    report = json.loads(shlex.split(line)[shlex.split(line).index("--spec") + 1])
    assert "block-32" in report["evidence"]["serve"]
    assert ["block-32"] in [option["arms"] for option in report["decision"]["options"]]


def test_a_new_arm_runs_alone(finished):
    arm = {"name": "blocks", "block_size": 64}
    jobs = planned(finished(edited(lambda p: p["arms"].append(arm))).stdout)
    assert (jobs["serve"], jobs["eval"], jobs.get("integrate"), jobs.get("profile")) == (1, 1, None, None)


def test_editing_a_task_reruns_accuracy_only(finished):
    jobs = planned(finished(edited(lambda p: p["eval"]["tasks"][0].update(samples=5))).stdout)
    assert jobs["eval"] == len(PLATFORM["arms"])
    assert not {"serve", "integrate", "profile", "kernels"} & set(jobs)


def test_the_baseline_is_what_the_mechanisms_are_held_against(finished):
    jobs = planned(finished(edited(lambda p: p["arms"][0].update(args=["--max-logprobs", "5"]))).stdout)
    assert (jobs["serve"], jobs["eval"], jobs["profile"], jobs["integrate"]) == (2, 1, 1, 2)


@pytest.mark.parametrize(
    ("target", "rule"),
    [
        ("results/cpu/serve/fp8-e4m3/r1/short.json", "serve"),
        ("results/cpu/eval/fp8-e4m3.json", "eval"),
        ("results/cpu/profile/fp8-e4m3.json", "profile"),
        ("results/cpu/serve/fp8-e4m3/r7/short.json", "serve"),
    ],
)
def test_one_measurement_can_be_asked_for_by_name(snakemake, tmp_path, target, rule):
    jobs = planned(snakemake(tmp_path, target, "-n", "--quiet", "rules").stdout)
    assert jobs[rule] == 1
    assert not {"decide", "report", "claims"} & set(jobs)


def test_an_unknown_arm_is_named(snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", "results/cpu/eval/nobody.json")
    assert done.returncode
    assert "'nobody' is not an arm of platform cpu; there are auto, fp8-e4m3, fp8-e5m2" in done.stdout + done.stderr


@pytest.mark.parametrize("target", ["serve/fp8-e4m3/r1/short", "eval/fp8-e4m3", "profile/fp8-e4m3"])
def test_a_measurement_that_this_cpu_cannot_serve_is_refused_in_the_plan(snakemake, tmp_path, target):
    done = snakemake(tmp_path, "-n", f"results/cpu/{target}.json", env={host_cpu.VARIABLE: "avx2"})
    assert done.returncode
    said = done.stdout + done.stderr
    assert "arm fp8-e4m3 of platform cpu must refuse to start here" in said
    assert "it needs avx512f or amx_tile, which this host's CPU lacks" in said
    assert "results/cpu/integrate/refusal-fp8-e4m3.json tries it" in said
    assert "MissingRuleException" not in said


def test_that_refusal_can_be_asked_for(snakemake, tmp_path):
    target = "results/cpu/integrate/refusal-fp8-e4m3.json"
    jobs = planned(snakemake(tmp_path, target, "-n", "--quiet", "rules", env={host_cpu.VARIABLE: "avx2"}).stdout)
    assert jobs["refusal"] == 1
    assert "serve" not in jobs


def test_a_bad_configuration_stops_before_the_plan(snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", "--config", "platfrom=cpu")
    assert done.returncode
    assert "platfrom: unknown key (value 'cpu'); did you mean `platform`?" in done.stdout + done.stderr


@pytest.mark.parametrize("name", PLATFORMS)
def test_values_reach_the_shell_as_one_quoted_word(name, snakemake, tmp_path):
    """A quote, a dollar sign or a semicolon in a value must not be read by the shell."""
    platform = yaml.safe_load((ROOT / f"config/platforms/{name}.yaml").read_text())
    platform["arms"][0]["args"] = ["--note", 'it\'s $(touch HERE); "x" `id`']
    (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(platform, allow_unicode=True))
    target = f"results/{name}/serve/{platform['arms'][0]['name']}/r1/{platform['tiers'][0]['name']}.json"
    done = snakemake(
        tmp_path / "work", "-n", "-p", target, "--config", f"platform={name}", f"platforms={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if "-m adrbench.serve" in line)
    words = shlex.split(line)
    spec = json.loads(words[words.index("--spec") + 1])
    assert spec["server"]["args"][-1] == 'it\'s $(touch HERE); "x" `id`'


def test_platforms_share_no_file(snakemake, tmp_path):
    """Two platforms that wrote one folder would make each other's measurements stale."""
    outputs = {}
    for name in ("cpu", "cpu-0181"):
        listing = snakemake(tmp_path, "-n", "--summary", "--config", f"platform={name}").stdout.splitlines()
        outputs[name] = {line.split("\t")[0] for line in listing if line.startswith(("results/", "models/"))}
    assert outputs["cpu"]
    assert outputs["cpu"] & outputs["cpu-0181"] == set()


def test_lint_is_clean(snakemake, tmp_path):
    done = snakemake(tmp_path, "--lint")
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


# Arms that each report makes a server measure, and whether accuracy is asked of them.
OWN = {
    "adr0001": ({"auto"}, set()),
    "adr0003": ({"auto"}, set()),
    "adr0007": ({"auto", "block-16", "block-64"}, set()),
    "adr0008": ({"auto", "block-16", "block-64"}, {"auto", "block-16", "block-64"}),
    "adr0010": ({"auto"}, {"auto"}),
    "adr0011": ({"auto", "fp8-e4m3", "fp8-e5m2"}, {"auto", "fp8-e4m3", "fp8-e5m2"}),
    "adr0013": ({"auto", "compiled"}, {"auto", "compiled"}),
}


@pytest.mark.parametrize("adr", OWN)
def test_a_report_measures_the_arms_of_its_own_decision_only(adr, snakemake, tmp_path):
    listing = snakemake(tmp_path, "-n", "--summary", f"reports/{adr}.md").stdout
    found = {
        stage: set(re.findall(rf"^results/cpu/{stage}/([a-z0-9-]+)[/.]", listing, re.MULTILINE))
        for stage in ("serve", "eval")
    }
    assert (found["serve"], found["eval"]) == OWN[adr]


def test_an_adr_that_is_not_configured_is_named(snakemake, tmp_path):
    done = snakemake(tmp_path, "-n", "reports/adr0099.md")
    assert done.returncode
    assert "'adr0099' is not among `adrs` of the configuration; there are adr0001" in done.stdout + done.stderr


def test_a_new_decision_is_a_file_and_its_name(snakemake, tmp_path):
    """A copy of a shipped decision under another name, without a table file, is planned down to its report."""
    folder = tmp_path / "decisions"
    folder.mkdir()
    text = (ROOT / "config/decisions/adr0013.yaml").read_text()
    (folder / "adr0099.yaml").write_text(text.replace("adr0013", "adr0099"))
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"decisions": str(folder), "adrs": ["adr0099"]}))
    done = snakemake(
        tmp_path / "work", "reports/adr0099.md", "-n", "--quiet", "rules",
        "--configfile", str(ROOT / "config/config.yaml"), str(tmp_path / "values.yaml"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert planned(done.stdout)["report"] == 2
