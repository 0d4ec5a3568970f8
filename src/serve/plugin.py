"""The project's one ``vllm.general_plugins`` entry point: every extension of vLLM goes through here.

vLLM calls ``register`` in each of its processes, the engine's included, before it chooses a backend,
so no file of vLLM is edited and an image update overwrites nothing. Without ADRBENCH_PLUGIN in the
environment it does nothing. ADRBENCH_PLUGIN is JSON: ``{"report": FILE, "mechanism": "L2" | "L3", ...}``.

Always, it observes: which attention backend class the platform returned to the engine goes to the report
file, since no endpoint tells and not every version logs it. And on a CPU that has no instructions for products
of 16-bit matrices it multiplies them in fp32 (serve/cpu_products).

L2  ``{"priority": ["ROCM_AITER_FA", ...]}``: these backends are tried first by
    ``_get_backend_priorities`` of vllm/platforms/rocm.py (validation still decides).
L3  ``{"backend": "CPU_ATTN" | "CUSTOM" | ..., "base": enum member to subclass}``: ``register_backend``
    with a subclass of ours (vllm/v1/attention/backends/registry.py). With ``"scheme": name`` it is the
    backend of ``adrbench.kernels.backend``, whose pages hold that scheme.
KV  ``{"kv_simulation": {"scheme": NAME, "parameters": {...}, "scales": FILE}}``: the KV-cache scheme is simulated
    in whatever backend is chosen (serve/simulation); ``{"kv_record": {"file": FILE, "tokens": N}}`` records keys
    and values. Both go beside a mechanism or alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import sys
from typing import Any

VARIABLE = "ADRBENCH_PLUGIN"
# Appended to the name of a document that could not be written whole (``withdraw``).
INCOMPLETE = ".incomplete"
SIMULATION = {"kv_simulation", "kv_record"}


def settings() -> dict[str, Any]:
    """The plugin's settings, empty when this server runs without it."""
    return dict(json.loads(os.environ.get(VARIABLE, "{}")))


def report(**facts: Any) -> None:
    """Append one line to the report file: proof, from inside the process, of what was active there.

    A line that cannot be written (a full disk) does not end vLLM's engine: the file is withdrawn, and the job, which
    reads it back, refuses the measurement.

    Raises:
        OSError: nor can the file be withdrawn. The engine ends, as nobody would learn that the line is missing.
    """
    path = settings().get("report")
    if not path:
        return
    name = multiprocessing.current_process().name
    # vLLM's engine and its workers are processes that the API server spawned.
    line = {"process": name, "engine": name != "MainProcess", "pid": os.getpid(), **facts}
    data = (json.dumps(line) + "\n").encode()
    try:
        # One write, so that the lines of several processes do not mix.
        with open(path, "ab", buffering=0) as stream:
            if stream.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    except OSError as error:
        withdraw(path, f"{json.dumps(facts)}: {error}")


def withdraw(path: str, why: str) -> None:
    """Take the name from a document that lacks something: a full disk allows that, and no further line.

    Raises:
        OSError: the document can be neither renamed nor removed, or was never there.
    """
    with contextlib.suppress(OSError, ValueError):  # the log may lie on the same disk
        print(f"adrbench: {path} is not whole: {why}", file=sys.stderr, flush=True)
    if os.path.exists(path + INCOMPLETE):
        return
    try:
        os.rename(path, path + INCOMPLETE)
    except OSError:
        os.unlink(path)


def register() -> None:
    """Entry point: activate the mechanism that ADRBENCH_PLUGIN asks for.

    Raises:
        ValueError: an unknown mechanism, so that the server does not start unchanged.
    """
    wanted = settings()
    if not wanted:
        return
    if SIMULATION.intersection(wanted):
        from adrbench.serve.simulation.attach import activate

        activate(wanted, os.path.dirname(wanted["report"]) if "report" in wanted else None)
    _observe()
    _multiply()
    mechanism = wanted.get("mechanism")
    if mechanism is None:
        return
    if mechanism == "L2":
        _prefer(wanted["priority"])
    elif mechanism == "L3":
        _override(wanted["backend"], wanted.get("scheme"))
    else:
        raise ValueError(f"{VARIABLE}: mechanism {mechanism!r} is unknown; allowed are 'L2' and 'L3'")


def _observe() -> None:
    """Report each backend class that the platform chooses (``get_attn_backend_cls`` of vllm/platforms/)."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    platform, seen = type(current_platform), set()
    original = platform.get_attn_backend_cls
    if getattr(original, "_adrbench", False):
        return

    def chosen(*args: Any, **kwargs: Any) -> Any:
        path = original(*args, **kwargs)
        if path not in seen:
            seen.add(path)
            names = [backend.name for backend in AttentionBackendEnum if _path(backend) == path]
            report(chosen=names[0] if names else None, path=path)
            if SIMULATION.intersection(settings()):
                _simulate(path)
        return path

    chosen._adrbench = True  # type: ignore[attr-defined]
    platform.get_attn_backend_cls = staticmethod(chosen)  # the original is bound to the class already


def _multiply() -> None:
    """On a CPU without instructions for 16-bit products, multiply in fp32 (``cpu_products``)."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from adrbench.serve import cpu_products

        cpu_products.install(report)


def _simulate(path: str) -> None:
    """Attach the simulated KV scheme to the backend class that was chosen."""
    from adrbench.serve.simulation.attach import attach
    from vllm.utils.import_utils import resolve_obj_by_qualname

    attach(resolve_obj_by_qualname(path))
    report(simulates=settings().get("kv_simulation", {}).get("scheme"), path=path)


def _path(backend: Any) -> str | None:
    """Class path of an enum member, overrides respected; None for an empty slot."""
    try:
        return str(backend.get_path())
    except ValueError:
        return None


def _prefer(names: list[str]) -> None:
    """L2: put backends first in the ROCm platform's list of candidates."""
    from vllm.platforms import rocm
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    original = rocm._get_backend_priorities
    preferred = [AttentionBackendEnum[name] for name in names]

    def priorities(*args: Any, **kwargs: Any) -> list[Any]:
        found = original(*args, **kwargs)
        report(mechanism="L2", priority=names)
        return preferred + [backend for backend in found if backend not in preferred]

    rocm._get_backend_priorities = priorities


def _override(name: str, scheme: str | None) -> None:
    """L3: let a subclass of ours stand for backend ``name``; with ``scheme``, the one with our kernels.

    Raises:
        ValueError: a scheme for another backend than CUSTOM.
    """
    if scheme is not None:
        if name != "CUSTOM":
            raise ValueError(f"{VARIABLE}: scheme {scheme!r} needs backend 'CUSTOM', not {name!r}")
        from adrbench.kernels.backend.install import install

        install(scheme)
        return
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum[name], "adrbench.serve.override.OverrideBackend")
