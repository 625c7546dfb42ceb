"""The command line run in this process, and what it gave."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass

from gnnflow.cli import main


@dataclass(frozen=True)
class Shown:
    """What a command line gave: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """Everything from the first `error: ` on."""
        start = re.search(r"^error: ", self.err, re.MULTILINE)
        return self.err[start.start() :].strip() if start else ""


def run_cli(arguments: list[str], *, environment: dict[str, str] | None = None) -> Shown:
    """Run the command line in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with _as_process(["gnnflow", *arguments], environment or {}), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
        except Exception:  # noqa: BLE001 - what a process would print before it ends with exit code 1
            code = 1
            traceback.print_exc(file=err)
    return Shown(code, out.getvalue(), err.getvalue())


def printed(arguments: list[str]) -> str:
    """Run a command line that must succeed and return what it wrote on its standard output."""
    shown = run_cli(arguments)
    assert shown.code == 0, shown.err
    return shown.out


def run_block(block: str) -> dict[str, str]:
    """Run a page's block of commands, which must succeed, and return what each wrote, by its command."""
    commands = [shlex.split(line, comments=True)[1:] for line in block.splitlines()]
    return {words[0]: printed(words) for words in commands}


@contextmanager
def _as_process(arguments: list[str], environment: dict[str, str]) -> Iterator[None]:
    before, held = sys.argv, {name: os.environ.get(name) for name in environment}
    # The command line leaves signals ignored, since its process ends; outside the main thread it changes none.
    stopping = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in stopping}
    sys.argv = arguments
    os.environ.update(environment)
    try:
        yield
    finally:
        sys.argv = before
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
        for name, value in held.items():
            os.environ.pop(name, None)
            os.environ.update({name: value} if value is not None else {})
