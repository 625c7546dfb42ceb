"""One holder at a time, and a dead one blocks nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.progress import Silent
from gnnflow.storage import lease
from gnnflow.storage.writing import create_exclusive, remove_tree, write_atomic
from tests.clock import Clock
from tests.hearing import Heard

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let those who wait for a lease wait by this clock."""
    clock = Clock()
    monkeypatch.setattr(lease, "time", clock)
    return clock


def take(folder: Path) -> None:
    """Take the lease of a folder, at once or when it has expired."""
    with lease.sole_worker(str(folder), done=lambda: False, progress=Silent()) as alone:
        assert alone


def test_a_lease_of_a_dead_process_is_taken_at_once(tmp_path: Path, clock: Clock) -> None:
    code = "import os,sys; from gnnflow.storage import lease; sys.stdout.buffer.write(lease._content('x', 0))"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert json.loads(dead)["pid"] != os.getpid()
    create_exclusive(str(tmp_path / "lease.json"), dead)
    take(tmp_path)
    assert clock.now < lease._EXPIRE_SECONDS
    assert not (tmp_path / "lease.json").exists()


def test_what_a_killed_holder_was_writing_does_not_outlive_the_work(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / ".lease.json.0123.tmp").write_bytes(b'{"own')
    with lease.sole_worker(str(work), done=lambda: False, progress=Silent()) as alone:
        assert alone
        remove_tree(str(work), keep=(lease.LEASE,))
    assert not work.exists()


@pytest.mark.usefixtures("clock")
def test_a_lease_that_is_not_renewed_expires(tmp_path: Path) -> None:
    held = {"owner": "x", "count": 3, "host": "another-host", "pid": 1, "born": "1"}
    create_exclusive(str(tmp_path / "lease.json"), json.dumps(held).encode())
    take(tmp_path)


def holder(**changes: Any) -> bytes:
    """A lease of this process, with changes."""
    return json.dumps({**json.loads(lease._content("x", 0)), **changes}).encode()


ELSEWHERE: dict[str, Any] = {
    "another pid namespace": {"place": lease._place().split()[0] + " pid:[1]", "pid": 4_000_000, "born": "1"},
    "another machine of the same host name": {"place": "another-boot pid:[4026531836]", "pid": 4_000_000},
    "a place that is not known": {"place": "", "pid": 4_000_000, "born": "1"},
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_lease_is_not_taken_because_its_pid_means_nothing_here(tmp_path: Path, clock: Clock, where: str) -> None:
    (tmp_path / "lease.json").write_bytes(holder(**ELSEWHERE[where]))
    take(tmp_path)
    assert clock.now > lease._EXPIRE_SECONDS


def test_a_lease_of_a_pid_that_another_process_has_now_is_taken_at_once(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "lease.json").write_bytes(holder(born="1"))
    take(tmp_path)
    assert clock.now < lease._EXPIRE_SECONDS


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, which makes pid namespaces")
def test_a_container_of_the_same_host_name_does_not_take_a_live_lease(tmp_path: Path) -> None:
    code = (
        "from gnnflow.storage import lease; from gnnflow.progress import Silent; lease._EXPIRE_SECONDS = 60\n"
        f"with lease.sole_worker({str(tmp_path)!r}, done=lambda: False, progress=Silent()) as alone: print('taken')"
    )
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    if subprocess.run([*inside, "pass"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let processes make pid namespaces")
    with lease.sole_worker(str(tmp_path), done=lambda: False, progress=Silent()):
        other = subprocess.Popen([*inside, code], stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            other.communicate(timeout=6)
    assert other.communicate(timeout=30)[0] == "taken\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"host": "a"}', b'{"owner": 1, "pid": "x", "place": "", "born": 0}'],
)
def test_a_lease_that_cannot_be_read_expires_by_time(tmp_path: Path, clock: Clock, content: bytes) -> None:
    (tmp_path / "lease.json").write_bytes(content)
    take(tmp_path)
    assert clock.now > lease._EXPIRE_SECONDS


def test_a_work_folder_goes_while_its_lease_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is renewed every fraction of a millisecond, so its renewals meet every step of the deletion."""
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.0002)
    for number in range(30):
        work = tmp_path / f"work-{number}"
        with lease.sole_worker(str(work), done=lambda: False, progress=Silent()) as alone:
            assert alone
            for task in range(20):
                write_atomic(str(work / "round" / f"{task:05d}.json"), b"1", durable=False)
            remove_tree(str(work), keep=(lease.LEASE,))
        assert not work.exists()


def test_a_renewal_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.01)
    tried: list[int] = []

    def failing(*given: Any, original: Any = lease.write_atomic, **options: Any) -> Any:
        tried.append(1)
        if len(tried) % 2:
            raise OSError("the disk is full")
        return original(*given, **options)

    monkeypatch.setattr(lease, "write_atomic", failing)
    with lease.sole_worker(str(tmp_path / "work"), done=lambda: False, progress=Silent()):
        deadline = time.monotonic() + 60
        while json.loads((tmp_path / "work" / "lease.json").read_text())["count"] < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_holder_that_was_replaced_leaves_the_lease_alone(tmp_path: Path) -> None:
    file = tmp_path / "work" / "lease.json"
    with lease.sole_worker(str(tmp_path / "work"), done=lambda: False, progress=Silent()):
        write_atomic(str(file), holder(owner="another"))
    assert json.loads(file.read_text())["owner"] == "another"


def test_a_holder_that_was_replaced_renews_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEW_SECONDS", 0.01)
    file = tmp_path / "lease.json"
    write_atomic(str(file), holder(owner="another"))
    lease._renew(str(file), "one", threading.Event())  # which ends
    assert file.read_bytes() == holder(owner="another")


@pytest.mark.usefixtures("clock")
def test_a_waiter_is_told_and_leaves_when_the_work_is_done(tmp_path: Path) -> None:
    held = {"owner": "x", "count": 3, "host": "another-host", "pid": 1, "born": "1"}
    create_exclusive(str(tmp_path / "lease.json"), json.dumps(held).encode())
    asked: list[bool] = []
    heard = Heard()

    def done() -> bool:
        asked.append(True)
        return len(asked) > 2

    with lease.sole_worker(str(tmp_path), done=done, progress=heard) as alone:
        assert not alone
    assert heard.messages == ["another run is doing this work; waiting for it"]


@pytest.mark.parametrize("content", [b"\0" * 200, b"", holder(place="another-boot pid:[4026531836]")])
def test_work_whose_lease_is_not_renewed_for_long_is_abandoned(tmp_path: Path, content: bytes) -> None:
    held = tmp_path / "lease.json"
    held.write_bytes(content)
    assert not lease.is_abandoned(str(tmp_path))
    os.utime(held, (time.time() - 3600,) * 2)
    assert lease.is_abandoned(str(tmp_path))
