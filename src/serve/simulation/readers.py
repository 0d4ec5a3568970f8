"""What a reader of the cache gets, as the two functions that an engine calls in every step.

Plain torch by default. Where the device has a compiler, what decode steps call is compiled into few kernels: a
decode step's rows are small, and launching a dozen kernels for each layer would cost more than they do.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from adrbench.kernels.formats.plane import Plane

if TYPE_CHECKING:
    from adrbench.kernels.formats.plane import Static

OPTIONS = {"emulate_precision_casts": True}
"""Products and sums are rounded apart, as plain torch does it (no fused multiply-add). A cast to 16 bit and back it
does not keep in every version of torch: ``kernels/formats/rounding.py``.
"""

WARM_UP_TOKENS = (8, 24, 1)
"""Two sizes make the number of tokens symbolic, and one token is a case of its own to the compiler."""


def read_rows(plane: Plane, x: torch.Tensor, static: Static) -> torch.Tensor:
    """What a reader gets for rows ``[tokens, heads, dim]``, in their dtype."""
    return plane.read_back(x, static).to(x.dtype)


def read_slots(
    plane: Plane, cache: torch.Tensor, block: torch.Tensor, offset: torch.Tensor, valid: Any, static: Static
) -> torch.Tensor:
    """The same for rows of a cache ``[blocks, block, heads, dim]``; rows that are not ``valid`` stay as they are."""
    rows = cache[block, offset]
    read = plane.read_back(rows, static)
    if valid is not None:
        read = torch.where(valid[:, None, None], read, rows.float())
    return read.to(cache.dtype)


def _compiled(function: Any) -> Any:
    """``function``, compiled under a code object of its own.

    The compiler keeps what it compiled, and how often, by code object: closures that share one would together
    reach the limit beyond which it runs everything uncompiled.
    """
    code = function.__code__.replace()
    own = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    return torch.compile(own, options=OPTIONS)


class Readers:
    """Both functions for one plane.

    ``form``, for the report: ``compiled``, ``plain`` with the reason, or ``one launch``: decode steps do not come here
    (``one_launch.py``), prompts are read by plain torch.
    """

    def __init__(self, plane: Plane, compiled: bool) -> None:
        def rows(x: torch.Tensor, static: Static) -> torch.Tensor:
            return read_rows(plane, x, static)

        def slots(cache: torch.Tensor, block: Any, offset: Any, valid: Any, static: Static) -> torch.Tensor:
            return read_slots(plane, cache, block, offset, valid, static)

        self.plane, self.compiled = plane, compiled
        self.form = "compiled" if compiled else "plain"
        self._rows, self._slots = rows, slots
        self.rows: Any = _compiled(rows) if compiled else rows
        self._slots_compiled: Any = _compiled(slots) if compiled else slots

    def slots(self, cache: torch.Tensor, block: Any, offset: Any, valid: Any, static: Static) -> torch.Tensor:
        """``read_slots``; compiled for the masked form that decode steps use."""
        run: Any = self._slots if valid is None else self._slots_compiled
        found: torch.Tensor = run(cache, block, offset, valid, static)
        return found

    def warm_up(self, static: Static, heads: int, dim: int, block: int, dtype: torch.dtype, windowed: bool) -> None:
        """Compile before a graph is captured, under the mode in which steps run: the compiler asks for it, too.

        A number format that the device's compiler cannot cast to (e4m3fnuz on NVIDIA) is read by plain torch, which
        gives the same values in more launches.
        """
        if not self.compiled:
            return
        try:
            with torch.inference_mode():
                self._compile(static, heads, dim, block, dtype, windowed)
        except Exception as error:  # the compiler's, Triton's and the driver's have nothing in common
            self.plain(f"plain: {type(error).__name__}: {str(error)[:300]}")

    def plain(self, form: str) -> None:
        """Compile nothing from now on; ``form`` says why."""
        self.compiled, self.form = False, form
        self.rows, self._slots_compiled = self._rows, self._slots

    def _compile(self, static: Static, heads: int, dim: int, block: int, dtype: torch.dtype, windowed: bool) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        for tokens in WARM_UP_TOKENS:
            if not windowed:
                self.rows(torch.zeros(tokens, heads, dim, dtype=dtype, device=device), static)
                continue
            count = tokens * self.plane.window_step
            cache = torch.zeros(tokens + 1, block, heads, dim, dtype=dtype, device=device)
            where = torch.zeros(count, dtype=torch.int64, device=device)
            # Two tensors: the compiler would compile for one that is both, and again for those of a step.
            self.slots(cache, where, where.clone(), where == 0, static)
