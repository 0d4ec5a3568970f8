"""Run in the serving interpreter by test_kernels_formats_torch: what each scheme's reference does, as JSON.

Every fact is computed from the scheme's public methods; the test says what it must be.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from adrbench.kernels.formats import schemes
from adrbench.kernels.formats.kvquant import kmeans_levels, nearest
from adrbench.kernels.formats.plane import Plane
from adrbench.kernels.formats.rotated import walsh_hadamard

HEADS, DIM, TOKENS = 3, 64, 384
LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 159, 160, 161, 255, 256, 257, 288, 289, 384)
SPOT = (290, 1, 5)
"""Token, head and dimension at which a fault is put: quantised at ``TOKENS`` under every scheme but KIVI's values."""


def sample(tokens: int = TOKENS, heads: int = HEADS, dim: int = DIM, seed: int = 0) -> torch.Tensor:
    """Rows with channels of different size, as keys have them."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.exp(0.5 * torch.randn(heads, dim, generator=generator))
    return torch.randn(tokens, heads, dim, generator=generator) * size


def planes(name: str, x: torch.Tensor | None = None) -> dict[str, tuple[Plane, Any]]:
    """Both planes of a scheme, calibrated on a clean sample like ``x``."""
    clean = sample() if x is None else x
    scheme = schemes()[name]
    return {
        which: (getattr(scheme, which), getattr(scheme, which).static(getattr(scheme, which).calibrate(clean)))
        for which in ("key", "value")
    }


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.equal(a.nan_to_num(7e7, 8e7, 9e7), b.nan_to_num(7e7, 8e7, 9e7)))


def facts(name: str) -> dict[str, Any]:
    return {which: plane_facts(plane, static) for which, (plane, static) in planes(name).items()} | {
        "dims": {dim: by_dim(name, dim) for dim in (64, 96, 128, 256)}
    }


def by_dim(name: str, dim: int) -> Any:
    scheme, x = schemes()[name], sample(dim=dim)
    try:
        scheme.check_head_dim(dim)
    except ValueError as error:
        return str(error)
    return [float((p.round_trip(x, s) - x).norm() / x.norm()) for p, s in planes(name, x).values()]


def plane_facts(plane: Plane, static: Any) -> dict[str, Any]:
    x = sample()
    clean = plane.round_trip(x, static)
    found: dict[str, Any] = {"error": float((clean - x).norm() / x.norm())}
    found["zeros"] = float(plane.round_trip(zero_head(x), static)[:, 1].abs().max())
    found["lengths"] = {length: window(plane, static, length) for length in LENGTHS}
    steady = [
        same(*(plane.round_trip(x[:length], static)[: plane.quantised_end(n)] for length in (n, n + 1)))
        for n in LENGTHS[:-1]
    ]
    found["old_tokens_never_change"] = all(steady)
    if type(plane).read_back is Plane.read_back:
        pairs = (x, with_fault(x, math.nan), with_fault(x, math.inf))
        scale = static.get("scale")
        found["fast_path_is_the_reference"] = all(
            same(plane.read_back(y, static), plane.dequantise(plane.quantise(y, scale))) for y in pairs
        )
    for label, value in (("nan", math.nan), ("inf", math.inf), ("minus_inf", -math.inf), ("outlier", 1e4)):
        found[label] = fault(plane, static, x, value, clean)
    return found


def zero_head(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, 1] = 0
    return x


def window(plane: Plane, static: Any, length: int) -> dict[str, Any]:
    """A request's round trip: is what must stay exact exact, and what must be quantised changed?"""
    x = sample()[:length]
    back = plane.round_trip(x, static)
    end = plane.quantised_end(length)
    exact = torch.cat((back[: plane.sink], back[end:])), torch.cat((x[: plane.sink], x[end:]))
    body = back[plane.sink : end], x[plane.sink : end]
    changed = (body[0] != body[1]).flatten(1).any(1)
    return {"end": end, "shape": list(back.shape), "windows_exact": same(*exact), "all_changed": bool(changed.all())}


def with_fault(x: torch.Tensor, value: float) -> torch.Tensor:
    x = x.clone()
    x[SPOT] = value
    return x


def fault(plane: Plane, static: Any, x: torch.Tensor, value: float, clean: torch.Tensor) -> dict[str, Any]:
    """What one bad value becomes, and how far it reaches."""
    back = plane.round_trip(with_fault(x, value), static)
    touched = ~((back == clean) | (back.isnan() & clean.isnan()))
    spot = float(back[SPOT])
    return {
        "quantised": plane.sink <= SPOT[0] < plane.quantised_end(TOKENS),
        "spot": spot if math.isfinite(spot) else str(spot),
        "not_finite": int((~torch.isfinite(back)).sum()),
        "tokens_touched": int(touched.flatten(1).any(1).sum()),
        "heads_touched": int(touched.transpose(0, 1).flatten(1).any(1).sum()),
    }


def by_hand() -> dict[str, bool]:
    """Published formulas, element by element, against the references."""
    x, found = sample(256, 1, 32), {}
    key, value = schemes()["kivi4"].key, schemes()["kivi4"].value
    mine = key.round_trip(x)
    wanted = x.clone()
    for group in range(8):
        for d in range(32):
            rows = x[32 * group : 32 * group + 32, 0, d]
            low = float(rows.min().half())
            scale = float(((rows.max() - rows.min()) / 15).half())
            for t in range(32):
                code = min(15, max(0, round((float(rows[t]) - low) / scale)))
                wanted[32 * group + t, 0, d] = code * scale + low
    found["kivi_key"] = bool((mine - wanted).abs().max() < 1e-5) and key.quantised_end(256) == 256
    mine, wanted = value.round_trip(x), x.clone()
    for t in range(128):
        low, scale = x[t, 0].min().half().float(), ((x[t, 0].max() - x[t, 0].min()) / 15).half().float()
        wanted[t, 0] = ((x[t, 0] - low) / scale).round().clamp(0, 15) * scale + low
    found["kivi_value"] = bool((mine - wanted).abs().max() < 1e-5)
    atom = schemes()["atom_int4"].key
    mine, wanted = atom.read_back(x), x.clone()
    for t in range(256):
        high, low = float(x[t].max()), float(x[t].min())
        scale = float(torch.tensor(max(high - low, 1e-5) / 15).half())
        base = min(15, max(0, round(-low / scale)))
        wanted[t] = ((x[t] / scale).round() + base).clamp(0, 15).sub(base) * scale
    found["atom"] = bool(((mine - wanted).abs() < 1e-4).float().mean() > 0.999)
    return found


def others() -> dict[str, Any]:
    x = torch.randn(20000, generator=torch.Generator().manual_seed(1))
    levels, even = kmeans_levels(x, 16), torch.linspace(float(x.min()), float(x.max()), 16)
    matrix = walsh_hadamard(torch.eye(64))
    fnuz = schemes()["fp8_e4m3fnuz_per_token_head"]
    wrong = fnuz.with_parameters({"limit": 448.0}).key.read_back(sample())
    spiky = sample()
    spiky[:, :, 7] *= 30
    errors = {
        name: float((plane.round_trip(spiky, static) - spiky).norm() / spiky.norm())
        for name in ("int4_per_token_head", "int4_hadamard", "qserve_kv4_plain", "qserve_kv4", "kivi4", "kvquant4")
        for plane, static in [planes(name, spiky)["key"]]
    }
    return {
        "levels_gain": float((nearest(x, even) - x).pow(2).mean() / (nearest(x, levels) - x).pow(2).mean()),
        "levels_ascend": bool((levels.diff() > 0).all()),
        "hadamard_is_its_own_inverse": bool((matrix @ matrix - torch.eye(64)).abs().max() < 1e-6),
        "fnuz_scaled_to_448_is_nan": float(wrong.isnan().float().mean()),
        "channel_outlier": errors,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"schemes": {name: facts(name) for name in schemes()}, "by_hand": by_hand(), **others()}))
