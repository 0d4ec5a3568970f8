"""Independent profiles of one arm, one server start each: do their phase shares agree within 5 points?

    PYTHONPATH=pythonpath python benchmarks/profile_repeat.py [--platform cpu] [--arm auto] [--runs 2] --output FILE

Needs the platform's model and ceiling: ``snakemake --cores 1 results/cpu/profile/auto.json`` makes them. Run it
on a quiet host: the profile says what others took of the host's CPU just before, and it is kept in the output.
Beside the shares of the traces stand those by the worker's processor time, which a busy host changes little.
Exit code 1 where the profiles do not agree.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from adrbench import config as configuration
from adrbench.config import jobs, servers
from adrbench.config.files import read_yaml
from adrbench.evidence import canonical, now, read, write_json
from adrbench.paths import ROOT
from adrbench.profile.repeat import compare


def specification(platform: str, arm: str) -> dict[str, Any]:
    """The profile job's specification, as the workflow builds it."""
    run = configuration.load(read_yaml(ROOT / "config" / "config.yaml") | {"platform": platform})
    model = servers.model_folder(run, Path.cwd())
    ceiling = f"results/{platform}/ceiling.json"
    return jobs.profile(run, run.platform.arm(arm), model, run.python("serve"), ceiling)


def profile(spec: dict[str, Any], output: Path) -> dict[str, Any]:
    """Run one profile job; ``measured`` of its evidence and its notes."""
    command = [sys.executable, "-m", "adrbench.profile", "--spec", canonical(spec), "--output", str(output)]
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(f"profile_repeat: the profile job ended with code {code}; its message stands above")
    evidence = read(output)
    return evidence.measured | {"notes": evidence.notes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu")
    parser.add_argument("--arm", default="auto")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    spec, started = specification(arguments.platform, arguments.arm), now()
    folder = Path(f"results/{arguments.platform}/profile-repeat/{arguments.arm}")
    profiles = [profile(spec, folder / f"run{number}.json") for number in range(1, arguments.runs + 1)]
    result = compare(profiles) | {
        "platform": arguments.platform,
        "arm": arguments.arm,
        "workload": spec["workload"],
        "notes": [measured["notes"] for measured in profiles],
        "started_at": started,
        "finished_at": now(),
    }
    write_json(arguments.output, result)
    print(
        json.dumps(
            {key: result[key] for key in ("trace", "window", "cpu_time", "agree", "agree_by_cpu_time")}, indent=1
        )
    )
    sys.exit(0 if result["agree"] else 1)


if __name__ == "__main__":
    main()
