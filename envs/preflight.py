"""Before set-up takes minutes: what would only be found out after it. Then set-up itself (setup.py).

    python3 envs/preflight.py                     every role, for any platform
    python3 envs/preflight.py --platform NAME     the roles that this platform needs ('': the configuration's platform)

Looked at only where something is missing, so that reports of evidence from elsewhere can be made on any host: is there
such a platform, a device of its vendor, a vLLM in the interpreter that it names; is the torch that pip would take a
CPU build? Standard library only: the platform's file is searched for three keys, not parsed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import setup
from setup import SetupError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "pythonpath"))
from adrbench.nearest import choice, names_of  # noqa: E402

# What a loaded driver shows (the last of NVIDIA's is Windows' subsystem for Linux), else its tool that lists devices.
NODES = {
    "nvidia": ("dev/nvidiactl", "proc/driver/nvidia/version", "dev/dxg"),
    "amd": ("dev/kfd",),
    "hygon": ("dev/kfd", "dev/mkfd"),
}
TOOLS = {"nvidia": ["nvidia-smi", "-L"]}
OPTIONS = {"nvidia": "--gpus all", "amd": "--device /dev/kfd --device /dev/dri"}
OPTIONS["hygon"] = f"{OPTIONS['amd']} --device /dev/mkfd"
# Of pip: a network that is not there is set-up's to tell, after pip's own patience.
SOON = ["--retries", "0", "--timeout", "15"]
NOTHING = "Nothing was installed."


@dataclass(frozen=True)
class Declared:
    """What a platform's file says of its device and of the interpreter that has vLLM."""

    file: str
    vendor: str
    python: str
    vllm_version: str

    @property
    def role(self) -> str | None:
        """The role of set-up whose interpreter serves; None where the host brings its own."""
        found = re.fullmatch(r"\.envs/([\w-]+)/bin/python3?", self.python)
        return found[1] if found and found[1] in setup.ROLES else None


def value(text: str, section: str, key: str, default: str = "") -> str:
    """A plain value of a section in the text of a YAML file."""
    bare = re.sub(r"(^|\s)#.*", r"\1", text, flags=re.MULTILINE)
    body = re.search(rf"^{section}:(.*(?:\n(?!\S).*)*)", bare, re.MULTILINE)
    plain = r"""(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"',}]+))"""
    found = re.search(rf"(?:^|[\s{{,]){key}:[ \t]*{plain}", body[1]) if body else None
    return next(filter(None, found.groups())) if found else default


def declared(name: str, root: Path = ROOT) -> Declared:
    """What the file of a platform says; an empty name stands for the one that config/config.yaml names.

    Raises:
        SetupError: there is no such platform.
    """
    source = "PLATFORM"
    if not name:
        text = (root / "config/config.yaml").read_text(encoding="utf-8")
        found = re.search(r"^platform:[ \t]*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
        name, source = (found[1] if found else "cpu"), "config/config.yaml: platform"
    known = names_of(root / "config/platforms")
    if name not in known:
        raise SetupError(f"{source}: {name!r} is no file of config/platforms/; {choice(name, known)}")
    file = f"config/platforms/{name}.yaml"
    text = (root / file).read_text(encoding="utf-8")
    return Declared(
        file,
        value(text, "device", "vendor", "cpu"),
        value(text, "serve", "python", ".envs/serve/bin/python"),
        value(text, "serve", "vllm_version"),
    )


def has_device(vendor: str, root: Path = Path("/")) -> bool:
    """Whether a driver for devices of a vendor is loaded here; always for CPUs."""
    if vendor not in NODES or any((root / node).exists() for node in NODES[vendor]):
        return True
    try:
        return vendor in TOOLS and subprocess.run(TOOLS[vendor], capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def check_device(platform: Declared, root: Path = Path("/")) -> None:
    """Refuse a host without the platform's kind of device.

    Raises:
        SetupError: naming what was looked for, and what to do.
    """
    if has_device(platform.vendor, root):
        return
    tools = [f"`{' '.join(TOOLS[platform.vendor])}` that works"] if platform.vendor in TOOLS else []
    looked = " or ".join([*(f"/{node}" for node in NODES[platform.vendor]), *tools])
    raise SetupError(
        f"{platform.file}: device.vendor: {platform.vendor}, and this host shows no such device (no {looked}).\n"
        f"{NOTHING} In a container, pass the devices in ({OPTIONS[platform.vendor]}); else load the driver; without "
        "such a device choose another platform (PLATFORM=cpu, or `platform` in config/config.yaml).\n"
        "On a queue's login node, and to make reports of evidence that was measured elsewhere, call `make setup` first"
    )


def check_interpreter(platform: Declared, root: Path = ROOT) -> None:
    """Refuse an interpreter that cannot serve the platform: set-up installs vLLM for CPUs only.

    Raises:
        SetupError: naming file, key and remedy.
    """
    where = f"{platform.file}: serve.python: {platform.python}"
    if platform.role:
        if platform.vendor != "cpu":
            raise SetupError(
                f"{where} is what set-up fills with vLLM for CPUs, and the device is of vendor {platform.vendor}.\n"
                f"{NOTHING} Name the host's own vLLM there (config/platforms/nvidia.yaml shows how), or "
                "install a bundle, which brings one (docs/offline.md)"
            )
        return
    python = platform.python
    path = shutil.which(python) if "/" not in python else str(root / python)
    if path is None or not os.access(path, os.X_OK):
        raise SetupError(f"{where} does not exist.\n{NOTHING} {own_vllm(platform)}")
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{where} does not start ({error}).\n{NOTHING} {own_vllm(platform)}") from None
    found = done.stdout.strip()
    if done.returncode:
        raise SetupError(f"{where} ({path}) has no vLLM.\n{NOTHING} {own_vllm(platform)}")
    if platform.vllm_version and found.split("+")[0] != platform.vllm_version.split("+")[0]:
        raise SetupError(
            f"{platform.file}: serve.vllm_version: declared {platform.vllm_version}, found {found} in {path}.\n"
            f"{NOTHING} Declare that release, or name the interpreter of the declared one"
        )


def own_vllm(platform: Declared) -> str:
    version = platform.vllm_version or "VERSION"
    return (
        f"Name an interpreter that has vLLM {version}: an image's own, or one made by "
        f"`python3 -m venv DIR` and `DIR/bin/pip install vllm=={version}`, whose path is DIR/bin/python"
    )


def check_torch(version: str, cache: Path) -> None:
    """Refuse a torch that pip would take as a CUDA build, by its requirements: nothing is installed, little fetched.

    Where pip cannot say, set-up will: it prints pip's own error.

    Raises:
        SetupError: naming TORCH_INDEX.
    """
    index = ["--index-url", os.environ["TORCH_INDEX"]] if os.environ.get("TORCH_INDEX") else []
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
        command += [
            "--report",
            str(report),
            "--cache-dir",
            str(cache),
            *setup.SETTINGS,
            *SOON,
            f"torch=={version}",
            *index,
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            plan = json.loads(report.read_text(encoding="utf-8"))["install"] if done.returncode == 0 else []
        except (OSError, ValueError, LookupError, subprocess.TimeoutExpired):
            return
    lines = [line for package in plan for line in package["metadata"].get("requires_dist", [])]
    wanted = [line for line in lines if re.match(r"(nvidia|cuda)-", line)]
    if wanted:
        raise SetupError(
            f"pip would take a CUDA build of torch {version}: it requires {wanted[0].split(';')[0].strip()} and "
            f"{len(wanted) - 1} more of the kind.\n{NOTHING} What set-up installs computes on the CPU, also on a host "
            "whose own vLLM serves: set TORCH_INDEX to the URL of a package index with CPU builds of torch and call "
            "this again (TORCH_BUILD=any takes it as it is, with 8 GB of libraries)"
        )


def roles(platform: Declared | None) -> list[str]:
    """Roles that a platform needs: all, but the serving one only where it serves; none where a bundle brought them."""
    if setup.from_bundle():
        return []
    if platform is None:
        return list(setup.DEFAULT_ROLES)
    serving = [platform.role] if platform.role else []
    return [one for role in setup.DEFAULT_ROLES for one in (serving if role == "serve" else [role])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", metavar="NAME", help="file of config/platforms/; '': the configuration's")
    name = parser.parse_args().platform
    try:
        platform = None if name is None else declared(name)
        wanted = roles(platform)
        missing = [role for role in wanted if not setup.finished(role)]
        if missing:
            setup.ENVS.mkdir(exist_ok=True)
            setup.check_host()
        if missing and platform:
            check_device(platform)
            check_interpreter(platform)
        if os.environ.get("TORCH_BUILD") != "any":
            for version in sorted({setup.TORCH[role] for role in missing if role in setup.TORCH}):
                check_torch(version, setup.ENVS / "cache")
    except SetupError as error:
        sys.exit(f"set-up: {error}")
    except OSError as error:
        sys.exit(f"set-up: {error}; free space or fix permissions, then call it again")
    sys.argv = [str(Path(setup.__file__)), *wanted]
    setup.main()


if __name__ == "__main__":
    main()
