"""Workers of this machine start, or say why not; then nothing of them is left."""

from __future__ import annotations

import errno
import mmap
import os
import resource
import signal
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import psutil
import pytest

from gnnflow.config import LocalCluster
from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce import local_cluster
from gnnflow.mapreduce.local_cluster import start_workers
from tests.killing import of_a_killed_process

TWO = LocalCluster(workers=2, memory_limit="2GiB")


def started(say=print):
    """Start two workers, ask one of them for a number, and end them."""
    with ExitStack() as stack:
        return start_workers(TWO, stack, say=say).submit(abs, -3).result(timeout=60)


def test_workers_without_room_for_semaphores_are_refused_with_the_place(monkeypatch):
    def no_room(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("multiprocessing.synchronize._multiprocessing.SemLock", no_room)
    with pytest.raises(ClusterError, match=r"no space is left on /dev/shm. Free some there \(docker run --shm-size"):
        started()


def test_workers_that_need_more_open_files_than_there_may_be_are_refused_with_the_numbers():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [int(each) for each in os.listdir("/proc/self/fd")]  # noqa: PTH208
    low = next(limit for limit in count() if limit - sum(each < limit for each in opened) == 40)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, limits[1]))
    try:
        with pytest.raises(ClusterError, match=rf"2 workers need 52 open files, and the limit is {low}"):
            started()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def failed(error):
    """An error as Dask raises it: about a nanny, which met another one as it ended because of this one."""
    failure, met = RuntimeError("Nanny failed to start."), AssertionError("Status.init")
    failure.__cause__, met.__context__ = met, error
    return failure


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory to start 2 workers"),
        (RuntimeError("can't start new thread"), "not enough memory to start 2 workers"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory to start 2 workers"),
        (OSError(errno.EMFILE, "Too many open files"), "2 workers need 52 open files"),
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/dask"), "no space is left on /tmp/dask"),
    ],
    ids=["memory", "a thread", "memory of the system", "files", "a disk"],
)
def test_a_limit_of_the_machine_is_named_whatever_dask_makes_of_it(monkeypatch, error, said):
    def fail(*_, **__):
        raise failed(error)

    monkeypatch.setattr(local_cluster, "_cluster_of_processes", lambda: fail)
    with pytest.raises(ClusterError, match=said):
        started()


def test_what_is_no_limit_of_the_machine_stays_what_it_is(monkeypatch):
    def fail(*_, **__):
        raise failed(KeyError("x"))

    monkeypatch.setattr(local_cluster, "_cluster_of_processes", lambda: fail)
    with pytest.raises(RuntimeError, match="Nanny failed to start"):
        started()


@pytest.fixture
def ends_as_it_starts(tmp_path: Path):
    """Have one worker of each of the first starts end as it starts: of so many, and how."""
    import dask
    import distributed  # noqa: F401 - which has settings of its own

    with ExitStack() as stack:

        def have(times: int, how: str) -> None:
            file = tmp_path / "preload.py"
            file.write_text(
                "import os\n"
                "from contextlib import suppress\n"
                f"for start in range({times}):\n"
                "    with suppress(FileExistsError):\n"
                f"        os.close(os.open(f'{tmp_path}/{{start}}', os.O_CREAT | os.O_EXCL))\n"
                f"        {how}\n"
            )
            stack.enter_context(dask.config.set({"distributed.worker.preload": [str(file)]}))

        yield have


@pytest.mark.distributed
def test_workers_of_which_one_is_killed_as_it_starts_are_started_again(ends_as_it_starts):
    ends_as_it_starts(1, f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    said: list[str] = []
    assert started(said.append) == 3
    assert said == ["a worker was killed by SIGKILL while it started; starts again"]


@pytest.mark.distributed
def test_a_worker_that_is_always_killed_as_it_starts_is_told_in_a_sentence(ends_as_it_starts):
    ends_as_it_starts(6, f"os.kill(os.getpid(), {int(signal.SIGKILL)})")
    said: list[str] = []
    with pytest.raises(
        ClusterError,
        match=r"a worker was killed by SIGKILL while it started. If memory was short, ask for fewer",
    ):
        started(said.append)
    assert len(said) == 2


@pytest.mark.distributed
def test_a_worker_that_ends_as_it_starts_takes_the_others_with_it(ends_as_it_starts):
    ends_as_it_starts(1, "os._exit(3)")
    with pytest.raises(ClusterError, match="a worker ended with exit code 3 while it started"):
        started()


@of_a_killed_process
@pytest.mark.distributed
def test_a_lost_worker_is_left_to_its_nanny_and_a_nanny_that_gave_up_is_replaced(ends_as_it_starts):
    """Dask waits for a lost worker, here not at all, and starts a second one of the same name next to it."""
    import dask

    ends_as_it_starts(0, "pass")
    said: list[str] = []
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}), ExitStack() as stack:
        client = start_workers(TWO, stack, say=said.append)
        nannies = dict(client.cluster.workers)
        os.kill(nannies[0].pid, signal.SIGKILL)
        wait_until(lambda: said and len(client.scheduler_info()["workers"]) == 2)
        assert said == ["worker 0 was killed by SIGKILL; it starts again"]
        assert client.cluster.workers == nannies
        # a worker that raises as it starts again is one that its nanny starts no more
        ends_as_it_starts(1, "raise OSError('once')")
        os.kill(nannies[1].pid, signal.SIGKILL)
        wait_until(lambda: client.cluster.workers.get(1) not in {None, nannies[1]})
        wait_until(lambda: len(client.scheduler_info()["workers"]) == 2)
        assert client.cluster.workers[0] is nannies[0]


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def mapped(path, seen):
    """Map a whole file, read each page of it, and hold it until the nanny has looked."""
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        read = sum(content[:: mmap.PAGESIZE])
        wait_until(Path(seen).exists)
    return read


def held(size, path):
    """Hold bytes until the nanny stops this worker; the worker that runs the task again returns at once."""
    if not Path(path).exists():
        Path(path).touch()
        held = bytearray(b"1" * size)
        wait_until(lambda: not held)


@of_a_killed_process
@pytest.mark.distributed
def test_a_worker_is_stopped_for_its_own_memory_and_not_for_files_that_it_maps(tmp_path, monkeypatch):
    """Mapped files are the system's cache; Dask alone would stop, or pause, a worker that has mapped its limit."""
    size, said, looks = 600 << 20, [], []
    own_bytes = local_cluster.own_bytes

    def noted(pid):
        looks.append(psutil.Process(pid).memory_info().rss > size)
        if sum(looks) > 1:  # it has looked at such a worker once, and left it alone
            (tmp_path / "seen").touch()
        return own_bytes(pid)

    monkeypatch.setattr(local_cluster, "own_bytes", noted)
    with (tmp_path / "rows").open("wb") as file:
        file.truncate(size)
    with ExitStack() as stack:
        client = start_workers(LocalCluster(workers=1, memory_limit="512MiB"), stack, say=said.append)
        assert client.submit(mapped, str(tmp_path / "rows"), str(tmp_path / "seen")).result(timeout=60) == 0
        assert said == []
        client.submit(held, size, str(tmp_path / "began")).result(timeout=60)
        assert len(said) == 1
        assert said[0].startswith("worker 0 was stopped at ")
