"""A small tree in vLLM's shape, and the real 0.18.1 one where a wheel can be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from adrbench.claims import checks  # noqa: F401  (fills the register)
from adrbench.claims.behaviour import Probe
from adrbench.claims.registry import CHECKS, Context, Finding
from adrbench.claims.tree import Tree, WheelUnavailable, get_tree

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "config" / "claims" / "data"

REGISTRY = '''\
from enum import Enum


class AttentionBackendEnum(Enum):
    """All backends."""

    FIRST = "vllm.v1.backends.first.FirstBackend"
    GHOST = "vllm.v1.backends.ghost.GhostBackend"
    EMPTY = ""
    CUSTOM = None

    def get_path(self):
        return self.value


TYPES = {"a": AttentionBackendEnum.FIRST.name}


def register_backend(backend, class_path: str | None = None, is_mamba: bool = False):
    """Example: register_backend(AttentionBackendEnum.CUSTOM, "x")."""
    return class_path
'''

BACKEND = """\
from vllm.v1.backend import AttentionBackend, MultipleOf


class Builder(Base):
    _cudagraph_support = Support.ALWAYS


class FirstBackend(AttentionBackend):
    supported_kv_cache_dtypes = ["auto", "fp8"]

    @staticmethod
    def get_name():
        return "OTHER_NAME"

    @staticmethod
    def get_builder_cls():
        return Builder

    @classmethod
    def supports_head_size(cls, head_size):
        return head_size >= 32

    @classmethod
    def supports_compute_capability(cls, capability):
        return on_mi3xx()


class ChildBackend(FirstBackend):
    @classmethod
    def get_supported_head_sizes(cls):
        return [64, 256]
"""

BASE = """\
class MultipleOf:
    pass


class AttentionBackend:
    supported_dtypes = [torch.float16, torch.bfloat16]

    @staticmethod
    def get_supported_kernel_block_sizes():
        return [MultipleOf(16)]

    @classmethod
    def supports_compute_capability(cls, capability):
        return True
"""

PLATFORM = """\
import vllm.envs as envs


def _priorities(use_mla):
    if use_mla:
        return ["MLA"]
    backends = []
    # a comment
    if envs.VLLM_USE_FAST and envs.VLLM_USE_SECOND:
        backends.append(AttentionBackendEnum.SECOND)
    backends.append(AttentionBackendEnum.FIRST)
    return backends


class Platform:
    def valid(self):
        return _priorities(False)

    def supports(self):
        return any(a in ARCH for a in ["gfx94", "gfx95"])
"""

ARGUMENTS = """\
from dataclasses import dataclass


@dataclass
class EngineArgs:
    model: str
    backend: str | None = Config.backend

    def add_cli_args(parser):
        group.add_argument(
            "--attention-backend", **kwargs["backend"]
        )
        group.add_argument("--port", default=8000)
"""

FILES = {
    "vllm/__init__.py": "",
    "vllm/v1/__init__.py": "",
    "vllm/v1/backends/__init__.py": "",
    "vllm/v1/backends/registry.py": REGISTRY,
    "vllm/v1/backends/first.py": BACKEND,
    "vllm/v1/backend.py": BASE,
    "vllm/platforms/rocm.py": PLATFORM,
    "vllm/engine/arg_utils.py": ARGUMENTS,
    "vllm/envs.py": "VLLM_USE_FAST: bool = False\nVLLM_USE_SECOND: bool = True\n",
    "vllm/config/cache.py": 'CacheDType = Literal[\n    "auto",\n    "fp8",\n]\n',
}


@pytest.fixture
def make_tree(tmp_path: Path) -> Callable[..., Tree]:
    """A function that writes a tree of these files, with changes: text, or None to leave a file out."""

    def make(**changes: str | None) -> Tree:
        files = FILES | {name.replace("__", "/") + ".py": text for name, text in changes.items()}
        for name, text in files.items():
            if text is not None:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text, encoding="utf-8")
        return Tree(tmp_path, "test")

    return make


@pytest.fixture
def find(make_tree: Callable[..., Tree]) -> Callable[..., Finding]:
    """Run one check on the unchanged small tree."""
    context = Context(data=DATA, tree=make_tree())
    return lambda name, **arguments: CHECKS[name].run(context, arguments)


@pytest.fixture(scope="session")
def vllm_0181() -> Tree:
    """The unpacked Python files of vLLM 0.18.1."""
    try:
        return get_tree("0.18.1", ROOT / ".envs" / "wheels")
    except WheelUnavailable as error:
        pytest.skip(f"the wheel of vLLM 0.18.1 is neither cached nor to be fetched: {error}")


@pytest.fixture(scope="session")
def real_context(vllm_0181: Tree, serve_python: str) -> Context:
    """Everything a claim may look at, except evidence. The behaviour probe runs once per session."""
    return Context(data=DATA, tree=vllm_0181, probe=Probe(serve_python), torch_python=serve_python)
