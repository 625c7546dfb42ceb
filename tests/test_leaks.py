"""Tests fail for what they leave behind, and for nothing that other processes of the machine do."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory

import pytest

from tests import leaks
from tests.leaks import held, left_behind

MAPS = """if True:
    import mmap, sys
    with open(sys.argv[1], "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks, "_SECONDS", 0)


def test_a_process_is_named_from_its_first_moment() -> None:
    for _ in range(20):
        before = held()
        with subprocess.Popen(["sleep", "60"]) as process:
            found = left_behind(before)
            process.kill()
        assert [each.partition(" ")[0] for each in found.get("processes", [])] == [str(process.pid)]


def test_a_process_that_gets_its_name_later_is_the_same() -> None:
    before, after = held(), held()
    object.__setattr__(before, "processes", frozenset({"7 (starting)"}))
    object.__setattr__(after, "processes", frozenset({"7 sleep 60", "8 sleep 60"}))
    assert after.more_than(before) == {"processes": ["8 sleep 60"]}


def test_an_ended_thread_and_a_process_that_was_waited_for_are_left_out() -> None:
    before = held()
    subprocess.run(["true"], check=True)
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert not {"threads", "processes"}.intersection(left_behind(before))


def test_a_variable_that_is_gone_is_told_from_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNFLOW_OF_A_TEST", "1")
    before = held()
    monkeypatch.setenv("GNNFLOW_OF_A_TEST", "2")
    assert left_behind(before)["variables"] == ["GNNFLOW_OF_A_TEST=1 before", "GNNFLOW_OF_A_TEST=2"]
    monkeypatch.delenv("GNNFLOW_OF_A_TEST")
    assert left_behind(before)["variables"] == ["GNNFLOW_OF_A_TEST=1 before"]


def test_a_semaphore_of_this_process_is_named() -> None:
    before = held()
    lock = get_context("spawn").Lock()
    name = f"sem.{lock._semlock.name.lstrip('/')}"
    assert name in left_behind(before)["shared_memory"]


def test_a_semaphore_that_a_killed_process_left_is_nobodys() -> None:
    before = held()
    left = leaks._SHARED / f"sem.mp-of-a-test-{os.getpid()}"
    left.write_bytes(bytes(32))
    found = left_behind(before)
    left.unlink()
    assert left.name not in found.get("shared_memory", [])


def test_memory_is_named_beside_that_of_another_process() -> None:
    before = held()
    theirs = leaks._SHARED / f"of-a-test-{os.getpid()}"
    theirs.write_bytes(bytes(mmap.PAGESIZE))
    with subprocess.Popen([sys.executable, "-S", "-c", MAPS, theirs], stdin=-1, stdout=-1) as other:
        assert other.stdout is not None
        other.stdout.readline()
        own = SharedMemory(create=True, size=1)
        found = left_behind(before)
        own.close()
        own.unlink()
        other.communicate()
    theirs.unlink()
    assert own.name in found["shared_memory"]
    assert theirs.name not in found["shared_memory"]
