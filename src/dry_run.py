"""The rehearsal that the team's notes call P5's dry run: clean build, serve, bench, accuracy, shutdown.

    python -m adrbench.dry_run --platform cpu

One arm (the baseline), one round, one tier and a few samples, by the workflow's own rules in a fresh working folder,
``dry-run/``: the embedded model is converted anew and all caches are empty. It says whether each step works on this
host and nothing of speed or accuracy; no report reads its evidence. Exit code 1 where a step failed.
"""

from __future__ import annotations

import argparse
import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from adrbench import evidence
from adrbench.locks import living_runs
from adrbench.nearest import choice, names_of
from adrbench.paths import ROOT
from adrbench.processes import ancestors

FOLDER = ROOT / "dry-run"
VALUES = "values.yaml"


def small(platform: dict[str, Any]) -> dict[str, Any]:
    """A platform file's content with its baseline only, one round, one tier of four requests, two samples a task."""
    found = copy.deepcopy(platform)
    found["arms"] = [arm for arm in found["arms"] if arm.get("baseline")]
    found["serve"] |= {"rounds": 1, "baseline_rounds": 1, "warmup_requests": 1}
    found["tiers"] = [found["tiers"][0] | {"prompts": 4, "concurrency": 2}]
    found["integrate"] = []
    # A shape has random weights and no accuracy section.
    if "eval" in found:
        for task in found["eval"]["tasks"]:
            task["samples"] = 2
        found["eval"]["control"] = False
    for section in ("profile", "agreement", "accuracy_platform"):
        found.pop(section, None)
    return found


def prepare(name: str, folder: Path = FOLDER, root: Path = ROOT) -> list[str]:
    """Make the working folder afresh and return the evidence files to be made in it, serving first.

    Raises:
        SystemExit: the platform is unknown, the folder is not a dry run's, or a run works in it.
    """
    source = root / f"config/platforms/{name}.yaml"
    if name not in (known := names_of(source.parent)):
        raise SystemExit(f"--platform {name}: {source} does not exist; {choice(name, known)}")
    if folder.exists() and not (folder / VALUES).is_file():
        raise SystemExit(f"{folder} was not made by a dry run: move it away")
    if folder.exists() and (runs := living_runs(folder)):
        raise SystemExit(f"a dry run works in {folder} (process {runs[0]}): wait for it or end it")
    if folder.exists():
        shutil.rmtree(folder)
    platforms = folder / "platforms"
    platforms.mkdir(parents=True)
    reduced = small(yaml.safe_load(source.read_text(encoding="utf-8")))
    (platforms / source.name).write_text(yaml.safe_dump(reduced, allow_unicode=True), encoding="utf-8")
    (folder / VALUES).write_text(yaml.safe_dump({"platform": name, "platforms": str(platforms)}), encoding="utf-8")
    arm, tier = reduced["arms"][0]["name"], reduced["tiers"][0]["name"]
    scored = [f"results/{name}/eval/{arm}.json"] if reduced["model"]["source"] != "shape" else []
    return [f"results/{name}/serve/{arm}/r1/{tier}.json", *scored]


def workflow(targets: list[str], *options: str, folder: Path = FOLDER) -> list[str]:
    """Command of the project's workflow in the dry run's folder."""
    argv = [sys.executable, "-m", "snakemake", "-s", str(ROOT / "Snakefile"), "-d", str(folder), "--cores", "1"]
    return [*argv, *targets, *options, "--configfile", str(ROOT / "config/config.yaml"), str(folder / VALUES)]


def left_behind(folder: Path = FOLDER) -> list[str]:
    """Living processes, other than this one and those above it, that work in ``folder`` or name it."""
    above = {os.getpid(), *ancestors(os.getpid())}
    found, sign = [], str(folder).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in above:
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            named = sign in command or sign in (entry / "environ").read_bytes()
            if command and (named or Path(os.readlink(entry / "cwd")).is_relative_to(folder)):
                found.append(f"{entry.name}: {command.replace(bytes(1), b' ').decode(errors='replace')[:120]}")
        except OSError:
            continue
    return found


def steps(targets: list[str], folder: Path = FOLDER) -> dict[str, str | None]:
    """What each step left, in words; None for a step that left nothing or whose raw files are not those measured."""
    paths = [folder / target for target in targets]
    whole = [path.is_file() and not evidence.verify_files(path) for path in paths]
    served = evidence.read(paths[0]) if whole[0] else None
    scored = evidence.read(paths[1]) if whole[1:] == [True] else None
    accuracy = f"{len(scored.measured['tasks'])} tasks, all answered" if scored else None
    model = folder / targets[0].partition("/serve/")[0] / "model.json"
    return {
        "clean build": "device, kernels and model passed in a fresh folder" if model.is_file() else None,
        "serve": f"vLLM {served.resolved['vllm_version']}, {served.resolved['attention_backend']}" if served else None,
        "bench": f"{served.measured['completed']} requests, all complete" if served else None,
        "accuracy": accuracy if len(targets) > 1 else "not asked: random weights",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m adrbench.dry_run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--platform", default="cpu", help="file of config/platforms/ (default: cpu)")
    targets = prepare(parser.parse_args().platform)
    code = subprocess.run(workflow(targets), cwd=ROOT).returncode
    found = steps(targets)
    left = left_behind()
    found["shutdown"] = None if left else "no process of the run is left"
    for name, said in found.items():
        print(f"{name:12} {'ok    ' if said else 'FAILED'} {said or '; '.join(left if name == 'shutdown' else [])}")
    sys.exit(0 if code == 0 and all(found.values()) else 1)


if __name__ == "__main__":
    main()
