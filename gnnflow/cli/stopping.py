"""Stops a command on a signal: within about two seconds, with a message, and without leaving a process behind.

The signals of a terminal (SIGINT, SIGQUIT, and SIGHUP when it closes) are blocked, and a thread waits for them, for two
reasons. A terminal sends them to every process of the command, and all processes inherit the block: workers end without
a traceback, and Python's resource tracker lives until it has removed their semaphores. And the main thread may be
inside a library for seconds: an exception asks it to release its lease and half-written file, and where it does not in
time, the thread ends the process. That is safe: committed work stays, as after any kill.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gnnflow.graph.errors import Interrupted
from gnnflow.graph.secrets import mask_secrets
from gnnflow.graph.variables import variable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_GRACE_SECONDS = 1.5
_LOOK_SECONDS = 0.02
_SHELL_OFFSET = 128
# Python's resource tracker would warn on the terminal about resources that it removes.
_QUIET = "ignore::UserWarning:multiprocessing.resource_tracker"
_NAMES = {signal.SIGINT: "^C", signal.SIGQUIT: "SIGQUIT", signal.SIGHUP: "SIGHUP", signal.SIGTERM: "SIGTERM"}
_OF_TERMINALS = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
# A second key press stops at once. SIGHUP is not one: a closing terminal and its shell both send it.
_KEYS = frozenset({signal.SIGINT, signal.SIGQUIT})


class _Stop:
    """The state of stopping this process: the signal, once it came, and the parts of the message.

    raises: whether a signal still raises Interrupted: once, and not after the command's last word.
    """

    def __init__(self) -> None:
        self.number = 0
        self.raises = True
        self.kept = ""
        self.as_json = False
        self._ending = threading.Lock()

    def begin(self, number: int) -> None:
        """Remember the first signal, and silence all output but the last line."""
        if not self.number:
            self.number = number
            logging.disable(logging.CRITICAL)
            sys.unraisablehook = lambda _: None

    def end(self) -> NoReturn:
        """Print the message and end this process with its workers. Does not return."""
        if not self._ending.acquire(blocking=False):
            time.sleep(_GRACE_SECONDS)  # the other thread is ending it
        stderr = _take_stderr()  # whoever watches the workers would say that they were killed
        _kill_starting()
        for child in multiprocessing.active_children():
            child.kill()
            child.join(_LOOK_SECONDS)
        self._say(stderr)
        _kill_starting()  # children that the main thread has started meanwhile
        os._exit(_SHELL_OFFSET + self.number)

    def _say(self, stderr: int) -> None:
        problem = f"stopped by {_NAMES[signal.Signals(self.number)]}"
        kept = f"what was finished is kept in {self.kept}" if self.kept else "nothing is half-written"
        fix = "run the same command again to go on"
        if os.isatty(stderr):
            _write(stderr, "\r\x1b[2K\x1b[?25h")  # the bar's line, and the cursor that bars hide
        _write(stderr, f"{problem}: {kept}; {fix}\n")
        if self.as_json:
            parts = {"kind": "Interrupted", "where": self.kept, "problem": problem, "fix": f"{kept}; {fix}"}
            _write(1, json.dumps({"error": parts}) + "\n")


def _write(descriptor: int, text: str) -> None:
    """Write the message, also where the terminal or the pipe is closed."""
    with suppress(OSError):
        os.write(descriptor, mask_secrets(text).encode())


def _take_stderr() -> int:
    """Return a descriptor of stderr, to which nothing else in this process writes any more."""
    try:
        taken = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    except OSError:  # it is closed, or no file may be opened
        return 2
    return taken


def _kill_starting() -> None:
    for starting in _starting_children():
        with suppress(ProcessLookupError):
            os.kill(starting, signal.SIGKILL)


def _starting_children() -> list[int]:
    """Return the children that Python's multiprocessing started, also those it does not list yet.

    A child that loses its parent while it starts would print a traceback. A child that was just forked has this
    process's command line. Empty where there is no /proc.
    """
    own, found = _command_of(os.getpid()), list[int]()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended meanwhile
            found += [int(number) for number in listed.read_text().split()]
    commands = {number: _command_of(number) for number in found}
    return [number for number, command in commands.items() if b"spawn_main" in command or command == own]


def _command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


_stop = _Stop()


def keeps(workspace: str) -> None:
    """Remember the workspace of finished work for the message of a stop."""
    _stop.kept = workspace


def before_workers() -> None:
    """Prepare this process for workers, before the first one starts.

    Python's resource tracker unblocks SIGINT in the thread that starts it, and so in every process of that thread.
    """
    resource_tracker.ensure_running()
    if threading.current_thread() is threading.main_thread():
        signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS & _heard())


def _heard() -> set[signal.Signals]:
    """Return the signals that end this process.

    `nohup` starts it with SIGHUP ignored, and a script's `command &` with SIGINT and SIGQUIT.
    """
    return {number for number in _NAMES if signal.getsignal(number) != signal.SIG_IGN}


@contextmanager
def watched(*, as_json: bool) -> Iterator[None]:
    """Turn a stopping signal in the block into Interrupted in this thread, and Interrupted into an exit.

    Signals that the process was started to ignore stay ignored. After the block all are ignored: the work is done, and
    the process is about to end, which takes up to a second with its libraries. as_json: whether stdout gets an error
    object. Does nothing outside the main thread, which alone handles signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _stop.as_json, _stop.kept, _stop.raises = as_json, "", False
    with _quiet_processes(), _signals():
        try:
            _stop.raises = True  # not earlier: until here the watcher ends the process
            yield
        except Interrupted:
            _stop.end()
        finally:
            _stop.raises = False


@contextmanager
def _quiet_processes() -> Iterator[None]:
    """Silence the warnings of processes that start in the block about resources that a sudden end leaves."""
    said = os.environ.get("PYTHONWARNINGS")
    with variable("PYTHONWARNINGS", f"{said},{_QUIET}" if said else _QUIET):
        yield


@contextmanager
def _signals() -> Iterator[None]:
    """Raise the first signal in the block as Interrupted, while a thread watches for more signals."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    done, heard = threading.Event(), _heard()
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in heard:
        signal.signal(number, _raise_interrupted)
    # not ignored signals: a blocked one stays pending, and the watcher would find it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS & heard)
    watcher = threading.Thread(target=_watch, args=(reader, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        for number in _NAMES:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(wakeup)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reader)
        os.close(writer)


def _raise_interrupted(number: int, _: FrameType | None) -> None:
    if _stop.raises:  # the watcher handles later ones, and ends the process
        _stop.raises = False
        _stop.begin(number)
        raise Interrupted(_stop.number)


def _watch(reader: int, done: threading.Event) -> None:
    main, deadline = threading.main_thread().ident, float("inf")
    assert main is not None
    written = select.poll()  # select() takes no descriptor above 1023
    written.register(reader, select.POLLIN)
    while not done.is_set() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        # CPython 3.11's sigtimedwait returns a signal that never came where a pause (SIGSTOP, a debugger) interrupts it
        # after its deadline. A signal that is pending came, and sigwait takes it at once.
        if pending := _OF_TERMINALS & signal.sigpending():
            number = signal.sigwait(pending)
            if _stop.number and number in _KEYS:
                break  # a second ^C: at once
            if not _stop.number:
                _stop.begin(number)
                signal.pthread_kill(main, signal.SIGTERM)
        elif not _stop.number and written.poll(0):
            for number in _NAMES.keys() & set(os.read(reader, 64)):  # others belong to a user's own handlers
                _stop.begin(number)
        if _stop.number and deadline == float("inf"):
            deadline = time.monotonic() + _GRACE_SECONDS
    if not done.is_set():
        _stop.end()
