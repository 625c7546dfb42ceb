"""A signal ends a run within about two seconds with one line, and the same command goes on."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.small_graphs import write_graph

TIMES = 20


def write_config(folder: Path, kind: str, epochs: int) -> Path:
    write_graph(folder, num_nodes=1000, num_edges=10_000)
    content = {
        "name": "stopped",
        "workspace": str(folder / "runs"),
        "graph": {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"), "partitions": 3},
        "train": {"epochs": epochs, "patience": 0, "batch_size": 32},
        "cluster": {"kind": "local", "workers": 2} if kind == "local" else {"kind": "synchronous"},
    }
    file = folder / "config.yaml"
    file.write_text(json.dumps(content))
    return file


def start(config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gnnflow.cli", "run", str(config), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
    )


def living(session: int) -> list[str]:
    """Return the processes of a session that still run; dead ones that nobody waited for do not count."""
    shown = subprocess.run(["ps", "-o", "stat=,args=", "-s", str(session)], capture_output=True, text=True, check=False)
    return [line for line in shown.stdout.splitlines() if not line.startswith("Z")]


def wait_until_watched(process: int) -> None:
    """Wait until a process looks at signals: before its first line, a signal ends the interpreter without a word."""
    deadline, wanted = time.monotonic() + 60, 1 << (signal.SIGTERM - 1)
    while time.monotonic() < deadline:
        (caught,) = (
            int(line.split()[1], 16)
            for line in Path(f"/proc/{process}/status").read_text().splitlines()
            if line.startswith("SigCgt:")
        )
        if caught & wanted:
            return
        time.sleep(0.05)
    raise TimeoutError(f"process {process} looks at no signal")


@contextlib.contextmanager
def started(config: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a run; where the test fails meanwhile, nothing of it stays for the next one."""
    with start(config) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def stop(config: Path, number: signal.Signals, after: float) -> None:
    with started(config) as process:
        wait_until_watched(process.pid)
        time.sleep(after)
        begin = time.monotonic()
        # What a terminal sends reaches every process of the group, a service manager's SIGTERM the first one.
        process.send_signal(number) if number == signal.SIGTERM else os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - begin
        while living(process.pid) and time.monotonic() < begin + took + 10:
            time.sleep(0.1)
        left = living(process.pid)
    assert process.returncode == 128 + number, err
    assert took < 20  # 2 on an idle machine
    assert "Traceback" not in err
    last = err.rstrip("\n").splitlines()[-1]
    assert last.startswith("stopped by ^C: " if number == signal.SIGINT else f"stopped by {number.name}: ")
    assert last.endswith("run the same command again to go on")
    assert json.loads(out)["error"]["kind"] == "Interrupted"
    assert left == []


LATE = """
import os, signal, threading, time
from gnnflow.cli import stopping

stopping._LOOK_SECONDS = 2.0  # so long it takes to leave the block
with stopping.watched(as_json=False):
    time.sleep(0.1)
    for seconds, number in ((0.7, signal.SIGTERM), (0.9, signal.SIGINT)):
        threading.Timer(seconds, os.kill, (os.getpid(), number)).start()
for number in (signal.SIGTERM, signal.SIGINT):
    os.kill(os.getpid(), number)
print("all is said")
"""


def test_a_signal_after_the_last_word_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all is said\n", "")


IGNORED = """
import os, signal, sys, time
from gnnflow.cli import stopping

number = int(sys.argv[1])
signal.signal(number, signal.SIG_IGN)
with stopping.watched(as_json=False):
    stopping.before_workers()
    os.kill(os.getpid(), number)
    time.sleep(0.2)
    print("goes on", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_that_was_ignored_before_stays_ignored(number: signal.Signals) -> None:
    """A shell without job control starts `command &` with SIGINT and SIGQUIT ignored, and nohup with SIGHUP."""
    command = [sys.executable, "-c", IGNORED, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "goes on\n")
    assert done.stderr.startswith("stopped by SIGTERM: ")


ON_A_TERMINAL = """
import fcntl, multiprocessing, signal, termios, time
from gnnflow.cli import stopping

for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # the tests may run in a shell's background
    signal.signal(number, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
with stopping.watched(as_json=True):
    stopping.before_workers()
    spawning = multiprocessing.get_context("spawn")
    queue = spawning.Queue()
    spawning.Process(target=queue.get).start()
    print(queue._rlock._semlock.name, flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def on_a_terminal() -> Iterator[tuple[subprocess.Popen[bytes], FileIO, Path]]:
    """Start a command with a worker on a terminal; yield it, the terminal's other side, and a semaphore's file."""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL]
    with (
        FileIO(ours) as terminal,
        subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True, cwd=REPOSITORY) as process,
    ):
        os.close(its)
        try:
            semaphore = Path("/dev/shm") / f"sem.{terminal.readline().decode().strip().removeprefix('/')}"
            assert semaphore.exists()
            yield process, terminal, semaphore
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def all_of_it(terminal: FileIO) -> str:
    """Return what is written to a terminal until nobody has it open."""
    said = bytearray()
    with contextlib.suppress(OSError):  # Linux says so by EIO
        while more := terminal.read(1000):
            said += more
    return said.decode()


def wait_until_gone(session: int, semaphore: Path) -> None:
    deadline = time.monotonic() + 20
    while (living(session) or semaphore.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert living(session) == []
    assert not semaphore.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_all_processes_leaves_nothing_behind(number: signal.Signals) -> None:
    with on_a_terminal() as (process, terminal, semaphore):
        os.killpg(process.pid, number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        said = all_of_it(terminal)
        assert process.wait(timeout=20) == 128 + number
        wait_until_gone(process.pid, semaphore)
    assert said.count("stopped by") == 2  # a sentence, and the error object
    assert "Traceback" not in said


def test_a_terminal_that_closes_stops_what_runs_there() -> None:
    with on_a_terminal() as (process, terminal, semaphore):
        terminal.close()
        assert process.wait(timeout=20) == 128 + signal.SIGHUP
        wait_until_gone(process.pid, semaphore)


OWN_HANDLER = """
import os, signal, time
from gnnflow.cli import stopping

stopping._GRACE_SECONDS = 0.05
with stopping.watched(as_json=False):
    signal.signal(signal.SIGUSR1, lambda *_: None)
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.2)
    print("goes on", flush=True)
"""


def test_a_signal_with_a_handler_of_the_users_own_is_no_interrupt() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OWN_HANDLER], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


PAUSED = """
import os, subprocess
from gnnflow.cli import stopping

with stopping.watched(as_json=False):
    pauses = f"for i in $(seq 10); do kill -STOP {os.getpid()}; sleep 0.1; kill -CONT {os.getpid()}; sleep 0.03; done"
    subprocess.run(["bash", "-c", pauses], check=True)
    print("goes on", flush=True)
"""


def test_a_pause_is_no_interrupt() -> None:
    """A laptop sleeps, a container is paused, a debugger attaches: each stops the process and lets it go on."""
    done = subprocess.run([sys.executable, "-c", PAUSED], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["local", "synchronous"])
def test_a_run_stops_at_any_moment_and_goes_on(kind: str, tmp_path: Path) -> None:
    config, chance = write_config(tmp_path, kind, epochs=100_000), random.Random(0)
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT] * (TIMES // 8):
        stop(config, number, chance.uniform(0.0, 7.0))
    write_config(tmp_path, kind, epochs=2)
    with started(config) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out)["metrics"]
