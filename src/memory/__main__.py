"""Memory of every arm's KV scheme: layout, pool, requests that fit.

    python -m adrbench.memory --spec JSON --output results/<platform>/memory.json

Specification: ``spec.MemorySpec``. Nothing is served: pools come from the evidence of jobs that served the arms, the
rest is arithmetic over the scheme's layout and the model's ``config.json``.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.evidence import Evidence, EvidenceError, now
from adrbench.job import JobError, run, say
from adrbench.kernels.formats import Scheme, scheme
from adrbench.memory import arithmetic
from adrbench.memory.arithmetic import Pool
from adrbench.memory.spec import ArmSpec, MemorySpec, parse_spec
from adrbench.profile.model_shape import ModelConfigError, Shape, load_shape


def scheme_of(arm: ArmSpec) -> Scheme:
    """Raises JobError ``spec`` for a scheme or parameters that do not exist."""
    try:
        return scheme(arm.scheme).with_parameters(arm.parameters)
    except (KeyError, ValueError) as error:
        raise JobError("spec", f"memory specification: arms[{arm.name}].scheme: {error}") from None


def shape_of(folder: str) -> Shape:
    """Raises JobError ``bad-model`` naming file and key."""
    try:
        return load_shape(Path(folder))
    except ModelConfigError as error:
        raise JobError("bad-model", str(error)) from None


def served(arm: ArmSpec) -> tuple[str, dict[str, Any]] | None:
    """(path, resolved settings) of the first evidence of an arm that names its pool."""
    for path in arm.pools:
        if not Path(path).is_file():
            continue
        try:
            resolved = evidence.read(Path(path)).resolved
        except EvidenceError as error:
            raise JobError("evidence", str(error)) from None
        if resolved.get("kv_pool_tokens") and resolved.get("block_size"):
            return path, resolved
    return None


def layout(found: Scheme, shape: Shape, lengths: list[int]) -> dict[str, Any]:
    """``measured.arms[arm].layout``: bytes per token and ratios to 16 bit."""
    return {
        "bytes_per_token": arithmetic.bytes_per_token(found, shape),
        "bits_per_value": found.bits_per_value(shape.attention.head_dim),
        "ratio": arithmetic.layout_ratio(found, shape),
        "scale_bytes_per_token": arithmetic.scale_bytes_per_token(found, shape),
        "wide_share": {str(length): arithmetic.wide_share(found, length) for length in lengths},
        "request_ratio": {str(length): arithmetic.request_ratio(found, shape, length) for length in lengths},
    }


def cited(found: Scheme, folders: dict[str, str], length: int) -> dict[str, Any]:
    """``measured.arms[arm].cited``: the same of models that are not served here, by their published shape."""
    values: dict[str, Any] = {}
    for name, folder in folders.items():
        shape = shape_of(folder)
        entry: dict[str, Any] = {"ratio": arithmetic.layout_ratio(found, shape)}
        entry["request_bytes"] = arithmetic.bytes_of_request(found, shape, length)
        if shape.linear_attention is not None:
            entry["pool_request_bytes"], entry["block_size"] = arithmetic.hybrid_request(found, shape, length)
            wide, _ = arithmetic.hybrid_request(scheme("bf16"), shape, length)
            entry["pool_request_ratio"] = entry["pool_request_bytes"] / wide
        values[name] = entry
    return values


def pool(spec: MemorySpec, arm: ArmSpec, found: Scheme, shape: Shape, base: Pool | None) -> dict[str, Any] | None:
    """``measured.arms[arm].pool``: vLLM's own where it stores the scheme, else computed from the baseline's bytes."""
    named = served(arm)
    if not arm.simulated and named is not None:
        path, resolved = named
        bytes_each = arithmetic.bytes_per_token(found, shape)
        own = arithmetic.served_pool(resolved["kv_pool_tokens"], resolved["block_size"], bytes_each, spec.length)
        return asdict(own) | {"kind": "measured", "evidence": path}
    if base is None or shape.linear_attention is not None:
        return None
    own = arithmetic.computed_pool(found, shape, base.bytes, base.block_size, spec.length)
    return asdict(own) | {"kind": "computed", "evidence": None}


def measured(spec: MemorySpec) -> dict[str, Any]:
    """All arms. The pool ratio is tokens of the baseline's pool over the arm's, at equal bytes: smaller is better."""
    shape = shape_of(spec.model)
    first = next(arm for arm in spec.arms if arm.name == spec.baseline)
    reference = pool(spec, first, scheme_of(first), shape, None)
    base = Pool(**{key: reference[key] for key in Pool.__dataclass_fields__}) if reference else None
    arms = {}
    for arm in spec.arms:
        found = scheme_of(arm)
        own = pool(spec, arm, found, shape, base)
        if own is not None and base is not None:
            own |= {"ratio": base.tokens / own["tokens"], "requests_ratio": own["requests"] / base.requests}
        arms[arm.name] = {
            "scheme": arm.scheme,
            "summary": found.summary,
            "source": found.source,
            "layout": layout(found, shape, spec.lengths),
            "pool": own,
            "cited": cited(found, spec.cited, spec.length),
        }
    return {
        "kv_layers": shape.attention.layers,
        "kv_heads": shape.attention.kv_heads,
        "head_dim": shape.attention.head_dim,
        "length": spec.length,
        "arms": arms,
    }


def work(raw: dict[str, Any], output: Path) -> None:
    spec, began = parse_spec(raw), now()
    digest = evidence.read(Path(spec.model_evidence)).measured["digest"] if spec.model_evidence else None
    found = measured(spec)
    evidence.write(
        output,
        Evidence(
            stage="memory",
            platform=spec.platform,
            asked=spec.model_dump(mode="json") | {"identity": {"model_digest": digest}},
            measured=found,
            notes=[
                "pool kind measured: tokens that the running vLLM reported; computed: blocks of the scheme's page "
                "layout that fit into the bytes of the baseline's pool, for schemes that are simulated",
                f"requests: how many requests of {spec.length} tokens the pool holds at once, whatever length the "
                "served model is trained for",
            ],
            started_at=began,
            finished_at=now(),
        ),
    )
    for name, arm in found["arms"].items():
        kind = arm["pool"]["kind"] if arm["pool"] else "unknown"
        say(f"{name}: {arm['layout']['ratio']:.3f} of 16 bit by layout, pool {kind}")


if __name__ == "__main__":
    run("memory", work)
