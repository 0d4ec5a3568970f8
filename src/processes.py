"""Processes as /proc tells of them. Standard library only.

A process gives itself a name of any bytes, so that nothing here is decoded strictly: one process of anybody whose name
is no UTF-8 would end whoever lists them. And a host may hide the processes of other users (``hidepid`` of proc(5)), so
that the chain of parents ends earlier than at 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def stat(pid: int | str) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from the third (the state) on, or None where the process is gone or hidden.

    Raises:
        OSError: it cannot be told, as where the host has no file left to open.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name, between parentheses, may hold blanks and parentheses itself.
    return text.rpartition(")")[2].split() or None


def ancestors(pid: int) -> Iterator[int]:
    """Parent, its parent and so on, nearest first, as far as they are seen; process 1 is not among them."""
    while (fields := stat(pid)) and (pid := int(fields[1])) > 1:
        yield pid
