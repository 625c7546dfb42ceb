"""Global-batch on Dask workers: ranks give one model, and a rank that is killed within an epoch costs no bit of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnflow.config import GlobalBatchConfig
from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for, write
from tests.train.on_stores import job_of
from tests.train.pairs_on_stores import config_of
from tests.train.planted import Recording
from tests.train.ranks.test_gang import Killing, assert_a_lost_rank_cost_no_bit, assert_close, nothing_is_left

pytestmark = pytest.mark.distributed

DROPPED = {"kind": "gat", "hidden": 8, "heads": 2, "dropout": 0.4, "layers": 3, "norm": "layer", "residual": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write(folder)
    return folder


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_train_as_one_does(client, folder: Path, ranks: int):
    keys = {"optimizer": "sgd", "lr": 0.3, "class_weight": "balanced", "patience": 20, "epochs": 12}
    whole = train(job_for(folder, **keys), progress=Silent())
    trained = train_on_ranks(job_for(folder, workers=ranks, **keys), client, progress=Recording())
    assert_close(trained.result, whole)
    assert trained.result.metrics["test.accuracy"] == whole.metrics["test.accuracy"]
    nothing_is_left(client)


def test_fewer_ranks_own_more_partitions(client, folder: Path):
    keys = {"optimizer": "sgd", "lr": 0.3, "epochs": 6}
    whole = train(job_for(folder, **keys), progress=Silent())
    job = job_for(folder, workers=4, elastic=True, start_seconds=12, **keys)
    trained = train_on_ranks(job, client, progress=Recording())
    assert [attempt.ranks for attempt in trained.attempts] == [3]
    assert_close(trained.result, whole)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_rank_costs_the_time_since_the_last_checkpoint_and_no_bit(
    client, folder: Path, tmp_path: Path, which: int, *, recompute: bool
):
    keys = {"workers": 2, "epochs": 150, "patience": 0, "checkpoint_steps": 4, "recompute": recompute}
    job = job_for(folder, model=DROPPED, **keys)
    undisturbed = train_on_ranks(job, client, progress=Recording())
    progress = Killing(client, 40, which=which)
    trained = train_on_ranks(replace(job, files=JobFiles(str(tmp_path))), client, progress=progress)
    assert progress.left == 0
    assert_a_lost_rank_cost_no_bit(client, trained, undisturbed, which=which)


def test_a_rank_killed_while_it_learns_links_costs_no_bit(client, tmp_path: Path):
    keys = {"strategy": "global-batch", "metric": "mrr", "epochs": 40, "patience": 0}
    config = config_of(tmp_path, "links")
    job = job_of(config.model_copy(update={"train": GlobalBatchConfig.model_validate(keys)}))
    ranks = {"workers": 2, "checkpoint_steps": 4}
    job = replace(job, train=job.train.model_copy(update=ranks))
    undisturbed = train_on_ranks(job, client, progress=Recording())
    progress = Killing(client, 30, which=1)
    trained = train_on_ranks(replace(job, files=JobFiles(str(tmp_path / "kept"))), client, progress=progress)
    assert progress.left == 0
    assert [attempt.ranks for attempt in trained.attempts] == [2, 2]
    assert trained.result.weights == undisturbed.result.weights
    nothing_is_left(client)
