"""Training under a budget in a process of its own: killed in the midst of epochs, and on a disk that is really full."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gnnflow.train.checkpoint import read_checkpoint
from tests.killing import of_a_killed_process
from tests.train.globalbatch.stored import write

pytestmark = [of_a_killed_process, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.5, "attention_dropout": 0.3}
# Five intervals, and pieces of a few edges: an epoch is some hundred reads and writes, and any of them may be the last.
TRAINING = """
import hashlib, json, sys
from pathlib import Path
from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles
from gnnflow.train.streamed import source
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for
from tests.train.streamed.cutting import cut_to
source.plan = cut_to(0)
job = job_for(Path(sys.argv[1]), memory="1GiB", **json.loads(sys.argv[2]))
print(hashlib.sha256(train(job, progress=Silent()).weights).hexdigest())
"""
# The same of instances of metapaths, whose leaves lie in several intervals.
WITH_LEAVES = """
import hashlib, json, sys
from dataclasses import replace
from pathlib import Path
from gnnflow.config import model_from_dict
from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles
from gnnflow.train.streamed import source
from gnnflow.train.trainer import train
from tests.train.streamed.cutting import cut_to
from tests.train.streamed.test_typed_source import case_job
source.plan = cut_to(0, 3)
keys = json.loads(sys.argv[2])
model = model_from_dict({"kind": "magnn", "hidden": 8, "dropout": 0.5, "attention_dropout": 0.3})
job = case_job(Path(sys.argv[1]), "metapaths", **keys["train"])
job = replace(job, model=replace(job.model, config=model), files=JobFiles(keys["uri"]))
print(hashlib.sha256(train(job, progress=Silent()).weights).hexdigest())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streamed")
    write(folder)
    return folder


def command(folder: Path, **keys: object) -> list[str]:
    keys = {"model": MODEL, "epochs": 40, "patience": 0, "checkpoint_steps": 1, **keys}
    return [sys.executable, "-c", TRAINING, str(folder), json.dumps(keys)]


def command_with_leaves(folder: Path, *, uri: str = "", **train: object) -> list[str]:
    train = {"epochs": 8, "checkpoint_steps": 1, **train}
    return [sys.executable, "-c", WITH_LEAVES, str(folder), json.dumps({"train": train, "uri": uri})]


def finished(called: list[str]) -> str:
    return subprocess.run(called, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


def kill_within_an_epoch(called: list[str], kept: Path, *, after: int, pick: random.Random) -> int:
    """Kill a training some time after its checkpoint of an epoch, and return the epoch it would go on from."""
    process = subprocess.Popen(called, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 240  # beside other suites a start alone may take a minute
    while process.poll() is None and time.monotonic() < deadline:
        found = read_checkpoint(str(kept / "train.safetensors"))
        if found is not None and found.state["epoch"] >= after:
            break
    time.sleep(pick.uniform(0, 0.05))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    found = read_checkpoint(str(kept / "train.safetensors"))
    assert found is not None
    return int(found.state["epoch"])


def test_killed_again_and_again_it_ends_with_the_same_weights(folder: Path, tmp_path: Path) -> None:
    kept, scratch = tmp_path / "kept", tmp_path / "scratch"
    scratch.mkdir()
    pick, epochs = random.Random(0), [0]
    called = command(folder, uri=str(kept), scratch=str(scratch))
    for after in (2, 9, 17, 26):
        epochs.append(kill_within_an_epoch(called, kept, after=after, pick=pick))
        assert not list(scratch.iterdir()), "a killed process leaves no file"
    assert epochs == sorted(set(epochs)), "each went on from where the one before was killed"
    assert finished(called) == finished(command(folder))


def test_killed_with_leaves_in_several_intervals_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    kept, pick = tmp_path / "kept", random.Random(1)
    called = command_with_leaves(tmp_path, uri=str(kept))
    first, second = (kill_within_an_epoch(called, kept, after=after, pick=pick) for after in (1, 4))
    assert first < second < 8, "each was killed before it was at its end"
    assert finished(called) == finished(command_with_leaves(tmp_path))


@pytest.mark.parametrize("size", ["4k", "16k", "64k"])
def test_a_disk_that_is_full_is_one_error(folder: Path, tmp_path: Path, size: str) -> None:
    """A file system of so many bytes, which needs a name space of its own where this is not the root user."""
    script = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    alone = [str(shutil.which("unshare")), "--map-root-user", "--mount", "sh", "-c", script, str(tmp_path)]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let a test mount a file system of its own (unshare)")
    called = [*alone, *command(folder, scratch=str(tmp_path), epochs=1)]
    ended = subprocess.run(called, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout
    assert f"train.scratch: No space left on device in {tmp_path}" in ended.stderr
    assert "Free space there, or set train.scratch to a folder of a larger local disk." in ended.stderr
