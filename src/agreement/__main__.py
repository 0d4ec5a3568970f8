"""Replay a text on one arm's server and keep the log-probabilities at every position.

    python -m adrbench.agreement --spec JSON --output results/<platform>/agreement/<arm>/r<round>.json

Specification: ``spec.ReplaySpec``. The comparison with the baseline is a job of its own (``compare.py``), so that
another arm, or another way to compare, does not start a server again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from adrbench import evidence
from adrbench.agreement import text
from adrbench.agreement.replay import Replay, replay
from adrbench.agreement.spec import ReplaySpec, parse_spec
from adrbench.evidence import Evidence, now
from adrbench.job import JobError, run, say
from tokenizers import Tokenizer

OpenServer = Callable[..., AbstractContextManager[Any]]
RAW = "logprobs.npz"


def encoder(model: Path) -> text.Encode:
    """Token ids of plain text by the model's own tokenizer, nothing added.

    Raises:
        JobError: ``no-tokenizer`` when the folder has no readable ``tokenizer.json``.
    """
    path = model / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises a bare Exception for a missing and for a damaged file
        raise JobError("no-tokenizer", f"{path}: {error}; the replayed text is cut to length by this file") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda words: list(tokenizer.encode(words, add_special_tokens=False).ids)


def measured(found: Replay) -> dict[str, Any]:
    """What one replay says without another one beside it."""
    nll = -found.logprob
    return {
        "positions": int(nll.size),
        "perplexity": float(np.exp(nll.mean())),
        "nll_nats": [float(value) for value in nll.mean(axis=1)],
        "top_probability": float(np.exp(found.top_logprob).sum(axis=2).mean()),
    }


def extra_arguments(spec: ReplaySpec) -> list[str]:
    return ["--max-num-batched-tokens", str(spec.chunk_tokens)] if spec.chunk_tokens else []


def notes(spec: ReplaySpec) -> list[str]:
    """What a reader must know to read the figures right."""
    found = [
        "prompt_logprobs are computed in prefill; K and V are written to the paged cache before they are read, so "
        "every position reads the arm's own cache format"
    ]
    if spec.chunk_tokens:
        found.append(
            f"--max-num-batched-tokens {spec.chunk_tokens} in this measurement, for all arms alike: a window of recent "
            "tokens is up to that much shorter for the first queries of a step than in decoding"
        )
    return found


def measure(raw: dict[str, Any], output: Path, open_server: OpenServer) -> None:
    """Replay the text on one arm and write its evidence; ``open_server`` is the serving context manager."""
    spec, began = parse_spec(ReplaySpec, raw), now()
    prompts = text.segments(spec.text.seed, spec.text.segments, spec.text.tokens, encoder(Path(spec.model)))
    model_digest = evidence.read(Path(spec.model_evidence)).measured["digest"] if spec.model_evidence else None
    folder = evidence.raw_folder(output).resolve()
    with open_server(spec.server, folder / "server", extra_arguments(spec)) as server:
        say(f"replaying {len(prompts)} segments of {spec.text.tokens} tokens, the {spec.top} best at each position")
        found = replay(server, prompts, spec.top, spec.concurrency, spec.request_timeout_s)
        resolved = server.resolved
    found.save(folder / RAW)
    figures = measured(Replay.load(folder / RAW))  # of what is kept, so that an audit finds the same
    evidence.write(
        output,
        Evidence(
            stage="agreement",
            platform=spec.platform,
            arm=spec.arm["name"],
            round=spec.round,
            asked={
                "arm": spec.arm,
                "server": spec.server,
                "text": spec.text.model_dump() | {"sha256": text.digest(prompts)},
                "top": spec.top,
                "concurrency": spec.concurrency,
                "chunk_tokens": spec.chunk_tokens,
                "model": spec.model,
                "identity": {"model_digest": model_digest},
            },
            resolved=dict(resolved),
            measured=figures,
            files=evidence.digest_raw(output, [RAW]),
            notes=notes(spec),
            started_at=began,
            finished_at=now(),
        ),
    )
    say(f"perplexity {figures['perplexity']:.3f} over {figures['positions']} positions")


def work(raw: dict[str, Any], output: Path) -> None:
    from adrbench.serve.server import serving

    measure(raw, output, serving)


if __name__ == "__main__":
    run("agreement", work)
