"""Reads what a compiled kernel asks of the hardware out of its assembly."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}


def hot_loop(lines: list[str], label: re.Pattern[str], branch: re.Pattern[str]) -> list[str]:
    """The lines of the largest backward branch's region, label to branch."""
    seen: dict[str, int] = {}
    start, end = 0, -1
    for index, line in enumerate(lines):
        if found := label.match(line):
            seen[found.group(1)] = index
        found = branch.search(line)
        if found and found.group(1) in seen and index - seen[found.group(1)] > end - start:
            start, end = seen[found.group(1)], index
    return lines[start : end + 1]


def _matching(operations: Counter[str], pattern: str) -> dict[str, int]:
    return {name: count for name, count in sorted(operations.items()) if re.match(pattern, name)}


def amd(assembly: str, shared_bytes: int, warps: int, elements: int, arch: str) -> dict[str, Any]:
    """Registers, spills, LDS and the hot loop of an AMDGPU kernel; ``elements``: cached elements per iteration."""

    def number(key: str) -> int:
        found = re.search(rf"\.{key}:\s*(\d+)", assembly)
        return int(found.group(1)) if found else 0

    loop = hot_loop(
        assembly.splitlines(), re.compile(r"^(\.LBB\d+_\d+):"), re.compile(r"s_c?branch\w*\s+(\.LBB\d+_\d+)")
    )
    operations = Counter(found[1] for line in loop if (found := re.match(r"\s+([a-z]\w+)", line)))
    matrix = _matching(operations, r"v_s?mfma")
    vector = sum(count for name, count in operations.items() if name.startswith("v_")) - sum(matrix.values())
    loads = _matching(operations, r"(global|buffer|flat)_load")
    waves = min(8, 512 // max(8, -(-number("vgpr_count") // 8) * 8))
    by_lds = LDS_BYTES[arch] // shared_bytes * warps / 4 if shared_bytes and arch in LDS_BYTES else waves
    return {
        "registers": number("vgpr_count"),
        "spills": number("vgpr_spill_count") + number("private_segment_fixed_size"),
        "shared_bytes": shared_bytes,
        "waves_per_simd": min(waves, by_lds),
        "per_element": round(vector * 64 * warps / elements, 2),
        "matrix": matrix,
        "loads": loads,
        "wide_loads": sum(count for name, count in loads.items() if name.endswith("dwordx4")),
        "byte_loads": sum(count for name, count in loads.items() if re.search(r"(ubyte|sbyte|ushort|sshort)", name)),
    }


def programs_per_unit(registers: int, shared_bytes: int, warps: int) -> int:
    """Programs that a multiprocessor of sm_90 holds at once; registers are given to a warp by eights a thread."""
    by_registers = 65536 // (-(-max(registers, 24) // 8) * 8 * 32 * warps)
    return min(by_registers, 233472 // (shared_bytes + 1024), 64 // warps)


def nvidia(cubin: bytes, tools: Path, shared_bytes: int, warps: int, elements: int) -> dict[str, Any]:
    """The same of a CUDA kernel; ``tools`` is Triton's folder with cuobjdump and nvdisasm."""
    # In the compiler's own cache: its owner removes it, should this process be killed.
    with tempfile.NamedTemporaryFile(suffix=".cubin", dir=os.environ.get("TRITON_CACHE_DIR")) as file:
        file.write(cubin)
        file.flush()
        environment = dict(os.environ, PATH=f"{tools}{os.pathsep}{os.environ.get('PATH', '')}")

        def run(*command: str) -> str:
            full = [str(tools / command[0]), *command[1:], file.name]
            return subprocess.run(full, capture_output=True, text=True, env=environment, check=True).stdout

        usage, sass = run("cuobjdump", "-res-usage"), run("nvdisasm", "-c")

    def number(key: str) -> int:
        found = re.search(rf"\b{key}:(\d+)", usage)
        return int(found.group(1)) if found else 0

    loop = hot_loop(sass.splitlines(), re.compile(r"^(\.L_x_\d+):"), re.compile(r"BRA.*`\((\.L_x_\d+)\)"))
    names = [m[1] for line in loop if (m := re.search(r"\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)", line))]
    operations = Counter(names)
    loads = _matching(operations, r"LDG|LDGSTS|UTMALDG")
    return {
        "registers": number("REG"),
        "spills": number("STACK") + number("LOCAL"),
        "shared_bytes": shared_bytes,
        "programs_per_unit": programs_per_unit(number("REG"), shared_bytes, warps),
        "per_element": round(len(names) * 32 * warps / elements, 2),
        "matrix": _matching(operations, r"[HIQ]G?MMA"),
        "loads": loads,
        "wide_loads": sum(count for name, count in loads.items() if ".128" in name),
        "float_to_byte": len(re.findall(r"\bF2IP\.[US]8\.F32", sass)),
        "byte_loads": sum(count for name, count in loads.items() if ".U8" in name or ".S8" in name or ".U16" in name),
    }
