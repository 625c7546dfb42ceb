"""Pytest loads this plugin for mutants.py: it notes which mutants a test reaches, or turns on one after another.

To reach: a board, which is a small file that all processes of a test map, holds the name of what runs. Each switch of a
mutant writes the name into a file of its process, once for each mutant and name.

To kill: pytest collects the tests as ever. In place of its own loop, a child is forked for each mutant, before any
fixture is made; it runs the tests and tells of each by a pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


def append(file: Path, record: dict[str, Any]) -> None:
    """Append a record to a file that several processes write."""
    with file.open("a") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        out.write(json.dumps(record) + "\n")


def pytest_load_initial_conftests() -> None:
    """Make hypothesis draw the same examples each time, and look for no smaller ones."""
    from hypothesis import Phase, settings

    from tests.budget import examples

    phases = (Phase.explicit, Phase.generate)
    more = {"derandomize": True, "database": None, "phases": phases}
    settings.register_profile("mutants", deadline=None, max_examples=examples(100), **more)
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"  # tests/conftest.py reads it


def pytest_collection_finish() -> None:
    """Take the profile's name back: processes that tests start know no such profile."""
    os.environ.pop("HYPOTHESIS_PROFILE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Register the part that this process plays."""
    if "GNNFLOW_REACH" in os.environ:
        config.pluginmanager.register(Reaching(Path(os.environ["GNNFLOW_REACH"])))
    elif "MUTANTS_JOB" in os.environ:
        config.pluginmanager.register(Killing(Path(os.environ["MUTANTS_JOB"])))


class Reaching:
    """Writes the running test on a board that all processes of the test see, and keeps the time of each.

    What runs while a shared fixture is made stands under the fixture's name, and counts for every test that uses it.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"tests-{os.getpid()}"
        board = folder / f"board-{os.getpid()}"
        board.write_bytes(bytes(4096))
        os.environ["GNNFLOW_REACH_BOARD"] = str(board)
        with board.open("r+b") as file:
            self.board = mmap.mmap(file.fileno(), 0)
        self.serial, self.shared, self.failed = 0, 0.0, False
        self.name = "import"
        self.show(self.name)

    def show(self, name: str) -> None:
        """Write a name on the board; a new serial number makes all processes note again whom they reach."""
        self.name, self.serial = name, self.serial + 1
        self.board[8:] = name.encode()[:4000].ljust(4088, b"\0")
        self.board[:8] = self.serial.to_bytes(8, "big")

    def write(self, **record: object) -> None:
        """Append a record of a test or a fixture to this process's file."""
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Show a test on the board while it runs, and note its own seconds."""
        self.shared, self.failed, begin = 0.0, False, time.monotonic()
        self.show(item.nodeid)
        yield
        self.show("between")
        names = sorted(getattr(item, "fixturenames", ()))
        seconds = time.monotonic() - begin - self.shared
        self.write(test=item.nodeid, seconds=seconds, ok=not self.failed, fixtures=names)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """Show a shared fixture on the board while it is made, and note its seconds."""
        if fixturedef.scope == "function":
            yield
            return
        before, begin, inner = self.name, time.monotonic(), self.shared
        self.show(f"fixture:{fixturedef.baseid}|{fixturedef.argname}")
        yield
        name, seconds = self.name, time.monotonic() - begin - (self.shared - inner)
        self.write(fixture=name, seconds=seconds)
        self.shared += seconds
        self.show(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that the running test failed."""
        self.failed |= report.failed


@dataclass
class Attempt:
    """A child ran tests until one of them failed, and says so."""

    passed: list[str] = field(default_factory=list)
    test: str = ""  # the last one that began
    end: str = ""  # killed, timeout, crash, or nothing where all passed
    message: str = ""
    seconds: float = 0.0


class Killing:
    """Runs, in place of pytest's own loop, the tests of each mutant in a child of their own."""

    def __init__(self, job: Path) -> None:
        self.job = json.loads(job.read_text())
        self.failure: str | None = None
        self.clean: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how the running test failed."""
        if report.failed and self.failure is None:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failure = str(getattr(crash, "message", report.longrepr))[:200]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the mutants that no other process has claimed."""
        with contextlib.suppress(ImportError):
            import distributed  # noqa: F401 - so that no child imports it again
            import torch

            torch.set_num_threads(1)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become ours, and end
        self.spared = _children()
        items = {item.nodeid: item for item in session.items}
        read = {name.partition("::")[0] for name in items}
        for mutant in self.job["mutants"]:
            with contextlib.suppress(FileExistsError):
                (Path(self.job["claims"]) / str(mutant["id"])).touch(exist_ok=False)
                lost = [name for name in mutant["tests"] if name.partition("::")[0] not in read]
                if lost and self.job["alone"]:
                    self.settle(
                        mutant, Attempt(test=lost[0], end="crash", message="its file is not imported"), [], lost
                    )
                else:
                    self.measure(mutant, [items[name] for name in mutant["tests"] if name in items])
        return True

    def measure(self, mutant: dict[str, Any], items: list[pytest.Item]) -> None:
        """Run a mutant's tests until one fails that passes without it, and append the result."""
        ran, left, seconds, end = [], items, 0.0, Attempt()
        while left and not (self.job["budget"] and seconds >= self.job["budget"]):
            end = self.attempt(left, mutant["id"], self.job["budget"] - seconds if self.job["budget"] else None)
            ran += end.passed
            seconds += end.seconds
            if not end.end or self.passes_without(next(i for i in left if i.nodeid == end.test)):
                break
            left = left[len(end.passed) + 1 :]
            end = Attempt()
        end.seconds = seconds
        self.settle(mutant, end, ran, items)

    def settle(self, mutant: dict[str, Any], end: Attempt, ran: list[str], tests: Sized) -> None:
        """Append a mutant's result to those of its tree, and print it."""
        told = f"{end.end} by {end.test}" if end.end else f"survived {len(ran)} of {len(tests)} tests"
        print(f"mutant {mutant['id']}: {told} ({end.seconds:.1f} s)", file=sys.__stderr__, flush=True)
        result = {"mutant": mutant["id"], "ring": self.job["ring"]}
        result |= {"end": end.end or "survived", "seconds": round(end.seconds, 1), "not run": len(tests) - len(ran)}
        result |= {"test": end.test, "message": end.message} if end.end else {"tests": ran}
        append(Path(self.job["results"]), result)

    def passes_without(self, item: pytest.Item) -> bool:
        """Tell whether a test passes in a child without a mutant; each is asked once for each process."""
        if self.job["alone"]:
            return True  # here the mutant ran at import; `reach` saw the test pass
        if item.nodeid not in self.clean:
            self.clean[item.nodeid] = not self.attempt([item], 0, None).end
            if not self.clean[item.nodeid]:
                print(f"fails without a mutant: {item.nodeid}", file=sys.__stderr__, flush=True)
        return self.clean[item.nodeid]

    def attempt(self, items: list[pytest.Item], number: int, budget: float | None) -> Attempt:
        """Fork a child that runs tests with a mutant on, and end it with all that it started."""
        folder, (read, write), begin = tempfile.mkdtemp(prefix="m"), os.pipe(), time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                self.run(items, number, write, folder, budget)
            finally:
                os._exit(0)
        os.close(write)
        try:
            found = self.listen(read)
        finally:
            os.close(read)
            _end_family(child, self.spared)
            shutil.rmtree(folder, ignore_errors=True)
        found.test, found.seconds = found.test or items[0].nodeid, time.monotonic() - begin
        return found

    def run(self, items: list[pytest.Item], number: int, write: int, folder: str, budget: float | None) -> None:
        """Run the tests in the child, and tell the parent each begin and end."""
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.environ |= {"TMPDIR": folder, "PYTEST_DEBUG_TEMPROOT": folder, "GNNFLOW_MUTANT": str(number)}
        tempfile.tempdir = None  # asks TMPDIR again
        from gnnflow import _mutants  # type: ignore[attr-defined]

        _mutants.activate(number)
        begin = time.monotonic()
        for item, following in zip(items, [*items[1:], None], strict=True):
            os.write(write, json.dumps({"begins": item.nodeid}).encode() + b"\n")
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            os.write(write, json.dumps({"ends": item.nodeid, "failure": self.failure}).encode() + b"\n")
            if self.failure is not None or (budget and time.monotonic() - begin > budget):
                break
        os.write(write, b'{"done": true}\n')

    def listen(self, read: int) -> Attempt:
        """Read what a child tells until it is done, dies, or takes far longer for a test than it should."""
        found, told, limit = Attempt(), b"", 60.0
        while True:
            if not select.select([read], [], [], limit)[0]:
                found.end = "timeout"
                return found
            chunk = os.read(read, 1 << 16)
            if not chunk:
                found.end = "crash"
                return found
            *lines, told = (told + chunk).split(b"\n")
            for each in map(json.loads, lines):
                if "begins" in each:
                    found.test, limit = each["begins"], 30 + 5 * self.job["seconds"].get(each["begins"], 60)
                elif "done" in each:
                    return found
                elif each["failure"] is None:
                    found.passed.append(each["ends"])
                else:
                    found.end, found.message = "killed", each["failure"]


def _children() -> set[int]:
    """Return the processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


def _end_family(child: int, spared: set[int]) -> None:
    """Kill a child's process group, then whatever of its family is left to us."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    left = {child}
    while left:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
        left = _children() - spared
