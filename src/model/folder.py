"""Check a Hugging Face model folder before a server is started on it: a truncated file dies late otherwise."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from adrbench.evidence import digest_file, digest_text
from adrbench.job import JobError
from adrbench.profile.model_bytes import parameters, weight_bytes
from adrbench.profile.model_shape import ModelConfigError, parse_config

# Larger folders are identified by their headers and sizes: hashing 54 GB costs minutes a run.
FULL_DIGEST_LIMIT_BYTES = 4 << 30


def read_header(path: Path) -> dict[str, Any]:
    """Header of a safetensors file, checked against the file's size.

    Raises:
        JobError: ``bad-model``, naming the file: truncated, or not safetensors.
    """
    size = path.stat().st_size
    try:
        with open(path, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > size:
                raise ValueError(f"its header claims {length} bytes, the file has {size}")
            header: dict[str, Any] = json.loads(stream.read(length))
            if not isinstance(header, dict):
                raise ValueError("its header is not a mapping")
    except (struct.error, ValueError) as error:
        raise JobError("bad-model", f"{path}: not a safetensors file ({error}); copy it again") from None
    end = max((t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"), default=0)
    if size != 8 + length + end:
        raise JobError(
            "bad-model", f"{path}: {size} bytes where its header needs {8 + length + end}: truncated; copy it again"
        )
    return header


# NaN by the bits of a value: (bytes, mask of all but the sign, the greatest pattern that is a number or infinite).
_NAN_BITS = {
    "BF16": (2, 0x7FFF, 0x7F80),
    "F16": (2, 0x7FFF, 0x7C00),
    "F32": (4, 0x7FFFFFFF, 0x7F800000),
    "F8_E4M3": (1, 0x7F, 0x7E),
    "F8_E5M2": (1, 0x7F, 0x7C),
}


def check_numbers(path: Path, header: dict[str, Any]) -> None:
    """Refuse weights that hold a NaN: served, it reaches the logits, and greedy sampling takes it for the largest.

    Args:
        header: of the safetensors file ``path``, as ``read_header`` gives it.

    Raises:
        JobError: ``bad-model``, naming file, tensor and how many of its values are NaN.
    """
    import numpy as np

    with open(path, "rb") as stream:
        start = 8 + struct.unpack("<Q", stream.read(8))[0]
    data = np.memmap(path, dtype=np.uint8, mode="r")
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in _NAN_BITS:
            continue
        size, mask, limit = _NAN_BITS[tensor["dtype"]]
        begin, end = (start + offset for offset in tensor["data_offsets"])
        values = np.frombuffer(data[begin:end].tobytes(), dtype=f"<u{size}")
        if wrong := int(((values & mask) > limit).sum()):
            raise JobError(
                "bad-model",
                f"{path}: tensor {name}: {wrong} of {values.size} values are not a number (NaN); copy the file again, "
                "or repair the checkpoint",
            )


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping.

    Raises:
        JobError: ``bad-model``, naming the file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise JobError("bad-model", f"{path}: not valid JSON ({error}); copy it again") from None
    if not isinstance(content, dict):
        raise JobError("bad-model", f"{path}: a mapping is needed, found {type(content).__name__}; copy it again")
    return content


def _size_of_shape(config: dict[str, Any], path: Path) -> dict[str, int]:
    """Parameters and bytes of the text model that a configuration describes; 0 of an architecture without a parser."""
    try:
        shape = parse_config(config, path)
    except ModelConfigError:
        return {"parameters": 0, "weight_bytes": 0}
    return {"parameters": sum(parameters(shape).values()), "weight_bytes": weight_bytes(shape)}


def _weight_files(folder: Path) -> list[Path]:
    """Safetensors files of a folder; none where there are no weights.

    Raises:
        JobError: ``bad-model``: one that the index names is missing.
    """
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        needed = set(_read_json(index).get("weight_map", {}).values())
        missing = sorted(needed - {path.name for path in files})
        if missing:
            raise JobError(
                "bad-model", f"{folder}: {len(missing)} weight files of the index are missing (first: {missing[0]})"
            )
    return files


def check_folder(folder: Path) -> dict[str, Any]:
    """Check a model folder and identify it.

    Returns:
        ``architecture``, ``parameters``, ``weight_bytes``, ``head_dim``, ``digest`` (SHA-256) and ``digest_of``
        (``files`` or, for large folders, ``headers``, whose weights are not looked through for NaN either),
        ``chat_template``, ``dummy`` (no weights at all, for ``--load-format dummy``; parameters and bytes are
        then computed from the configuration).

    Raises:
        JobError: ``no-model`` or ``bad-model``, naming the file and what to do.
    """
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise JobError(
            "no-model", f"{config_path} does not exist; set model.path of the platform file to a Hugging Face folder"
        )
    config = _read_json(config_path)
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise JobError("bad-model", f"{tokenizer} does not exist; the folder needs a fast tokenizer")
    _read_json(tokenizer)
    files = _weight_files(folder)
    headers = {path.name: read_header(path) for path in files}
    tensors = [t for header in headers.values() for name, t in header.items() if name != "__metadata__"]
    weight_bytes = sum(t["data_offsets"][1] - t["data_offsets"][0] for t in tensors)
    identity = {path.name: [path.stat().st_size, headers[path.name]] for path in files}
    whole = weight_bytes <= FULL_DIGEST_LIMIT_BYTES
    for path in files if whole else []:
        check_numbers(path, headers[path.name])
    contents = {p.name: digest_file(p) for p in [config_path, folder / "tokenizer.json", *(files if whole else [])]}
    template = folder / "tokenizer_config.json"
    text = config.get("text_config", config)
    heads = text.get("num_attention_heads")
    return {
        "architecture": (config.get("architectures") or ["unknown"])[0],
        "parameters": sum(math.prod(t["shape"]) for t in tensors),
        "weight_bytes": weight_bytes,
        "head_dim": text.get("head_dim") or (text["hidden_size"] // heads if heads and "hidden_size" in text else None),
        "digest": digest_text(json.dumps([contents, None if whole else identity], sort_keys=True)),
        "digest_of": "files" if whole else "headers",
        "chat_template": template.is_file() and "chat_template" in template.read_text(encoding="utf-8"),
        "quantised": "quantization_config" in config,
        "dummy": not files,
    } | ({} if files else _size_of_shape(config, config_path))
