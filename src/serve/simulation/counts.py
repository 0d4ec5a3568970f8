"""What the simulation did, written where the job reads it back: proof from inside the engine process."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from multiprocessing import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

FLUSH_INTERVAL_S = 0.5
SEEN, QUANTISED = 0, 1


class Counts:
    """Tokens that reached the cache and tokens that were quantised, counted on the device, in one layer.

    A captured graph replays the addition without Python, so the counter is a tensor. It is read back by a
    hook that runs on the host before each step, until a token was seen; from then on, when no graph is
    captured any more, by a thread, once every ``FLUSH_INTERVAL_S``.
    """

    def __init__(self, path: str | None, facts: dict[str, Any]) -> None:
        self.path = Path(path) if path else None
        self.facts = facts
        self.tokens: torch.Tensor | None = None
        self._written: tuple[int, int] | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # A spawned process leaves by os._exit: atexit does not run there, multiprocessing's finalizers do
        # (unless a signal ends it, as a server's engine often is).
        util.Finalize(None, self.flush, exitpriority=10)

    def start(self, device: torch.device) -> None:
        """Make the counter, before any graph is captured."""
        import torch

        if self.tokens is None:
            self.tokens = torch.zeros(2, dtype=torch.int64, device=device)

    def step(self) -> None:
        """Host hook of a step: until a token was seen, look; then leave it to the thread."""
        if self._thread is not None or self.path is None:
            return
        self.flush()
        if self._written is not None and self._written[SEEN]:
            self._thread = threading.Thread(target=self._repeat, name="kv-simulation-counts", daemon=True)
            self._thread.start()

    def _repeat(self) -> None:
        while True:
            time.sleep(FLUSH_INTERVAL_S)
            self.flush()

    def read(self) -> tuple[int, int]:
        """(tokens seen, tokens quantised) so far."""
        if self.tokens is None:
            return 0, 0
        seen, quantised = self.tokens.tolist()
        return int(seen), int(quantised)

    def flush(self) -> None:
        """Write the report, atomically, when a count changed.

        What cannot be written (a full disk) does not end the engine: the report with the earlier counts goes, and the
        next flush tries again. A job that finds none at the end refuses the measurement.

        Raises:
            OSError: nor can the earlier report be removed.
        """
        if self.path is None or not self.facts.get("layers"):
            return
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        assert self.path is not None
        seen, quantised = self.read()
        if (seen, quantised) == self._written:
            return
        name = multiprocessing.current_process().name
        process = {"process": name, "engine": name != "MainProcess", "pid": os.getpid()}
        document = self.facts | process | {"tokens_seen": seen, "tokens_quantised": quantised}
        partial = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            partial.write_text(json.dumps(document, indent=1))
            partial.replace(self.path)
        except OSError:
            self._written = None
            for left in (partial, self.path):
                left.unlink(missing_ok=True)
            return
        self._written = seen, quantised
