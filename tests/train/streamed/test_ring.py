"""Training under a budget of memory on a ring of ranks: one model, whoever reads what, and kills cost no bit of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gnnflow.executions.streamed import GroupSizes
from gnnflow.graph.errors import TrainingError
from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for, write
from tests.train.planted import Recording
from tests.train.ranks.test_gang import (
    Killing,
    assert_a_lost_rank_cost_no_bit,
    assert_close,
    nothing_is_left,
    nothing_is_left_soon,
    rows_of,
)
from tests.train.streamed.cutting import TOGETHER, open_cut

pytestmark = pytest.mark.distributed

DROPPED = {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.4, "attention_dropout": 0.3, "layers": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ring")
    write(folder)
    return folder


def on_ring(client, job, *, copies=False, progress=None, together=TOGETHER):
    opened = open_cut(intervals=2, copies=copies, together=together)
    return train_on_ranks(job, client, progress=progress or Recording(), open_source=opened)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_as_global_batch_does(client, folder: Path, ranks: int):
    keys = {"optimizer": "sgd", "lr": 0.3, "class_weight": "balanced", "epochs": 5}
    whole = train(job_for(folder, **keys), progress=Silent())
    trained = on_ring(client, job_for(folder, workers=ranks, memory="1GiB", **keys))
    assert_close(trained.result, whole)
    assert trained.result.metrics["test.accuracy"] == whole.metrics["test.accuracy"]
    nothing_is_left(client)


def test_the_same_seed_gives_the_same_bytes_whoever_reads_what_and_whatever_stays(client, folder: Path):
    job = job_for(folder, model=DROPPED, workers=3, memory="1GiB", epochs=2, baseline=True)
    ways = [(False, TOGETHER), (False, TOGETHER), (True, TOGETHER), (False, GroupSizes()), (True, GroupSizes(1, 4))]
    first, *others = (on_ring(client, job, copies=copies, together=together).result for copies, together in ways)
    for each in others:
        assert each.weights == first.weights
        assert rows_of(each) == rows_of(first)
    nothing_is_left(client)


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_rank_costs_the_time_since_the_last_checkpoint_and_no_bit(
    client, folder: Path, tmp_path: Path, which: int
):
    keys = {"workers": 2, "epochs": 14, "checkpoint_steps": 4, "memory": "1GiB"}
    job = job_for(folder, model=DROPPED, **keys)
    undisturbed = on_ring(client, job)
    progress = Killing(client, 6, which=which)
    trained = on_ring(client, replace(job, files=JobFiles(str(tmp_path))), progress=progress)
    assert progress.left == 0
    assert_a_lost_rank_cost_no_bit(client, trained, undisturbed, which=which)


@pytest.mark.parametrize("after", [0, 60])
def test_a_full_disk_of_one_rank_is_one_error_and_leaves_no_file(client, folder: Path, tmp_path: Path, after: int):
    job = job_for(folder, workers=2, memory="1GiB", scratch=str(tmp_path))
    begin = time.monotonic()
    with pytest.raises(TrainingError, match=f"No space left on device in {tmp_path}, where the files of train.memory"):
        train_on_ranks(job, client, progress=Recording(), open_source=open_cut(intervals=2, full=(1, after)))
    assert time.monotonic() - begin < job.train.step_seconds / 10
    nothing_is_left_soon(client)
    assert not list(tmp_path.iterdir())


def test_a_budget_that_no_rank_can_keep_is_refused_with_the_number(client, folder: Path):
    with pytest.raises(TrainingError, match=r"train\.memory: 33MiB is not enough: \d+MiB are needed"):
        train_on_ranks(job_for(folder, workers=2, memory="33MiB"), client, progress=Recording())
    nothing_is_left_soon(client)
