"""The command line in processes that start at once: a server that has imported everything forks them.

Every process leads a session of its own, so that all it started can be found, and writes what it says to files that can
be read while it works.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# Also what a run loads late: torch its compiler when it makes its first optimiser, though nothing is compiled.
_PRELOADED = [
    "torch",
    "torch._dynamo",
    "gnnflow.cli.commands",
    "gnnflow.stages.pipeline",
    "gnnflow.report.render",
    "jinja2",
    "matplotlib.style",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
]
_POLL_SECONDS = 0.001
_END_SECONDS = 300  # after which it hangs; the first in a process waits for what is preloaded


@dataclass
class Running:
    """A command line at work."""

    process: Any
    out: Path
    err: Path

    @property
    def said(self) -> str:
        """What it wrote to stderr so far."""
        return self.err.read_text(errors="replace") if self.err.exists() else ""

    @property
    def alive(self) -> bool:
        return bool(self.process.is_alive())

    def wait_for_lines(self, number: int) -> bool:
        """Wait until it has said so many lines; False where it ended before."""
        while self.alive:
            if self.said.count("\n") >= number:
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def wait_for(self, words: str) -> bool:
        """Wait until it has said these words; False where it ended before."""
        while self.alive and words not in self.said:
            time.sleep(_POLL_SECONDS)
        return words in self.said

    def wait(self) -> int:
        """Wait for its end and return its exit code, negative for a signal."""
        self.process.join(_END_SECONDS)
        assert not self.alive, f"hangs:\n{self.said}"
        return int(self.process.exitcode)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its process, then to all that it started."""
        os.kill(self.process.pid, number)
        for process in _of_session(self.process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def orphans(self) -> list[psutil.Process]:
        """Return what it started and left running, once that had a moment to notice."""
        deadline = time.monotonic() + 20
        while (left := _of_session(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left


def _of_session(session: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def start(arguments: list[str], folder: Path, name: str, *, lease_seconds: float | None = None) -> Running:
    """Start the command line. Its stdout and stderr go to files in the folder.

    lease_seconds: how long it takes another's lease for held that is not renewed; None for as long as ever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    running = Running(None, folder / f"{name}.out", folder / f"{name}.err")
    running.process = context.Process(
        target=_command_line, args=(arguments, str(running.out), str(running.err), lease_seconds)
    )
    running.process.start()
    return running


def _command_line(arguments: list[str], out: str, err: str, lease_seconds: float | None) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = ["gnnflow", *arguments]
    from gnnflow.cli import main
    from gnnflow.storage import lease

    lease._EXPIRE_SECONDS = lease_seconds or lease._EXPIRE_SECONDS
    main()
