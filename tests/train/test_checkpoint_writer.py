"""Checkpoints are written beside the loop: it does not wait, hears of failures, and the file is always a whole one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import torch as safetensors_torch

from gnnflow.graph.errors import StorageError
from gnnflow.train import checkpoint
from gnnflow.train.checkpoint import Checkpoint, CheckpointWriter, read_checkpoint, write_checkpoint
from tests.conftest import REPOSITORY


def moment(number: int, value: float = 0.0) -> Checkpoint:
    return Checkpoint("d", {"step": number}, {"w": torch.full((8,), value)}, {}, {"0/step": torch.tensor(value)})


def put_for_ever(uri: str) -> None:
    with CheckpointWriter(uri) as writer:
        while True:
            writer.put(moment(1))


class Gate:
    """Holds every write until it is opened, and keeps which checkpoints were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()
        self.written: list[int] = []
        monkeypatch.setattr(checkpoint, "write_checkpoint", self)

    def __call__(self, uri: str, checkpoint: Checkpoint) -> None:
        self.begun.set()
        assert self.opened.wait(30)
        write_checkpoint(uri, checkpoint)
        self.written.append(checkpoint.state["step"])


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate(monkeypatch)
    yield held
    held.opened.set()


def test_the_newest_of_those_that_wait_is_written_and_the_loop_waits_for_none(tmp_path: Path, gate: Gate) -> None:
    uri = str(tmp_path / "c.safetensors")
    with CheckpointWriter(uri) as writer:
        writer.put(moment(1))
        assert gate.begun.wait(30)
        for number in (2, 3, 4):
            writer.put(moment(number))
        assert gate.written == []
        gate.opened.set()
    assert gate.written == [1, 4]
    found = read_checkpoint(uri)
    assert found is not None
    assert found.state == {"step": 4}


def test_what_is_written_is_the_state_at_its_step(tmp_path: Path, gate: Gate) -> None:
    uri = str(tmp_path / "c.safetensors")
    taken = moment(1, value=2.0)
    with CheckpointWriter(uri) as writer:
        writer.put(taken)
        taken.model["w"].zero_()
        taken.updater["0/step"].zero_()
        gate.opened.set()
    found = read_checkpoint(uri)
    assert found is not None
    assert torch.equal(found.model["w"], torch.full((8,), 2.0))
    assert torch.equal(found.updater["0/step"], torch.tensor(2.0))


def test_a_failed_write_is_raised_in_the_loop_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    uri = str(tmp_path / "file" / "c.safetensors")
    with pytest.raises(StorageError, match="a file where a folder is needed") as caught:
        put_for_ever(uri)
    assert caught.value.where == uri


def test_a_write_that_fails_last_is_raised_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StorageError, match="a file where a folder is needed"),
        CheckpointWriter(str(tmp_path / "file" / "c.safetensors")) as writer,
    ):
        writer.put(moment(1))


def test_where_the_loop_fails_its_error_is_told_and_the_newest_checkpoint_is_kept(tmp_path: Path, gate: Gate) -> None:
    uri = str(tmp_path / "c.safetensors")
    with pytest.raises(ConnectionError, match="the loop's own"), CheckpointWriter(uri) as writer:  # noqa: PT012
        writer.put(moment(1))
        writer.put(moment(2))
        gate.opened.set()
        raise ConnectionError("the loop's own")
    found = read_checkpoint(uri)
    assert found is not None
    assert found.state == {"step": 2}
    assert [thread.name for thread in threading.enumerate() if thread.name == "gnnflow-checkpoints"] == []


KILLED = """
import os, signal, sys, time
from pathlib import Path
import torch
from gnnflow.train.checkpoint import Checkpoint, CheckpointWriter
folder = Path(sys.argv[1])
with CheckpointWriter(str(folder / "c.safetensors")) as writer:
    writer.put(Checkpoint("d", {"step": 1}, {"w": torch.ones(8)}, {}, {}))
    while not (folder / "c.safetensors").exists():
        time.sleep(0.001)
    writer.put(Checkpoint("d", {"step": 2}, {"w": torch.ones(30_000_000)}, {}, {}))
    while not any(file.stat().st_size for file in folder.glob(".*.tmp")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_the_middle_of_a_write_leaves_the_last_whole_one(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=REPOSITORY, check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(tmp_path.glob(".*.tmp"))
    found = read_checkpoint(str(tmp_path / "c.safetensors"))
    assert found is not None
    assert found.state == {"step": 1}
    assert torch.equal(found.model["w"], torch.ones(8))


@pytest.mark.parametrize(
    "kind",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool],
)
def test_the_file_is_what_safetensors_writes_of_the_same_tensors(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = {
        "w": torch.arange(12).reshape(3, 4).t().to(kind),
        "empty": torch.zeros((0, 3), dtype=kind),
        "step": torch.tensor(1).to(kind),
    }
    write_checkpoint(str(tmp_path / "c"), Checkpoint("d", {}, tensors, {}, {}))
    found = safetensors_torch.load((tmp_path / "c").read_bytes()[32:])
    assert found.keys() == {f"model/{name}" for name in tensors}
    for name, tensor in tensors.items():
        assert found[f"model/{name}"].dtype == kind
        assert torch.equal(found[f"model/{name}"], tensor)
