"""The simulated scheme in one engine process: its static values by layer, and what it makes of keys and values."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from adrbench.kernels import formats
from adrbench.serve.simulation import windows
from adrbench.serve.simulation.counts import QUANTISED, SEEN, Counts
from adrbench.serve.simulation.one_launch import OneLaunch, count_replaced, takes
from adrbench.serve.simulation.readers import Readers

if TYPE_CHECKING:
    from adrbench.kernels.formats.plane import Static

REPORT = "kv_simulation.json"


@dataclass
class Layer:
    """One attention layer: static values of its planes, and access to its cache once that exists."""

    number: int
    counted: bool
    key: Static
    value: Static
    both: Static
    cache: Any = None


@dataclass(frozen=True)
class _Work:
    """What a step replaces: by ranges of slots, or (None) by one launch; and how many tokens of keys that are."""

    step: windows.Step
    ranges: dict[str, windows.Range] | None
    count: torch.Tensor


@dataclass
class Simulation:
    """A scheme at work. ``settings`` is ``kv_simulation`` of the plugin's settings.

    Raises:
        ValueError: an unknown scheme or parameter, or calibration evidence that does not fit.
    """

    settings: dict[str, Any]
    folder: str | None = None
    compiled: bool = False
    layers: dict[str, Layer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scheme = formats.scheme(self.settings["scheme"]).with_parameters(self.settings.get("parameters") or {})
        self.scheme = scheme
        self.windowed = any(plane.sink or plane.depends_on_length for plane in (scheme.key, scheme.value))
        # One pass over keys and values together where no scale spans heads: half the launches.
        self.together = scheme.key == scheme.value and scheme.key.heads_are_independent
        self.readers = {which: Readers(getattr(scheme, which), self.compiled) for which in ("key", "value")}
        self._calibrated, digest = _calibration(self.settings)
        facts = {"scheme": scheme.name, "parameters": self.settings.get("parameters") or {}}
        facts |= {"scales": self.settings.get("scales"), "scales_sha256": digest}
        self.counts = Counts(str(Path(self.folder) / REPORT) if self.folder else None, facts)
        self.one_launch = OneLaunch(scheme) if self.compiled and self.windowed and takes(scheme) else None
        self._step: tuple[Any, bool, _Work] | None = None

    def layer(self, name: str, number: int, heads: int, dim: int, device: torch.device) -> Layer:
        """A layer's state, made when it is first asked for.

        Raises:
            ValueError: the scheme cannot store this head dimension, or has no calibration of this layer.
        """
        if name in self.layers:
            return self.layers[name]
        self.scheme.check_head_dim(dim)
        planes = {}
        for which in ("key", "value"):
            found = None if self._calibrated is None else self._calibrated.get(str(number), {}).get(which)
            if self._calibrated is not None and found is None:
                raise ValueError(f"kv_simulation.scales: {self.settings['scales']} has no layer {number}")
            try:
                planes[which] = getattr(self.scheme, which).static(found, device)
            except ValueError as error:
                raise ValueError(f"kv_simulation.scales: {self.scheme.name}, {which}: {error}") from None
            for part, tensor in planes[which].items():
                if tensor.dim() > 1 and part != "levels" and tensor.shape[0] != heads:
                    raise ValueError(
                        f"kv_simulation.scales: {tensor.shape[0]} heads of layer {number} are calibrated, "
                        f"this process has {heads}; tensor parallelism with calibrated scales is not simulated"
                    )
        both = _side_by_side(planes["key"], planes["value"], heads) if self.together else {}
        state = Layer(number, not self.layers, planes["key"], planes["value"], both)
        self.layers[name] = state
        self.counts.start(device)
        self.counts.facts["layers"] = len(self.layers)
        return state

    def release(self) -> None:
        """Keep no cache of the engine alive; the next step makes its views again."""
        self._step = None
        for state in self.layers.values():
            state.cache = None

    def rows(self, layer: Layer, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What a reader gets for rows ``[tokens, heads, dim]`` of a scheme without windows, in their dtype."""
        scheme = self.scheme
        if scheme.key.scope == scheme.value.scope == "none" and key.dtype == scheme.key.values.torch_dtype:
            return key, value
        if self.together:
            both = self.readers["key"].rows(torch.cat((key, value), 1), layer.both)
            return both[:, : key.shape[1]], both[:, key.shape[1] :]
        return self.readers["key"].rows(key, layer.key), self.readers["value"].rows(value, layer.value)

    def warm_up(self, layer: Layer, heads: int, dim: int, block: int, dtype: torch.dtype) -> None:
        """Compile what a captured graph will call, before it is captured."""
        if self.together and not self.windowed:
            self.readers["key"].warm_up(layer.both, 2 * heads, dim, block, dtype, False)
            self.counts.facts["readers"] = {"both": self.readers["key"].form}
            return
        if self.one_launch is not None:
            assert self.counts.tokens is not None
            problem = self.one_launch.trial(heads, dim, block, dtype, self.counts.tokens.device)
            if not problem:
                for readers in self.readers.values():
                    readers.plain("one launch")
                self.counts.facts["readers"] = {which: readers.form for which, readers in self.readers.items()}
                return
            self.one_launch, self.counts.facts["one_launch"] = None, problem
        for which, readers in self.readers.items():
            readers.warm_up(getattr(layer, which), heads, dim, block, dtype, self.windowed)
        self.counts.facts["readers"] = {which: readers.form for which, readers in self.readers.items()}

    def count(self, layer: Layer, slots: torch.Tensor, quantised: torch.Tensor | None = None) -> None:
        """Count a step's tokens, in one layer only; padding has negative slots. ``quantised`` None: all of them."""
        if layer.counted and self.counts.tokens is not None:
            seen = (slots >= 0).sum()
            self.counts.tokens[SEEN] += seen
            # A warm-up step has lengths but no slots: what leaves a window in it is no request's.
            self.counts.tokens[QUANTISED] += seen if quantised is None else quantised * (seen > 0)

    def replace(self, layer: Layer, metadata: Any, block_size: int, capturing: bool) -> torch.Tensor:
        """Replace in ``layer.cache`` what leaves a window in this step; how many tokens of keys that are."""
        work = self._work(layer.cache, metadata, block_size, capturing)
        if work.ranges is None:
            assert self.one_launch is not None
            self.one_launch.replace(layer.cache, work.step)
            return work.count
        for which, found in work.ranges.items():
            if found.block.numel():
                readers, static, valid = self.readers[which], getattr(layer, which), found.valid
                layer.cache.replace(
                    which, found, lambda cache, at, by, r=readers, v=valid, s=static: r.slots(cache, at, by, v, s)
                )
        return work.count

    def _work(self, cache: Any, metadata: Any, block_size: int, capturing: bool) -> _Work:
        """A step's work, made once for all layers."""
        if self._step is not None and self._step[0] is metadata and self._step[1] == capturing:
            return self._step[2]
        step = windows.Step.of(metadata)
        fixed = takes_fixed_size(metadata, step, capturing)
        if fixed and self.one_launch is not None and self.one_launch.fits(cache, step):
            work = _Work(step, None, count_replaced(self.scheme.key, step))
        else:
            make = windows.fixed_range if fixed else windows.exact_range
            ranges = {which: make(getattr(self.scheme, which), step, block_size) for which in ("key", "value")}
            work = _Work(step, ranges, ranges["key"].count)
        self._step = metadata, capturing, work
        return work


def takes_fixed_size(metadata: Any, step: windows.Step, capturing: bool) -> bool:
    """Whether a step's work must not depend on what the host would have to read back: in graphs, and in decode."""
    return capturing or bool(metadata.seq_lens.is_cuda and step.longest_query == 1)


def _calibration(settings: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Static values by layer number, and the digest of the file they came from."""
    path = settings.get("scales")
    if path is None:
        return None, None
    try:
        content = Path(path).read_bytes()
        layers = json.loads(content)["measured"]["schemes"][settings["scheme"]]["layers"]
    except OSError as error:
        raise ValueError(f"kv_simulation.scales: {path} cannot be read ({error}); run its calibration") from None
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"kv_simulation.scales: {path} holds no measured.schemes.{settings['scheme']}.layers ({error!r})"
        ) from None
    return layers, hashlib.sha256(content).hexdigest()


def _side_by_side(key: Static, value: Static, heads: int) -> Static:
    """Static values of keys and values as those of twice as many heads."""
    joined = {}
    for name in key:
        pair = [t if t.dim() == 2 else t.reshape(-1, 1).expand(heads, 1) for t in (key[name], value[name])]
        joined[name] = torch.cat(pair)
    return joined
