"""Hybrid training on Dask workers: ranks give one model, and a rank that is killed within an epoch costs no bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for, write
from tests.train.planted import Recording
from tests.train.ranks.test_gang import Killing, assert_a_lost_rank_cost_no_bit, assert_close

pytestmark = pytest.mark.distributed

DROPPED = {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.4, "layers": 2}
MINI = {"strategy": "mini-batch", "parallel": "hybrid", "batch_size": 10}
CLUSTERS = {"strategy": "cluster-batch", "parallel": "hybrid", "boundary_hops": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    write(folder)
    return folder


def test_ranks_train_as_one_of_data_parallel_does(client, folder: Path):
    keys = {"optimizer": "sgd", "lr": 0.3, "class_weight": "balanced", "epochs": 6, "accumulate": 2}
    alone = {**MINI, "parallel": "data", "source": "store"}
    whole = train(job_for(folder, **keys, **alone), progress=Silent())
    trained = train_on_ranks(job_for(folder, workers=2, **keys, **MINI), client, progress=Recording())
    assert_close(trained.result, whole)
    assert trained.result.metrics["test.accuracy"] == whole.metrics["test.accuracy"]


@pytest.mark.parametrize("strategy", [MINI, CLUSTERS], ids=["mini-batch", "cluster-batch"])
def test_a_killed_rank_costs_the_time_since_the_last_checkpoint_and_no_bit(
    client, folder: Path, tmp_path: Path, strategy: dict
):
    job = job_for(folder, model=DROPPED, workers=2, epochs=24, checkpoint_steps=4, **strategy)
    undisturbed = train_on_ranks(job, client, progress=Recording())
    progress = Killing(client, 40, which=1)
    trained = train_on_ranks(replace(job, files=JobFiles(str(tmp_path))), client, progress=progress)
    assert progress.left == 0
    assert_a_lost_rank_cost_no_bit(client, trained, undisturbed, which=1)
