"""Run by an interpreter with torch: its value tables and casts of 8-bit floats, as one JSON object.

Usage: ``python format_probe.py``. Values that JSON has no word for are given as text.
"""

from __future__ import annotations

import json
import math

import torch

FORMATS = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
CAST = (
    0.0,
    0.3,
    1.0625,
    1.1875,
    17.0,
    19.0,
    100.0,
    241.0,
    247.0,
    248.0,
    250.0,
    448.0,
    449.0,
    464.0,
    480.0,
    500.0,
    57344.0,
    65536.0,
    1e6,
)


def word(value: float) -> float | str:
    return value if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def table(dtype: torch.dtype) -> list[float | str]:
    """Value of each of the 256 codes; -0 is given as the text ``-0``."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype).float().tolist()
    return ["-0" if v == 0 and math.copysign(1, v) < 0 else word(v) for v in values]


def describe(name: str) -> dict[str, object]:
    dtype = getattr(torch, name)
    info = torch.finfo(dtype)
    casts = {f"{v:g}": word(torch.tensor(v).to(dtype).float().item()) for v in CAST}
    return {"max": info.max, "min_normal": info.tiny, "table": table(dtype), "casts": casts}


def main() -> None:
    names = [
        n
        for n in dir(torch)
        if n.startswith(("float8", "float4", "int8", "uint8")) and isinstance(getattr(torch, n), torch.dtype)
    ]
    aliases = {n: hasattr(torch, n) for n in ("fp8_fnuz", "__hip_fp8_e4m3_fnuz", "fp8_e4m3_fnuz")}
    formats = {n: describe(n) for n in FORMATS if hasattr(torch, n)}
    print(json.dumps({"torch": torch.__version__, "formats": formats, "dtypes": names, "aliases": aliases}))


if __name__ == "__main__":
    main()
