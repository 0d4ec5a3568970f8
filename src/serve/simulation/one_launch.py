"""What leaves 16-bit windows in a decode step, replaced by one launch a layer, where the scheme has integers in groups.

Groups of keys along tokens (KIVI) leave their window many tokens at a time, but seldom: a fixed number of slots is then
work for tokens of which, in a step of 32 requests, all but a quarter of a request's are masked. The kernel
(``window_kernel.py``) does what the lengths say. It must give what ``Plane.read_back`` gives, bit for bit: an engine
tries it before it serves, and takes the compiled readers where it does not.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from adrbench.kernels.formats.plane import SCALE_FLOOR, Plane
from adrbench.serve.simulation.caches import PlainCache
from adrbench.serve.simulation.windows import Step, quantised_end

if TYPE_CHECKING:
    from adrbench.kernels.formats.scheme import Scheme

MIN_DIM = 32
"""With 32 rows of fewer numbers several threads would hold the same one, and read it while another stores it."""


def _takes_plane(plane: Plane) -> bool:
    """Whether the kernel's arithmetic is this plane's: integers in groups, asymmetric, scales in fp16."""
    return (
        type(plane) is Plane
        and plane.scope in ("channel", "row_group")
        and plane.zero
        and plane.scale_bytes == 2
        and not plane.values.is_float
        and 2 * plane.maximum + 1 <= 255
        and _power_of_two(plane.group)
        and (plane.scope == "row_group" or plane.group >= 16)
    )


def _power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def takes(scheme: Scheme) -> bool:
    """Whether both planes of a scheme have the kernel's arithmetic."""
    return _takes_plane(scheme.key) and _takes_plane(scheme.value)


class OneLaunch:
    """The kernel's launcher for one scheme."""

    def __init__(self, scheme: Scheme) -> None:
        self.planes = {"K": scheme.key, "V": scheme.value}
        self.fixed: dict[str, Any] = {}
        for letter, plane in self.planes.items():
            self.fixed |= {
                f"{letter}_SINK": plane.sink,
                f"{letter}_RESIDUAL": plane.residual,
                f"{letter}_STEP": plane.window_step,
                f"{letter}_GROUP": plane.group,
                f"{letter}_BY_CHANNEL": plane.scope == "channel",
                f"{letter}_STEPS": 2 * plane.maximum + 1,
            }

    def fits(self, cache: Any, step: Step) -> bool:
        """Whether the kernel finds its way in a cache: rows in one piece, a power of two long."""
        if type(cache) is not PlainCache or step.block_table.stride(1) != 1:
            return False
        return all(
            plane.stride(3) == 1 and _power_of_two(plane.shape[3]) and plane.shape[3] >= MIN_DIM
            for plane in cache.planes.values()
        )

    def replace(self, cache: PlainCache, step: Step) -> None:
        """Replace in a cache of planes ``[blocks, block, heads, dim]`` what leaves a window in this step."""
        from adrbench.serve.simulation.window_kernel import replace_windows_kernel

        key, value = cache.planes["key"], cache.planes["value"]
        requests, columns = step.block_table.shape
        if not requests:
            return
        replace_windows_kernel[(requests, key.shape[2], 2)](
            key, value, step.block_table, step.starts, step.new, step.block_table.stride(0), columns,
            cache.block_size,
            *key.stride()[:3], *value.stride()[:3],
            D=key.shape[3], SPAN_FLOOR=SCALE_FLOOR, **self.fixed, num_warps=4,
        )  # fmt: skip

    def trial(self, heads: int, dim: int, block: int, dtype: torch.dtype, device: torch.device) -> str:
        """Try the kernel on a small cache, and so compile it. Why it cannot be taken, or nothing."""
        try:
            cache, step = self.trial_step(heads, dim, block, dtype, device)
            if not self.fits(cache, step):
                return f"the kernel does not take heads of {dim}"
            before = {which: plane.cpu().clone() for which, plane in cache.planes.items()}
            self.replace(cache, step)
            for plane, which in zip(self.planes.values(), before, strict=True):
                differing = self._differing(plane, before[which], cache.planes[which].cpu(), step)
                if differing:
                    return f"{differing} {which}s differ from the reference"
        except Exception as error:  # the compiler's, Triton's and the driver's have nothing in common
            return f"{type(error).__name__}: {str(error)[:300]}"
        return ""

    @staticmethod
    def _differing(plane: Plane, before: torch.Tensor, after: torch.Tensor, step: Step) -> int:
        """Numbers of a plane that are not what the reference makes of what was there."""
        flat = before.flatten(0, 1).clone()
        for old, new, row in zip(step.old.tolist(), step.new.tolist(), step.block_table.cpu(), strict=True):
            start, end = max(plane.sink, plane.quantised_end(old)), plane.quantised_end(new)
            if end <= start:
                continue
            at = torch.arange(start, end)
            slots = row[at // before.shape[1]].long() * before.shape[1] + at % before.shape[1]
            flat[slots] = plane.read_back(flat[slots]).to(flat.dtype)
        return int((~torch.isclose(flat, after.flatten(0, 1), rtol=0, atol=0, equal_nan=True)).sum())

    def trial_lengths(self) -> list[tuple[int, int]]:
        """Tokens of requests before and after a step: with windows just short of, at and past what completes them."""
        found = [(5, 5)]
        for plane in self.planes.values():
            whole, step = plane.sink + plane.residual + plane.window_step, plane.window_step
            found += [(0, whole - 1), (whole - 1, whole), (whole, whole + 1), (whole + step - 1, whole + step)]
            found += [(0, whole + 2 * step + 40)]
        return found

    def trial_step(
        self, heads: int, dim: int, block: int, dtype: torch.dtype, device: torch.device
    ) -> tuple[PlainCache, Step]:
        """A cache of random rows, and a step of requests of ``trial_lengths`` in it."""
        lengths = self.trial_lengths()
        columns = -(-max(new for _, new in lengths) // block)
        blocks = columns * len(lengths)
        dice = torch.Generator().manual_seed(0)
        rows = torch.randn(blocks + 1, 2, block, heads, dim, generator=dice).to(device, dtype)
        table = torch.randperm(blocks, generator=dice).view(len(lengths), columns) + 1
        starts = torch.tensor([0, *(new - old for old, new in lengths)]).cumsum(0)
        metadata = SimpleNamespace(
            query_start_loc=starts.int().to(device),
            seq_lens=torch.tensor([new for _, new in lengths], dtype=torch.int32, device=device),
            block_table=table.int().to(device),
            max_query_len=max(new - old for old, new in lengths),
        )
        return PlainCache(dict(zip(("key", "value"), rows.unbind(1), strict=True))), Step.of(metadata)


def count_replaced(plane: Plane, step: Step) -> torch.Tensor:
    """How many tokens leave a plane's window in a step."""
    start = quantised_end(plane, step.old).clamp(min=plane.sink)
    return (quantised_end(plane, step.new) - start).clamp(min=0).sum()
