"""One queue of batches for ranks on Dask workers, from shards, a graph in memory and clusters."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gnnflow.config.pipelines import PIPELINES, load_named
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.gang import train_on_ranks
from tests.small_graphs import write_graph
from tests.train.on_stores import config_of
from tests.train.on_stores import job_of as store_job
from tests.train.planted import Recording
from tests.train.ranks.test_gang import SHARDS, Killing, alone, job_of, nothing_is_left, servers

pytestmark = pytest.mark.distributed

SECONDS = 0.4  # far more than a step takes on a busy machine
LOCAL = {"kind": "local", "workers": 2}


@dataclass(frozen=True)
class Slowed:
    """Opens a source whose steps take longer on one rank."""

    rank: int
    reference: str = ""

    def __call__(self, job, *, edges):
        made = load_named(self.reference)(job, edges=edges) if self.reference else SHARDS.open_source(job, edges=edges)
        return _Slowed(made) if job.share.rank == self.rank else made


class _Slowed:
    def __init__(self, source):
        self.source = source

    def __getattr__(self, name):
        return getattr(self.source, name)

    def __enter__(self):
        self.source.__enter__()
        return self

    def __exit__(self, *raised):
        self.source.__exit__(*raised)

    def step(self, epoch, number, *, share=None):
        time.sleep(SECONDS)
        return self.source.step(epoch, number, share=share)


def stealing(**keys):
    return servers("asynchronous", stealing=True, **keys)


def test_a_rank_that_is_behind_is_helped_and_the_model_learns(client):
    keys = {"batch_size": 8, "epochs": 10, "lr": 0.01, "prefetch": 0}
    job = job_of(SHARDS, workers=2, updater=stealing(servers=2), **keys)
    found = train_on_ranks(job, client, progress=Recording(), open_source=Slowed(1)).result
    assert len(found.history) == 10
    assert found.metrics["test.accuracy"] > alone(job_of(SHARDS, **keys), SHARDS).metrics["test.accuracy"] - 0.1
    assert found.metrics["train.stolen_batches"] > 10
    nothing_is_left(client)


@pytest.mark.parametrize("which", [0, 1, "server-0"])
def test_what_a_killed_rank_had_taken_is_trained_on_by_those_that_go_on(client, tmp_path: Path, which):
    keys = {"batch_size": 8, "workers": 2, "epochs": 12, "checkpoint_steps": 2, "elastic": True}
    job = job_of(SHARDS, updater=stealing(), **keys)
    progress = Killing(client, 30, which=which)
    trained = train_on_ranks(
        replace(job, files=JobFiles(str(tmp_path))), client, progress=progress, open_source=SHARDS.open_source
    )
    assert progress.left == 0
    assert len(trained.attempts) == 2
    # the first server refuses to begin an epoch whose last one has a batch that is not done
    assert [row["epoch"] for row in trained.result.history] == list(range(1, 13))
    assert any("train: goes on from epoch" in text for text in progress.messages)
    nothing_is_left(client)


@pytest.mark.parametrize("strategy", ["mini-batch", "cluster-batch"])
def test_ranks_take_batches_of_the_graph_in_memory_from_one_queue(client, tmp_path: Path, strategy):
    write_graph(tmp_path, num_nodes=120, num_edges=900, hub=3)
    more = {"source": "store", "batch_size": 4} if strategy == "mini-batch" else {"clusters_per_batch": 1}
    train = {"strategy": strategy, "epochs": 3, "workers": 2, "updater": stealing(), "prefetch": 0, **more}
    job = store_job(config_of(tmp_path, "plain", train=train, graph={"partitions": 16}, cluster=LOCAL))
    opened = Slowed(1, PIPELINES[strategy].source)
    found = train_on_ranks(job, client, progress=Recording(), open_source=opened).result
    assert len(found.history) == 3
    assert found.metrics["train.stolen_batches"] > 0
    nothing_is_left(client)
