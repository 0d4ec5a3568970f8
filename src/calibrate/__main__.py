"""Calibrate the static schemes of a platform's arms: scales, bounds, levels and factors by layer.

    python -m adrbench.calibrate --spec JSON --output results/<platform>/calibrate.json

Specification: ``spec.CalibrateSpec``. Runs in the serving interpreter. ``measured.schemes[name].layers[number]`` holds
what ``Scheme.calibrate`` gives for a layer; the evidence carries the model's digest, and the plugin reads it from
there. The model folder is not touched: quantisation is a matter of the run, not of the weights (C03).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.calibrate.samples import collect, encoder, outliers, texts
from adrbench.calibrate.spec import CalibrateSpec, parse_spec
from adrbench.evidence import Evidence, canonical, digest_text, now
from adrbench.job import JobError, run, say
from adrbench.kernels.formats import Scheme, scheme


def static_schemes(spec: CalibrateSpec) -> dict[str, Scheme]:
    """The schemes to calibrate.

    Raises:
        JobError: ``spec`` for an unknown scheme or parameter.
    """
    try:
        return {entry.name: scheme(entry.name).with_parameters(entry.parameters) for entry in spec.schemes}
    except (KeyError, ValueError) as error:
        raise JobError("spec", f"calibrate specification: schemes: {error.args[0]}") from None


def work(raw: dict[str, Any], output: Path) -> None:
    spec, began = parse_spec(raw), now()
    wanted, model = static_schemes(spec), Path(spec.model)
    prompts = texts(spec.seed, spec.segments, spec.tokens, encoder(model))
    say(f"calibrating {', '.join(wanted)} on {len(prompts)} texts of {spec.tokens} tokens")
    layers = collect(model, prompts, spec.dtype)
    largest = {
        str(n): {"key": float(key.abs().max()), "value": float(value.abs().max())} for n, (key, value) in layers.items()
    }
    measured = {
        "schemes": {
            name: {"layers": {str(n): found.calibrate(key, value) for n, (key, value) in layers.items()}}
            for name, found in wanted.items()
        },
        "tokens": spec.segments * spec.tokens,
        "largest": largest,
        "outliers": outliers({n: key for n, (key, _) in layers.items()}),
    }
    evidence.write(
        output,
        Evidence(
            stage="calibrate",
            platform=spec.platform,
            asked=spec.model_dump(mode="json")
            | {
                "text_sha256": digest_text(canonical(prompts)),
                "identity": {"model_digest": evidence.read(Path(spec.model_evidence)).measured["digest"]},
            },
            resolved={"layers": len(layers), "summaries": {name: found.summary for name, found in wanted.items()}},
            measured=measured,
            notes=[
                "keys are those after rotary embedding, as a paged cache holds them",
                "the text is generated: a deployment would calibrate on its own requests",
            ],
            started_at=began,
            finished_at=now(),
        ),
    )
    say(f"{len(layers)} layers; largest key {max(v['key'] for v in largest.values()):.1f}")


if __name__ == "__main__":
    run("calibrate", work)
