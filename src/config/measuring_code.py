"""The code that a job's output depends on, by stage: its digest enters the job's ``params`` and reruns it.

Reading and reporting code is in no measuring stage's list: a report's new wording costs no accelerator time.
"""

from __future__ import annotations

from adrbench.evidence import digest_tree
from adrbench.paths import ROOT

_SERVER = [f"src/serve/{name}.py" for name in ("server", "auth", "plugin", "override", "cpu_products")]

# All of the profile job but what only draws or counts.
_PROFILE = [
    "__main__",
    "bound",
    "ceiling",
    "ceiling_bandwidth",
    "ceiling_device",
    "checks",
    "class_limits",
    "cpu_time",
    "device_time",
    "limits",
    "model_bytes",
    "model_flops",
    "model_pool",
    "model_shape",
    "op_classes",
    "phases",
    "prediction",
    "request_time",
    "sections",
    "spread",
    "step",
    "trace",
    "verdict",
    "window",
]
# Bytes of weights, pool and phases, computed from a model's configuration.
_MODEL = [f"src/profile/{name}.py" for name in ("model_bytes", "model_pool", "model_shape")]
# Texts that a seed makes.
_TEXTS = ["src/eval/tasks/base.py", "src/eval/world.py", "src/eval/text"]
SIMULATION_CODE = ["src/kernels/formats", "src/serve/simulation"]
MEASURING_CODE = {
    "device": ["src/device"],
    "model": ["src/model/gguf.py"],
    "kernels": ["src/kernels"],
    "serve": _SERVER
    + [f"src/serve/{name}.py" for name in ("bench", "prompts", "loadgen", "answers", "decode_window", "stalls")],
    "integrate": [*_SERVER, "src/serve/answers.py", "src/integrate"],
    "eval": [*_SERVER, "src/eval"],
    "profile": [*_SERVER, *(f"src/profile/{name}.py" for name in _PROFILE)],
    "counters": [f"src/profile/{name}.py" for name in ("counters", "counters_window", "model_bytes", "model_shape")],
    "figures": [f"src/profile/{name}.py" for name in ("figures", "draw", "op_classes", "verdict")],
    "claims": ["src/claims", "config/claims", "src/device", "src/kernels/formats", *_MODEL],
    "agreement": [
        *_SERVER,
        *(f"src/agreement/{name}.py" for name in ("__main__", "replay", "text")),
        *_TEXTS,
    ],
    "compare": ["src/agreement", "src/decide", *_TEXTS],
    "calibrate": ["src/calibrate", "src/kernels/formats", *_TEXTS],
    "memory": ["src/memory", "src/kernels/formats", *_MODEL],
    "decide": ["src/decide"],
    "lock": ["src/lock", "src/decide", "src/serve/server.py", "src/report/history.py", "src/report/lookup.py"],
    "report": [
        "src/report",
        "src/device/rules.py",
        "src/kernels/formats",
        "src/decide",
        "src/claims/table.py",
        *(f"src/profile/{name}.py" for name in ("bound", "checks", "op_classes", "prediction", "verdict")),
        *_MODEL,
    ],
}


def code_digest(stage: str) -> str:
    """Digest of the code that a stage's measurement depends on."""
    return digest_tree(
        *(ROOT / path for path in MEASURING_CODE[stage]),
        suffixes=(".py", ".yaml", ".txt", ".json", ".j2", ".css", ".js"),
    )
