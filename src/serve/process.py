"""Start a command under a guardian, and stop it: the only way in which a job starts anything long-lived."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from adrbench.device import lease
from adrbench.job import JobError
from adrbench.paths import PYTHONPATH
from adrbench.redact import is_secret_name, redact
from adrbench.scratch import Scratch
from adrbench.serve.guardian import end_orphans, end_tree

# Variables that change what torch, OpenMP or an attention library computes or how.
HIDDEN_SETTINGS = ("TORCHDYNAMO_", "TORCH_COMPILE", "OMP_", "KMP_", "FLASH_ATTENTION_", "AITER_", "TRITON_INTERPRET")


def job_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment for a child: without hidden vLLM settings or proxies, with our code.

    A ``VLLM_*`` variable exported in somebody's shell would change an arm without a trace in its
    evidence, so only declared ones (``extra``) reach the child. Tokens and passwords of the shell reach no
    child at all. ``PYTHONPATH`` gains the project.
    """
    dropped = ("VLLM_", "OPENAI_", "ADRBENCH_", "HF_TOKEN", "HUGGING_FACE", *HIDDEN_SETTINGS)
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(dropped) and not key.lower().endswith("_proxy") and not is_secret_name(key)
    }
    inherited = environment.get("PYTHONPATH", "")
    parts = [str(PYTHONPATH)] + [part for part in inherited.split(":") if part and part != str(PYTHONPATH)]
    environment["PYTHONPATH"] = ":".join(parts)
    environment.update(extra or {})
    return environment


ERROR_LINE = re.compile(r"\b[A-Z]\w*(?:Error|Exception): .+|^.*\berror: .+", re.MULTILINE)


# What libraries say while the interpreter ends, after the cause: the tail of a log would be nothing else.
LAST_WORDS = re.compile(
    r"^nanobind: |^ - leaked |^ - \.\.\. skipped|nanobind\.readthedocs|resource_tracker|warnings\.warn\("
)


def tail(log: Path, lines: int = 6) -> str:
    """The errors a log names, then its last lines: the cause stands far above the end of a vLLM traceback."""
    try:
        text = log.read_bytes()[-262144:].decode(errors="replace")
    except OSError:
        return "(no log)"
    found = [line for line in text.splitlines() if not LAST_WORDS.search(line)]
    matches = (ERROR_LINE.search(line) for line in found if " WARNING " not in line)
    named = dict.fromkeys(match.group(0)[:400] for match in matches if match)
    return redact("\n".join([*list(named)[:4], *(line[:300] for line in found[-lines:])]))


# Guardians that this process has started and not yet stopped.
_living: set[int] = set()


class Guarded:
    """A command running under a guardian; ``stop`` returns once nothing of it is left.

    The guardian removes the scratch folder in which vLLM keeps its sockets; ``stop`` does where the guardian was
    killed, and the next start of any guarded command where this process was killed as well.
    """

    def __init__(
        self, argv: list[str], log: Path, environment: dict[str, str], grace_s: float = 15.0, cwd: Path | None = None
    ):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.grace_s = grace_s
        self._scratch = scratch = Scratch()
        guardian = [sys.executable, "-m", "adrbench.serve.guardian", "--grace", str(grace_s)]
        guardian += ["--scratch", str(scratch.path), "--lock", str(scratch.descriptor), "--", *argv]
        # A place, not a setting: it differs at every start and is in no evidence.
        environment = environment | {"PYTHONUNBUFFERED": "1"} | scratch.variables(environment)
        try:
            with open(log, "ab") as stream:
                self._process = subprocess.Popen(
                    guardian,
                    stdin=subprocess.PIPE,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=cwd,
                    start_new_session=True,
                    # The guardian keeps the job's devices until the last process of the command has ended.
                    pass_fds=[*lease.held, scratch.descriptor],
                )
        except BaseException:
            scratch.remove()
            raise
        _living.add(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id of the guardian: every process of the command is its descendant."""
        return self._process.pid

    def poll(self) -> int | None:
        """The command's exit code, or None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the command to end by itself.

        Raises:
            subprocess.TimeoutExpired: it is still running after ``timeout_s``.
        """
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """Close the pipe, which makes the guardian end the whole tree, and wait for it."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            code = self._process.wait(self.grace_s + 10)
        except subprocess.TimeoutExpired:
            end_tree(self._process.pid, None, 0)
            self._process.kill()
            code = self._process.wait()
        _living.discard(self._process.pid)
        if code < 0:
            end_orphans(_living)
        self._scratch.remove()
        return code

    def tail(self, lines: int = 6) -> str:
        """What the command's log says, in short."""
        return tail(self.log, lines)


def run_guarded(
    argv: list[str],
    log: Path,
    environment: dict[str, str],
    timeout_s: float,
    alive: list[Guarded] | None = None,
    cwd: Path | None = None,
) -> int:
    """Run one client command to its end under a guardian and return its exit code.

    Args:
        alive: servers that must stay up meanwhile; the client is ended when one of them dies.

    Raises:
        JobError: ``client-timeout`` after ``timeout_s`` seconds, ``server-died`` when a server ended.
    """
    client = Guarded(argv, log, environment, grace_s=3.0, cwd=cwd)
    deadline = time.monotonic() + timeout_s
    try:
        while (code := client.poll()) is None:
            for server in alive or []:
                if server.poll() is not None:
                    raise JobError(
                        "server-died",
                        f"the server exited with code {server.poll()} while {Path(argv[0]).name} was running; "
                        f"its log {server.log} ends:\n{server.tail()}",
                    )
            if time.monotonic() > deadline:
                raise JobError(
                    "client-timeout",
                    f"{' '.join(argv[:4])} ... was still running after {timeout_s:.0f} s; its log {log} says what it "
                    "waited for; if it was merely slow, raise serve.client_timeout_s or eval.timeout_s of "
                    "the platform's file",
                )
            time.sleep(0.1)
        return code
    finally:
        client.stop()
