"""The document that an import writes: another tool's result in this project's terms, with where it came from.

Terms, per request, as ``serve/bench.py`` defines them; ``formats.py`` says what each tool calls them:

* TTFT: from sending to the first token.
* TPOT: (end to end - TTFT) / (output tokens - 1).
* ITL: the gaps between chunks.
* E2EL: from sending to the last token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from adrbench.evidence import EvidenceError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1
Tool = Literal["vllm bench serve", "GuideLLM", "AIPerf"]
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms")


class Latency(BaseModel):
    """Percentiles in ms over requests (ITL: over gaps); None where the tool did not state one."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    mean: float | None = None


class Run(BaseModel):
    """One benchmark of a file; a GuideLLM report holds several."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    label: str = Field(description="which of the file's benchmarks: strategy and rate, or the tool's own label")
    model: str | None
    concurrency: float | None = Field(description="requests in flight at most; None: not stated or unlimited")
    request_rate: float | None = Field(description="requests/s that were asked for; None: not stated or unlimited")
    completed: int
    failed: int | None
    duration_s: float | None
    input_tokens: float | None = Field(description="mean prompt tokens of a request")
    output_tokens: float | None = Field(description="mean output tokens of a request")
    requests_per_s: float | None
    output_tokens_per_s: float | None = Field(description="output tokens of completed requests over the duration")
    ttft_ms: Latency
    tpot_ms: Latency
    itl_ms: Latency
    e2el_ms: Latency
    notes: list[str] = Field([], description="where the tool's own term differs from this project's")


class Imported(BaseModel):
    """One imported file. ``provenance`` says who measured; nothing of it enters a decision."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    kind: Literal["imported"] = "imported"
    name: str
    platform: str
    tool: Tool
    tool_version: str | None
    measured_at: str | None = Field(description="as the tool stated it; None: not stated")
    file: str = Field(description="the original, kept beside this document")
    sha256: str
    runs: list[Run] = Field(min_length=1)


def read(path: Path) -> Imported:
    """One imported document.

    Raises:
        EvidenceError: naming the file and what is wrong with it.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        return Imported.model_validate(data)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise EvidenceError(f"{path}: cannot be read ({error}); import the file again") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise EvidenceError(f"{path}: {where}: {first['msg']}; import the file again") from None
