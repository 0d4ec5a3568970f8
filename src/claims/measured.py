"""Measured checks: a claim judged by evidence that this pipeline wrote. No evidence, no verdict.

The documents speak of accelerators: evidence counts only when the platform's device evidence names an
architecture that the claim is about (``arch_pattern``), so that a laptop's run never confirms a statement on a DCU.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

from adrbench import evidence
from adrbench.claims.registry import Context, Finding, Text, check
from adrbench.claims.registry import needs as lacking

ROCM = r"^gfx"


def _descend(document: dict[str, Any], dotted: str) -> Any:
    value: Any = document
    for key in dotted.split("."):
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def platform_folder(context: Context, arch_pattern: str, needs: Text) -> Path:
    """The platform's results folder, if its device is one that the claim is about.

    Raises:
        Unverifiable: there are no results, no device evidence, or the device is another kind.
    """
    root = context.evidence_root
    if root is None or not root.is_dir():
        raise lacking(needs)
    device = root / "device.json"
    arch = evidence.read(device).resolved.get("arch") if device.is_file() else None
    if not re.search(arch_pattern, str(arch or "")):
        raise lacking(needs, f"; this platform is {arch or 'not identified'}", f"; 本平台为 {arch or '未识别'}")
    return root


def _read(context: Context, files: str, key: str, needs: Text, arch_pattern: str) -> dict[str, Any]:
    """Value of ``key`` by evidence file.

    Raises:
        Unverifiable: no file of the pattern has the key.
    """
    root = platform_folder(context, arch_pattern, needs)
    found = {str(p.relative_to(root)): _descend(evidence.read(p).model_dump(), key) for p in sorted(root.glob(files))}
    present = {name: value for name, value in found.items() if value is not None}
    if not present:
        raise lacking(needs, f" ({len(found)} evidence files, none with {key})" if found else "")
    return present


@check("evidence", kind="measured", gives="value least most count")
def evidence_value(context: Context, files: str, key: str, needs: Text, arch_pattern: str = ROCM) -> Finding:
    """Median, least and most of one number over evidence files.

    ``files`` is a pattern below the platform's results folder, ``key`` a dotted path in the evidence
    (``measured.completed``), ``needs`` says in words what has to be measured when there is none,
    ``arch_pattern`` is a regular expression that the platform's architecture must match.
    """
    values = [float(v) for v in _read(context, files, key, needs, arch_pattern).values() if isinstance(v, int | float)]
    if not values:
        raise lacking(needs, f" ({key} is no number)")
    found = {"value": statistics.median(values), "least": min(values), "most": max(values), "count": len(values)}
    return Finding(
        found, f"{key}: median {found['value']:g} of {len(values)} ({min(values):g} to {max(values):g})", files
    )


@check("evidence-word", kind="measured", gives="words count")
def evidence_word(context: Context, files: str, key: str, needs: Text, arch_pattern: str = ROCM) -> Finding:
    """The distinct words that evidence files give under ``key``; ``undecided`` among them gives no verdict."""
    found = _read(context, files, key, needs, arch_pattern)
    words = sorted({str(value) for value in found.values()})
    if "undecided" in words:
        raise lacking(needs, f": so far undecided ({len(found)} evidence files)")
    return Finding({"words": words, "count": len(found)}, f"{key}: {', '.join(words)} in {len(found)} files", files)


@check("evidence-ratio", kind="measured", gives="value count")
def evidence_ratio(
    context: Context, files: str, baseline_files: str, key: str, needs: Text, arch_pattern: str = ROCM
) -> Finding:
    """Median of one number over two sets of evidence files, as a quotient: arm over baseline."""
    arm = evidence_value(context, files, key, needs, arch_pattern)
    baseline = evidence_value(context, baseline_files, key, needs, arch_pattern)
    if baseline.values["value"] == 0:
        raise lacking(needs, f": the baseline in {baseline_files} is zero")
    ratio = arm.values["value"] / baseline.values["value"]
    count = min(arm.values["count"], baseline.values["count"])
    return Finding({"value": ratio, "count": count}, f"{arm.text}; baseline {baseline.text}; ratio {ratio:.4g}", files)


@check("evidence-difference", kind="measured", gives="value count")
def evidence_difference(
    context: Context, files: str, baseline_files: str, key: str, needs: Text, arch_pattern: str = ROCM
) -> Finding:
    """Median of one number over two sets of evidence files, baseline minus arm: an accuracy Δ in points."""
    arm = evidence_value(context, files, key, needs, arch_pattern)
    baseline = evidence_value(context, baseline_files, key, needs, arch_pattern)
    difference = baseline.values["value"] - arm.values["value"]
    count = min(arm.values["count"], baseline.values["count"])
    text = f"baseline {baseline.text}; {arm.text}; difference {difference:.4g}"
    return Finding({"value": difference, "count": count}, text, files)


@check("needs-measurement", kind="measured", gives="value")
def needs_measurement(_context: Context, needs: Text) -> Finding:
    """A statement that only a measurement outside this pipeline could settle: always unverified, and says why."""
    raise lacking(needs)
