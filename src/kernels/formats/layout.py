"""Where a scheme's bytes lie in a paged cache: the one description that kernels, launchers, the
vLLM backend and the memory arithmetic share.

One page holds ``page_size`` tokens of every KV head of one layer and is one contiguous run of bytes::

    | keys | values | key scales | value scales |      each plane 16-byte aligned

* keys ``[head, token, row]``: a token's row of one head is contiguous, rows of one head follow each
  other, so a tile of a head is one contiguous read. Rows whose codes do not fill 16 bytes are padded
  (2 and 3 bit formats at some head dimensions).
* values of at most 8 bits ``[head, token / 32, row, 32]``: transposed in blocks of 32 tokens. The
  second matrix product of attention sums over tokens, and the matrix units want the summed index
  contiguous in 8-bit operands. A block row is one 32-byte memory sector: with blocks of 16 tokens,
  neighbouring threads would each fetch half of one (measured: every sector twice). Where a page
  ends in half a block, that block is 16 tokens wide. 16-bit values keep the key layout.
* scales of per-token schemes ``[head, token]`` fp32, in planes of their own: a scale stored inside
  its row (as vLLM does) breaks the rows' 16-byte alignment, and the compiler falls back to
  byte loads. The plane also holds what else a scheme stores beside its codes: zero points, outliers.
* scales of grouped schemes ``[head, group, token]``, one 32-bit word each: fp16 scale in the low half, fp16
  offset in the high one, ``value = code * scale + offset`` with codes -8..7. Four bytes are the least that
  is copied to shared memory asynchronously.
* scales of windowed schemes (KIVI): fp16 scales and zero points in planes of their own, those of low and high nibbles
  as a register of codes needs them (``pair_order``). Their newest tokens lie outside of the pages, in a ``Ring``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from adrbench.kernels.formats.scheme import Plane, Scheme

if TYPE_CHECKING:
    import torch

BLOCK_TOKENS = 32
"""Tokens per transposed block of values."""

PAGE_MULTIPLE = 16
"""Page sizes are multiples of this: half a block, and 16 bytes of a block row."""

ALIGNMENT_BYTES = 16


def pair_order(position: torch.Tensor, high: int) -> torch.Tensor:
    """Where the fp16 scale of ``position`` lies in a plane of scale pairs, in fp16 numbers.

    A plane holds, for every four neighbouring positions, four words: two for the low nibbles' scales, two for the
    high ones' (``high`` 1), each of two scales that a register of codes needs together: 0 with 2, 1 with 3.
    """
    return position // 4 * 8 + high * 4 + position % 2 * 2 + position % 4 // 2


def _aligned(size: float) -> int:
    return -(-math.ceil(size) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True)
class PageLayout:
    """The layout of one page.

    Raises:
        ValueError: page size not a multiple of 16, or a head dimension that the scheme cannot store.
    """

    scheme: Scheme
    kv_heads: int
    head_dim: int
    page_size: int

    def __post_init__(self) -> None:
        if self.page_size < PAGE_MULTIPLE or self.page_size % PAGE_MULTIPLE:
            raise ValueError(f"page size {self.page_size}: use a multiple of {PAGE_MULTIPLE} tokens")
        self.scheme.check_head_dim(self.head_dim)

    @property
    def windowed(self) -> bool:
        """Whether keys are quantised per channel and the newest tokens kept in 16 bit elsewhere."""
        return self.scheme.key.scope == "channel"

    @property
    def values_transposed(self) -> bool:
        return self.scheme.value.values.bits <= 8

    def value_offsets(self, token: torch.Tensor) -> torch.Tensor:
        """Where the values of tokens lie: offsets ``[tokens, row]`` into one head's plane of a page.

        ``token`` is the position in the page, ``[tokens]``.
        """
        import torch

        row = torch.arange(self.scheme.value.code_bytes(self.head_dim), device=token.device)
        if not self.values_transposed:
            row = torch.arange(self.head_dim, device=token.device)
            return token[:, None] * self.head_dim + row
        start = token // BLOCK_TOKENS * BLOCK_TOKENS
        width = (self.page_size - start).clamp(max=BLOCK_TOKENS)
        return (start * len(row) + token - start)[:, None] + row * width[:, None]

    @property
    def key_row_bytes(self) -> int:
        """Bytes from one key row to the next."""
        return _aligned(self.scheme.key.code_bytes(self.head_dim))

    def _side_bytes(self, plane: Plane) -> int:
        """Bytes beside the codes of one plane: scales, zero points, outliers."""
        row = plane.row_bytes(self.head_dim, self.kv_heads) - plane.code_bytes(self.head_dim)
        return _aligned(round(self.kv_heads * self.page_size * row, 6))

    @property
    def value_offset(self) -> int:
        return self.kv_heads * self.page_size * self.key_row_bytes

    @property
    def key_scale_offset(self) -> int:
        return self.value_offset + self.kv_heads * self.page_size * self.scheme.value.code_bytes(self.head_dim)

    @property
    def value_scale_offset(self) -> int:
        return self.key_scale_offset + self._side_bytes(self.scheme.key)

    @property
    def page_bytes(self) -> int:
        return self.value_scale_offset + self._side_bytes(self.scheme.value)

    @property
    def window_units(self) -> int:
        """Blocks ``[32, head_dim]`` in 16 bit of the newest keys and values of a sequence; 0 without a window."""
        return 2 * self.kv_heads * self.scheme.value.residual // BLOCK_TOKENS if self.windowed else 0

    @property
    def page_units(self) -> int:
        """How many of those blocks a page of the cache holds."""
        return self.page_bytes // (BLOCK_TOKENS * self.head_dim * 2)

    @property
    def window_pages(self) -> int:
        """Pages that hold a sequence's newest tokens in 16 bit; 0 without a window.

        Raises:
            ValueError: pages too small for one block.
        """
        if self.windowed and self.page_units == 0:
            raise ValueError(
                f"{self.scheme.name}: a page of {self.page_size} tokens and {self.kv_heads} KV heads, "
                f"{self.page_bytes} bytes, is smaller than {BLOCK_TOKENS} rows of 16 bit; use a larger page"
            )
        return -(-self.window_units // self.page_units) if self.windowed else 0


@dataclass(frozen=True)
class PagedCache:
    """A buffer of pages with its planes as views, each made once. ``buffer``: uint8 ``[pages, page_bytes]``."""

    layout: PageLayout
    buffer: torch.Tensor

    @classmethod
    def allocate(cls, layout: PageLayout, pages: int, device: torch.device | str, fill: int = 0xA5) -> PagedCache:
        """A cache filled with a poison byte, so that an unwritten slot is noticed."""
        import torch

        return cls(layout, torch.full((pages, layout.page_bytes), fill, dtype=torch.uint8, device=device))

    def _plane(self, offset: int, size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        return self.buffer[:, offset : offset + size].view(dtype).unflatten(1, shape)

    @property
    def pages(self) -> int:
        return int(self.buffer.shape[0])

    @cached_property
    def key(self) -> torch.Tensor:
        """``[pages, kv_heads, page_size, row]`` in the codes' dtype (packed formats: uint8)."""
        lay, plane = self.layout, self.layout.scheme.key
        size, dtype = lay.value_offset, plane.values.torch_dtype
        return self._plane(0, size, dtype, (lay.kv_heads, lay.page_size, -1))

    @cached_property
    def value(self) -> torch.Tensor:
        """``[pages, kv_heads, page_size * row]``; ``PageLayout.value_offsets`` says where a token lies."""
        lay, plane = self.layout, self.layout.scheme.value
        size, dtype = lay.key_scale_offset - lay.value_offset, plane.values.torch_dtype
        return self._plane(lay.value_offset, size, dtype, (lay.kv_heads, -1))

    def _scale(self, offset: int, plane: Plane) -> torch.Tensor | None:
        import torch

        if self.layout.windowed:
            words = self.layout.head_dim // 2
            inner = (self.layout.page_size // 32, 2, words)
            if plane.scope == "row_group":
                inner = (self.layout.head_dim // (2 * plane.group), 2, self.layout.page_size)
            size = 4 * self.layout.kv_heads * math.prod(inner)
            return self._plane(offset, size, torch.int32, (self.layout.kv_heads, *inner))
        if plane.scope == "row_group":
            groups = self.layout.head_dim // plane.group
            size = self.layout.kv_heads * groups * self.layout.page_size * 2 * plane.scale_bytes
            return self._plane(offset, size, torch.int32, (self.layout.kv_heads, groups, self.layout.page_size))
        if plane.scope != "token_head" or plane.zero:
            return None
        size = self.layout.kv_heads * self.layout.page_size * plane.scale_bytes
        return self._plane(offset, size, torch.float32, (self.layout.kv_heads, self.layout.page_size))

    @cached_property
    def key_scale(self) -> torch.Tensor | None:
        """``[pages, kv_heads, page_size]`` fp32 for per-token schemes, ``[pages, kv_heads, groups, page_size]``
        int32 words for grouped ones, else None.

        Windowed ones: words of two scales, then of two zero points, in ``pair_order``: keys ``[pages, kv_heads,
        page_size / 32, 2, head_dim / 2]``, values ``[pages, kv_heads, head_dim / 64, 2, page_size]``.
        """
        return self._scale(self.layout.key_scale_offset, self.layout.scheme.key)

    @cached_property
    def value_scale(self) -> torch.Tensor | None:
        return self._scale(self.layout.value_scale_offset, self.layout.scheme.value)


@dataclass(frozen=True)
class Newest:
    """Where the kernels find the 16-bit rows of a batch, in blocks of 32 tokens of one head, ``[32, dim]``.

    Block b of a head, ``(t % window) // 32``, has the number ``head * window / 32 + b``, that of values ``first_value``
    more. ``table``: int32 ``[sequences, n]``, the pages of each sequence, each of ``units`` blocks; ``stride``:
    elements from one page to the next.
    """

    key: torch.Tensor
    value: torch.Tensor
    table: torch.Tensor
    stride: int
    units: int
    first_value: int


def _table_of(rows: torch.Tensor, sequences: int, width: int) -> torch.Tensor:
    import torch

    shape = (sequences,) if width == 1 and rows.ndim == 1 else (sequences, width)
    if rows.shape != shape or rows.dtype != torch.int32 or rows.stride(-1) != 1:
        raise ValueError(f"rows must be int32 {list(shape)}, got {rows.dtype} {tuple(rows.shape)}")
    return rows.view(sequences, 1) if rows.ndim == 1 else rows


@dataclass(frozen=True)
class Ring:
    """The newest tokens of windowed schemes in 16 bit: ``[rows, kv_heads, window, dim]`` each, one row for a sequence.

    Token t of a sequence lies at ``t % window``.
    """

    key: torch.Tensor
    value: torch.Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.key.dtype

    def newest(self, layout: PageLayout, rows: torch.Tensor, sequences: int) -> Newest:
        """Of a batch whose sequence i has row ``rows[i]``, int32.

        Raises:
            ValueError: rows or a ring that do not fit.
        """
        shape = (layout.kv_heads, layout.scheme.value.residual, layout.head_dim)
        if tuple(self.key.shape[1:]) != shape or not (self.key.is_contiguous() and self.value.is_contiguous()):
            raise ValueError(f"the ring is {tuple(self.key.shape)}, the cache holds {shape[0]} heads of {shape[2]}")
        units = layout.window_units // 2
        return Newest(self.key, self.value, _table_of(rows, sequences, 1), self.key.stride(0), units, 0)

    @classmethod
    def allocate(
        cls, layout: PageLayout, rows: int, dtype: torch.dtype, device: torch.device | str, fill: float = float("nan")
    ) -> Ring:
        """A ring filled with a number that is noticed.

        Raises:
            ValueError: the scheme has no window.
        """
        import torch

        if not layout.windowed:
            raise ValueError(f"{layout.scheme.name} keeps no tokens in 16 bit")
        shape = (rows, layout.kv_heads, layout.scheme.value.residual, layout.head_dim)
        key, value = (torch.full(shape, fill, dtype=dtype, device=device) for _ in range(2))
        return cls(key, value)


@dataclass(frozen=True)
class RingPages:
    """The same rows in ordinary pages of the cache's own buffer: ``layout.window_pages`` pages of a sequence."""

    cache: PagedCache
    dtype: torch.dtype

    @cached_property
    def rows(self) -> torch.Tensor:
        """``[pages, elements]`` of the buffer in 16 bit."""
        return self.cache.buffer.view(self.dtype)

    def newest(self, layout: PageLayout, rows: torch.Tensor, sequences: int) -> Newest:
        """Of a batch whose sequence i has the pages ``rows[i]``, int32 ``[sequences, window_pages]``."""
        table = _table_of(rows, sequences, layout.window_pages)
        return Newest(self.rows, self.rows, table, self.rows.stride(0), layout.page_units, layout.window_units // 2)
