"""A run that is killed and started again ends on the same bytes, and never does finished work twice."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.shards import Shard
from gnnflow.train.checkpoint import read_checkpoint
from gnnflow.train.job import JobFiles
from gnnflow.train.minibatch import open_source
from gnnflow.train.trainer import TrainResult, train
from tests.killing import of_a_killed_process
from tests.train.planted import Planted, Recording, job_for, planted, without_times

GRAPH = planted(train_shards=8)
KEYS = {"epochs": 4, "batch_size": 8, "cache": 0}


class Unplugged:
    """Reads shards until the plug is pulled."""

    def __init__(self, graph: Planted, reads: int) -> None:
        self.graph = graph
        self.left = reads

    def __call__(self, entry: ShardEntry) -> Shard:
        if self.left == 0:
            raise StorageError("the plug was pulled")
        self.left -= 1
        return self.graph.read(entry)


def digest(weights: bytes) -> str:
    return hashlib.sha256(weights).hexdigest()


@pytest.mark.table(6)
@pytest.mark.parametrize("kind", ["sage", "gat"])
@pytest.mark.parametrize("checkpoint_steps", [1, 3, 7])
def test_many_interruptions_change_nothing(tmp_path: Path, kind: str, checkpoint_steps: int) -> None:
    resumes_to_the_same_bytes(tmp_path, kind=kind, checkpoint_steps=checkpoint_steps)


@pytest.mark.table(18)
@pytest.mark.parametrize("checkpoint_steps", [1, 7])
@pytest.mark.parametrize(
    "settings",
    [{"accumulate": 3, "clip_norm": 0.5}, {"accumulate": 100}, {"accumulate": 3, "precision": "bfloat16"}],
    ids=["groups of three, clipped", "one group per epoch", "bfloat16"],
)
def test_interruptions_within_an_update_change_nothing(
    tmp_path: Path, checkpoint_steps: int, settings: dict[str, object]
) -> None:
    resumes_to_the_same_bytes(tmp_path, kind="sage", checkpoint_steps=checkpoint_steps, **settings)


@pytest.mark.table(10)
@pytest.mark.parametrize("checkpoint_steps", [1, 7, 16])
@pytest.mark.parametrize(
    "schedule",
    [
        {"kind": "linear", "warmup": 1.5},
        {"kind": "cosine", "warmup": 0.5, "floor": 0.1},
        {"kind": "plateau", "patience": 1, "factor": 0.3},
    ],
    ids=lambda schedule: str(schedule["kind"]),
)
def test_interruptions_leave_the_learning_rate_as_it_was(
    tmp_path: Path, checkpoint_steps: int, schedule: dict[str, object]
) -> None:
    settings = {"schedule": schedule, "accumulate": 2, "metric": "loss", "lr": 3.0}
    resumed = resumes_to_the_same_bytes(tmp_path, kind="sage", checkpoint_steps=checkpoint_steps, **settings)
    assert len({row["lr"] for row in resumed.history}) > 1


def resumes_to_the_same_bytes(tmp_path: Path, **settings: object) -> TrainResult:
    keys = {**KEYS, **settings}
    undisturbed = train(job_for(GRAPH, **keys), progress=Recording(), open_source=GRAPH.open_source)
    job = job_for(GRAPH, uri=str(tmp_path), **keys)
    resumed, attempts = None, 0
    while resumed is None:
        attempts += 1
        try:
            resumed = train(job, progress=Recording(), open_source=partial(open_source, read=Unplugged(GRAPH, 15)))
        except StorageError:
            continue
    assert attempts > 2
    assert digest(resumed.weights) == digest(undisturbed.weights)
    assert resumed.best_epoch == undisturbed.best_epoch
    for one, two in zip(resumed.history, undisturbed.history, strict=True):
        assert without_times(one) == without_times(two)
    return resumed


def test_a_finished_fit_is_not_repeated(tmp_path: Path) -> None:
    job = job_for(planted(), uri=str(tmp_path), baseline=True, epochs=3)
    first = train(job, progress=Recording(), open_source=planted().open_source)
    progress = Recording()
    second = train(job, progress=progress, open_source=planted().open_source)
    assert second.weights == first.weights
    assert second.metrics == first.metrics
    assert progress.steps == []


def test_training_begins_again_where_its_checkpoint_is_damaged(tmp_path: Path) -> None:
    graph, job = planted(), job_for(planted(), uri=str(tmp_path), epochs=2)
    first = train(job, progress=Recording(), open_source=graph.open_source)
    (held,) = tmp_path.glob("*.safetensors")
    held.write_bytes(b"\0" * held.stat().st_size)
    progress = Recording()
    again = train(job, progress=progress, open_source=graph.open_source)
    assert again.weights == first.weights
    (said,) = (message for message in progress.messages if "starts anew" in message)
    assert held.name in said
    assert "its content is not what was written" in said
    assert read_checkpoint(str(held)) is not None


def test_a_checkpoint_of_another_job_is_not_used(tmp_path: Path) -> None:
    graph = planted()
    train(job_for(graph, uri=str(tmp_path), epochs=2), progress=Recording(), open_source=graph.open_source)
    progress = Recording()
    other = replace(job_for(graph, uri=str(tmp_path), epochs=2), seed=99)
    found = train(other, progress=progress, open_source=graph.open_source)
    fresh = train(replace(other, files=JobFiles()), progress=Recording(), open_source=graph.open_source)
    assert "train: the checkpoint belongs to another job and is not used" in progress.messages
    assert found.weights == fresh.weights


def test_checkpoints_on_object_storage_resume() -> None:
    graph = planted()
    uri = f"memory://resume/{uuid.uuid4().hex}"
    job = job_for(graph, uri=uri, epochs=3)
    first = train(job, progress=Recording(), open_source=graph.open_source)
    assert train(job, progress=Recording(), open_source=graph.open_source).weights == first.weights


KILLED = """
import json, sys
from tests.train.planted import Recording, job_for, planted
from gnnflow.train.trainer import train
graph = planted()
job = job_for(graph, uri=sys.argv[1], **json.loads(sys.argv[2]))
train(job, progress=Recording(), open_source=graph.open_source)
"""


@of_a_killed_process
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": {"kind": "cosine", "warmup": 2}, "accumulate": 2, "clip_norm": 0.5},
        {"schedule": {"kind": "plateau", "patience": 2}, "accumulate": 3, "loss": {"kind": "focal"}},
    ],
    ids=["plain", "cosine", "plateau"],
)
def test_a_killed_process_continues_to_the_same_weights(tmp_path: Path, settings: dict[str, object]) -> None:
    graph = planted()
    keys = {"epochs": 150, "patience": 0, "checkpoint_steps": 3, **settings}
    job = job_for(graph, **keys)
    undisturbed = train(job, progress=Recording(), open_source=graph.open_source)
    repository = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), json.dumps(keys)], cwd=repository)
    deadline = time.monotonic() + 240  # beside other suites a start alone may take a minute
    while time.monotonic() < deadline and process.poll() is None:
        found = read_checkpoint(str(tmp_path / "train.safetensors"))
        if found is not None and found.state["epoch"] >= 3 and found.state["step"] > 0:
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL

    progress = Recording()
    resumed = train(replace(job, files=JobFiles(str(tmp_path))), progress=progress, open_source=graph.open_source)
    assert any("goes on from epoch" in text for text in progress.messages)
    assert digest(resumed.weights) == digest(undisturbed.weights)
