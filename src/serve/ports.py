"""Ports: a free one, and proof that only our server listens on it.

vLLM binds with SO_REUSEPORT, so two servers on one port start without an error and the kernel splits
the requests between them. A port is therefore claimed by a plain bind (which fails beside *any*
listener) and, once the server is up, the owners of all its listening sockets are looked up.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from adrbench.job import JobError
from adrbench.serve.guardian import descendants

LISTEN = "0A"


def claim_port(port: int | None) -> int:
    """``port`` when nobody listens on it, or a free one when it is None.

    Raises:
        JobError: ``port-taken``, naming the port.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without SO_REUSEADDR a port in TIME_WAIT would be refused after each restart.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as error:
            raise JobError(
                "port-taken", f"serve.port: {port} is in use ({error.strerror}); choose another or leave it out"
            ) from None
        claimed: int = probe.getsockname()[1]
    if listeners(claimed):
        raise JobError(
            "port-taken", f"serve.port: another process listens on {claimed}; choose another or leave it out"
        )
    return claimed


def listeners(port: int) -> set[int]:
    """Inodes of the TCP sockets that listen on ``port``, IPv4 and IPv6."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                found.add(int(columns[9]))
    return found


def socket_inodes(pids: list[int]) -> set[int]:
    """Inodes of all sockets that the processes hold open."""
    found = set()
    for pid in pids:
        try:
            links = list(os.scandir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        for link in links:
            # A descriptor may close while the folder is read: the others still count.
            with contextlib.suppress(OSError):
                target = os.readlink(link.path)
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def check_sole_listener(port: int, root: int) -> None:
    """Refuse a port on which a process outside the tree of ``root`` listens too.

    Raises:
        JobError: ``port-shared``: requests would be split between two servers without any error.
    """
    foreign = listeners(port) - socket_inodes([root, *descendants(root)])
    if foreign:
        raise JobError(
            "port-shared",
            f"port {port} is also served by another process (socket inodes {sorted(foreign)}): vLLM shares ports "
            "silently, so its answers would mix with ours; end the other server or set serve.port",
        )
