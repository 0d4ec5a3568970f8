"""Streaming reader of the Chrome traces that PyTorch's profiler (Kineto) writes, plain or gzip.

A trace of a serving window is gigabytes of JSON, so it is never loaded whole. The text is read in
chunks of whole events. In a chunk of Kineto's own layout one regular expression lifts the six fields
that matter out of every complete ("X") event at C speed; the chunk counts as read that way only if it
matched as many events as the chunk has, and otherwise its events are decoded one by one with the JSON
scanner. Both ways give the same spans.

Damage is never silent: :class:`Loss` counts what could not be read, and a trace without any event is
an error.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
# Compressed bytes handed to the decompressor at once: what a damaged stream takes with it.
PACKED_BYTES = 64 << 10
# An event that does not end within this many bytes is damage, not an event.
LARGEST_EVENT_BYTES = 64 << 20

Span = tuple[bytes, bytes, bytes, bytes, bytes, bytes]
"""Category, name (JSON-escaped), pid, tid, start and duration in us: the text as it stands in the file."""


class TraceError(ValueError):
    """A trace cannot be read at all; names the file and what to do."""


@dataclass
class Loss:
    """What a reader could not read."""

    truncated: bool = False
    damaged_stream: str = ""
    undecodable_events: int = 0
    out_of_order_spans: int = 0

    @property
    def any(self) -> bool:
        """Whether anything was lost."""
        return bool(self.truncated or self.damaged_stream or self.undecodable_events or self.out_of_order_spans)

    def as_dict(self) -> dict[str, Any]:
        """For the evidence."""
        return asdict(self)


def read_blocks(path: Path, loss: Loss) -> Iterator[bytes]:
    """Decompressed blocks of a gzip file (of several members, too) or of a plain file.

    Damage ends the stream and is recorded in ``loss``; what came before it is kept.
    """
    with open(path, "rb") as f:
        data = f.read(PACKED_BYTES)
        if data[:2] != b"\x1f\x8b":
            while data:
                yield data
                data = f.read(CHUNK_BYTES)
            return
        member = zlib.decompressobj(wbits=31)
        try:
            while data:
                yield member.decompress(data, CHUNK_BYTES)
                # Zero padding may follow a member; anything else is the next member.
                data = member.unconsumed_tail or member.unused_data.lstrip(b"\0") or f.read(PACKED_BYTES)
                if member.eof and data:
                    member = zlib.decompressobj(wbits=31)
            yield member.flush()
        except zlib.error as error:
            loss.damaged_stream = str(error)
            return
        loss.truncated = not member.eof


# A raw line end cannot stand inside a JSON string, so this separates Kineto's own events exactly. It does
# not separate two arrays, so a chunk that runs past the end of traceEvents cannot match its count.
_BOUNDARY = b"\n  },\n  {"
# One match an event: six fields of a complete one, six empty ones for any other phase. An unescaped
# "ph": cannot stand inside a string either; one in nested arguments makes the counts differ.
# Possessive repeats: nothing that they match could be given back, so the engine need not remember how to.
_FIELDS = re.compile(
    rb'"ph": "(?:X",\s++"cat": "([^"\\]*+)",\s++"name": "([^"\\]*+(?:\\.[^"\\]*+)*+)",'
    rb'\s++"pid": ([^,]*+),\s++"tid": ([^,]*+),\s++"ts": ([0-9.]++),\s++"dur": ([0-9.]++)|[^X])'
)
_ARRAY_START = re.compile(rb'\s*\[|.*?"traceEvents"\s*:\s*\[', re.DOTALL)
_BETWEEN = re.compile(r"[^\s,]|$")
_scan = json.JSONDecoder().raw_decode


def _span(event: dict[str, Any]) -> Span | None:
    """The span of a decoded event; None for metadata, counters, instants and flows."""
    if event["ph"] != "X":
        return None
    name = json.dumps(event.get("name", ""), ensure_ascii=False)[1:-1]
    return (
        str(event.get("cat", "")).encode(),
        name.encode(),
        json.dumps(event.get("pid")).encode(),
        json.dumps(event.get("tid")).encode(),
        repr(float(event["ts"])).encode(),
        repr(float(event.get("dur", 0.0))).encode(),
    )


@dataclass
class TraceReader:
    """Reads one trace file; after :meth:`batches` is exhausted the counters are those of the whole file."""

    path: Path
    events: int = 0
    raw_bytes: int = 0
    loss: Loss = field(default_factory=Loss)

    def batches(self) -> Iterator[list[Span]]:
        """Spans in the file's order, a chunk at a time.

        Raises:
            TraceError: empty file, no ``traceEvents``, or no event in it.
        """
        pending, started, ended = b"", False, False
        for block in read_blocks(self.path, self.loss):
            self.raw_bytes += len(block)
            if ended:
                continue
            pending += block
            if not started:
                found = _ARRAY_START.match(pending)
                if found is None:
                    self._refuse_large_head(pending)
                    continue
                started, pending = True, pending[found.end() :]
            if len(pending) < CHUNK_BYTES:
                continue
            spans, pending, ended = self._take(pending)
            if spans:
                yield spans
        if started and not ended:
            spans, ended = self._finish(pending)
            if spans:
                yield spans
        self.loss.truncated = self.loss.truncated or (started and not ended)
        self._refuse_empty(started)

    def _take(self, pending: bytes) -> tuple[list[Span], bytes, bool]:
        """Spans of the whole events in ``pending``, the rest, and whether the array has ended."""
        cut = pending.rfind(_BOUNDARY)
        if cut >= 0:
            head = pending[: cut + 4]
            spans = _FIELDS.findall(head)
            if len(spans) == head.count(_BOUNDARY) + 1:
                self.events += len(spans)
                return [span for span in spans if span[4]], pending[cut + 5 :], False
        return self._scan(pending)

    def _scan(self, pending: bytes) -> tuple[list[Span], bytes, bool]:
        """As :meth:`_take`, for any layout: events one by one by the JSON scanner."""
        # Neither a line end nor a brace can lie within a multi-byte character.
        cut = max(pending.rfind(b"\n"), pending.rfind(b"}")) + 1 or len(pending)
        text, tail = pending[:cut].decode("utf-8", errors="replace"), pending[cut:]
        spans: list[Span] = []
        position, end = 0, len(text)
        while True:
            found = _BETWEEN.search(text, position)
            position = found.start() if found else end
            if position >= end:
                return spans, tail, False
            if text[position] == "]":
                return spans, b"", True
            try:
                event, position = _scan(text, position)
            except ValueError:
                rest = text[position:].encode() + tail
                if len(rest) > LARGEST_EVENT_BYTES:
                    raise TraceError(
                        f"{self.path}: an event of more than {LARGEST_EVENT_BYTES >> 20} MiB or damaged JSON after "
                        f"event {self.events}; profile again"
                    ) from None
                return spans, self._skip_damage(rest), False
            self._keep(event, spans)

    def _keep(self, event: Any, spans: list[Span]) -> None:
        self.events += 1
        try:
            span = _span(event)
        except (AttributeError, KeyError, TypeError, ValueError):
            self.loss.undecodable_events += 1
            return
        if span is not None:
            spans.append(span)

    def _skip_damage(self, rest: bytes) -> bytes:
        """Drop an event that has a successor and still does not decode; it can never become whole."""
        boundary = rest.find(_BOUNDARY)
        if boundary < 0:
            return rest
        self.loss.undecodable_events += 1
        return rest[boundary + 5 :]

    def _finish(self, pending: bytes) -> tuple[list[Span], bool]:
        """Spans of the last chunk; what remains undecoded is a truncated event."""
        spans: list[Span] = []
        while True:
            before = len(pending)
            # A final newline lets the scanner look at all of it.
            more, pending, ended = self._scan(pending + b"\n")
            spans += more
            if ended or not pending.strip() or len(pending) >= before:
                break
        if not ended and pending.strip():
            self.loss.undecodable_events += 1
        return spans, ended

    def _refuse_large_head(self, pending: bytes) -> None:
        if len(pending) > LARGEST_EVENT_BYTES:
            raise TraceError(f"{self.path}: no traceEvents array in the first {len(pending) >> 20} MiB; not a trace")

    def _refuse_empty(self, started: bool) -> None:
        why = self.loss.damaged_stream or ("the gzip stream is truncated" if self.loss.truncated else "")
        if not self.raw_bytes:
            raise TraceError(f"{self.path}: nothing to read in it{f' ({why})' if why else ''}; profile again")
        if not started:
            raise TraceError(f"{self.path}: no traceEvents array{f' ({why})' if why else ''}; not a profiler trace")
        if not self.events:
            raise TraceError(f"{self.path}: a trace without events{f' ({why})' if why else ''}; profile again")


def is_complete(path: Path) -> bool:
    """Whether a gzip trace is finished: its stream ends and is undamaged. Reads it once, keeps nothing."""
    loss = Loss()
    size = sum(len(block) for block in read_blocks(path, loss))
    return size > 0 and not loss.any
