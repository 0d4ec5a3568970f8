"""Run by another interpreter: vLLM's own ROCm platform code, with a pretended architecture.

Usage: ``python behaviour_probe.py TREE``; prints one JSON object on its last line.

``TREE`` is an unpacked vLLM wheel without compiled parts, put first on the path. ``amdsmi`` is
replaced by a stand-in that reports the architecture, ``aiter`` by one that can be imported, and for
each architecture ``vllm.platforms.rocm`` is loaded anew, so its module-level probing runs as on a
device. No kernel runs: this says what vLLM selects and refuses, not what works on a card.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import json
import os
import sys
import types
from collections.abc import Callable

ARCHITECTURES = ("gfx90a", "gfx926", "gfx928", "gfx936", "gfx938", "gfx942", "gfx950")
BACKENDS = ("TRITON_ATTN", "ROCM_ATTN", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN")
ENVIRONMENTS = {
    "none": {},
    "aiter": {"VLLM_ROCM_USE_AITER": "1"},
    "unified": {"VLLM_ROCM_USE_AITER": "1", "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION": "1"},
}
#: Imported by vLLM at module level and not used by the code under test; stood in for where absent.
UNUSED = ("gguf", "gguf.constants", "gguf.quants")
HEAD_SIZE = 256
BLOCK_SIZES = (8, 16, 32, 48, 64, 784, 1568)
pretended = {"arch": ARCHITECTURES[0]}


class StandIn(types.ModuleType):
    """A module whose every attribute exists: enough for ``from aiter import x``."""

    __path__ = []  # noqa: RUF012  (a package's own attribute; nothing is added to it)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def put_stand_in(name: str, **attributes: object) -> None:
    module = StandIn(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module


def pretend_device() -> None:
    put_stand_in(
        "amdsmi",
        AmdSmiException=type("AmdSmiException", (Exception,), {}),
        amdsmi_init=lambda *_: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: [0],
        amdsmi_get_gpu_asic_info=lambda _: {
            "target_graphics_version": pretended["arch"],
            "device_id": "0x0",
            "market_name": "",
        },
        amdsmi_topo_get_link_type=lambda *_: {},
    )
    for name in UNUSED:
        put_stand_in(name)


def pretend_aiter() -> None:
    for name in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.unified_attention"):
        put_stand_in(name)
    setattr(sys.modules["vllm._aiter_ops"], "IS_AITER_FOUND", True)  # noqa: B010  (a module has no such field)


def pretend_version() -> None:
    """The distribution installed beside this interpreter is not the tree: a "+cpu" in its version
    would make vLLM's CPU platform claim the process."""
    real = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return "0" if distribution_name.startswith("vllm") else real(distribution_name)

    importlib.metadata.version = version


def let_placeholders_answer() -> None:
    """vLLM's own stand-in for ``triton.language`` (no driver here) lacks names that newer modules read."""
    import vllm.triton_utils.importing as importing

    importing.TritonLanguagePlaceholder.__getattr__ = lambda _self, _name: None


def dtype_name(dtype: object) -> str:
    return str(dtype).replace("torch.", "")


def outcome(action: Callable[..., object], *arguments: object) -> str:
    """Result of a call, or its error as ``Type: text``."""
    try:
        return str(action(*arguments))
    except Exception as error:  # the error itself is what is asked for
        return f"{type(error).__name__}: {error}"


def selector_config(kv_cache_dtype: str) -> object:
    import torch
    from vllm.v1.attention.selector import AttentionSelectorConfig

    return AttentionSelectorConfig(
        head_size=HEAD_SIZE,
        dtype=torch.bfloat16,
        kv_cache_dtype=kv_cache_dtype,
        block_size=None,
    )


def load_platform(arch: str) -> types.ModuleType:
    """``vllm.platforms.rocm`` as it is on a device of this architecture, made the current platform."""
    import vllm.platforms

    pretended["arch"] = arch
    rocm = importlib.reload(sys.modules["vllm.platforms.rocm"])

    def device_capability(_platform: type, device_id: int = 0) -> object:
        return vllm.platforms.interface.DeviceCapability(*capability(rocm, arch)) if device_id == 0 else None

    rocm.RocmPlatform.get_device_capability = classmethod(device_capability)
    vllm.platforms._current_platform = rocm.RocmPlatform()
    return rocm


def capability(rocm: types.ModuleType, arch: str) -> list[int]:
    """(major, minor) by vLLM's own parser; versions without one ask HIP, which derives it so too."""
    parse = getattr(rocm, "_capability_from_gcn_arch", None)
    return list(parse(arch)) if parse else [int(arch[3]), int(arch[4])]


def chosen(registry: types.ModuleType, kv: str, explicit: str | None = None) -> str:
    """Name of the backend that the current platform selects."""
    import vllm.platforms

    members = registry.AttentionBackendEnum
    selected = members[explicit] if explicit else None
    path = vllm.platforms._current_platform.get_attn_backend_cls(selected, attn_selector_config=selector_config(kv))
    return next((m.name for m in members if m.value == path), str(path))


def reread_environment() -> None:
    """Newer versions keep the aiter switches as class attributes."""
    operations = sys.modules["vllm._aiter_ops"].rocm_aiter_ops
    if refresh := getattr(operations, "refresh_env_variables", None):
        refresh()


def probe_without_aiter(arch: str, registry: types.ModuleType) -> dict[str, str]:
    load_platform(arch)
    return {b: outcome(chosen, registry, "auto", b) for b in BACKENDS}


def probe_architecture(arch: str, registry: types.ModuleType) -> dict[str, object]:
    rocm = load_platform(arch)
    platform = sys.modules["vllm.platforms"]._current_platform
    result: dict[str, object] = {
        "capability": ".".join(map(str, capability(rocm, arch))),
        "on_gfx9": bool(rocm.on_gfx9()),
        "on_mi3xx": bool(rocm.on_mi3xx()),
        "fp8_dtype": dtype_name(platform.fp8_dtype()),
        "supports_fp8": bool(platform.supports_fp8()),
        "aiter_supported": bool(sys.modules["vllm._aiter_ops"].is_aiter_found_and_supported()),
    }
    chosen_by: dict[str, str] = {}
    for name, variables in ENVIRONMENTS.items():
        os.environ.update(variables)
        reread_environment()
        chosen_by[name] = outcome(chosen, registry, "auto")
        valid, invalid = platform.get_valid_backends(platform.get_device_capability(), selector_config("auto"))
        result[f"candidates_{name}"] = [backend.name for backend, _ in valid]
        result[f"refused_{name}"] = {backend.name: reasons for backend, reasons in invalid.items()}
        for variable in variables:
            del os.environ[variable]
    reread_environment()
    result["chosen"] = chosen_by
    result["explicit"] = {b: outcome(chosen, registry, "auto", b) for b in BACKENDS}
    result["explicit_fp8"] = {b: outcome(chosen, registry, "fp8", b) for b in BACKENDS}
    return result


def probe_backends(registry: types.ModuleType) -> dict[str, object]:
    """What each ROCm backend class answers, asked directly."""
    rows: dict[str, object] = {}
    for name in BACKENDS:
        backend = registry.AttentionBackendEnum[name].get_class()
        rows[name] = {
            "per_head_scales": outcome(backend.supports_per_head_quant_scales),
            "block_sizes": {str(n): outcome(backend.supports_block_size, n) for n in BLOCK_SIZES},
            "kernel_block": {str(n): outcome(kernel_block, backend, n) for n in (784, 1568)},
        }
    return rows


def kernel_block(backend: object, block_size: int) -> int:
    """Block size the kernel of a backend gets when the pool's block has ``block_size`` tokens."""
    from vllm.v1.worker.utils import select_common_block_size

    return int(select_common_block_size(block_size, [backend]))


def probe_registry(registry: types.ModuleType) -> dict[str, object]:
    members = registry.AttentionBackendEnum
    return {
        "count": len(list(members)),
        "custom_unregistered": outcome(members.CUSTOM.get_class),
        "no_attention": outcome(members.NO_ATTENTION.get_class),
        "has_register_backend": hasattr(members, "register_backend"),
    }


def probe_config() -> dict[str, object]:
    from vllm.config.cache import CacheConfig

    def accepted(name: str) -> str:
        return str(CacheConfig(cache_dtype=name).cache_dtype)

    return {f"cache_dtype_{name}": outcome(accepted, name) for name in ("auto", "fp8", "int8")}


def main(tree: str) -> None:
    sys.path.insert(0, tree)
    pretend_device()
    pretend_version()
    let_placeholders_answer()
    import vllm.platforms.rocm

    vllm_file = sys.modules["vllm"].__file__ or ""
    if not os.path.realpath(vllm_file).startswith(os.path.realpath(tree)):
        raise RuntimeError(f"vllm was imported from {vllm_file}, not from {tree}")
    import vllm._aiter_ops  # noqa: F401
    import vllm.v1.attention.backends.registry as registry

    without = {arch: probe_without_aiter(arch, registry) for arch in ARCHITECTURES}
    pretend_aiter()
    rows = {arch: probe_architecture(arch, registry) | {"without_aiter": without[arch]} for arch in ARCHITECTURES}
    result = {
        "architectures": rows,
        "backends": probe_backends(registry),
        "registry": probe_registry(registry),
        "config": probe_config(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
