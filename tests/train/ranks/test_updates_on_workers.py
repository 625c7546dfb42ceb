"""Schedules, accumulated batches and rows of a table on ranks of a cluster are of one rank's worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnflow.config import LocalCluster
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Features
from gnnflow.layers.model import ModelInputs
from gnnflow.layers.saved import decode_weights
from gnnflow.train.job import JobFiles
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from tests.conftest import ClusterOf
from tests.train.planted import NUM_CLASSES, NUM_NODES, Recording, job_for, planted, with_model

pytestmark = pytest.mark.distributed
GRAPH = planted(train_shards=1)


@pytest.mark.parametrize("updater", [{"kind": "all_reduce"}, {"kind": "parameter_server", "mode": "synchronous"}])
@pytest.mark.parametrize("workers", [2], scope="session")
def test_ranks_follow_a_schedule_and_accumulate(
    updater: dict[str, str], tmp_path, workers: int, cluster_of: ClusterOf
) -> None:
    keys = {
        "epochs": 4,
        "batch_size": 15,
        "accumulate": 100,
        "clip_norm": 0.05,
        "lr": 0.1,
        "optimizer": "sgd",
        "schedule": {"kind": "cosine", "warmup": 1},
        "loss": {"kind": "focal"},
        "checkpoint_steps": 1,
    }
    one = job_for(GRAPH, **keys)
    job = job_for(GRAPH, uri=str(tmp_path), workers=2, updater=updater, **keys)
    one, job = (with_model(each, dropout=0.0) for each in (one, job))
    expected = train(one, progress=Recording(), open_source=GRAPH.open_source)
    client = cluster_of(LocalCluster(workers=workers, memory_limit="2GiB")).dask_client()
    found = train_on_ranks(job, client, progress=Recording(), open_source=GRAPH.open_source).result
    assert [row["lr"] for row in found.history] == [row["lr"] for row in expected.history]
    for name, weights in decode_weights(expected.weights).items():
        torch.testing.assert_close(decode_weights(found.weights)[name], weights, atol=1e-4, rtol=1e-3)
    assert found.history[-1]["train_loss"] == pytest.approx(expected.history[-1]["train_loss"], rel=1e-4)


COLUMNS, ENTRIES = 20_000, 5


def with_sparse_features():
    """The planted graph, each node with a few of very many columns, some of which tell its class."""
    random = np.random.default_rng(2)
    index = random.integers(NUM_CLASSES, COLUMNS, (NUM_NODES, ENTRIES))
    index[:, 0] = GRAPH.labels
    features = Features(COLUMNS, offsets=offsets_of(np.full(NUM_NODES, ENTRIES)), index=index.ravel())
    return replace(GRAPH, neighborhood=replace(GRAPH.neighborhood, features=features))


@pytest.mark.parametrize("workers", [2], scope="session")
def test_ranks_that_pull_rows_of_a_table_from_servers_train_as_one_rank(
    tmp_path, workers: int, cluster_of: ClusterOf
) -> None:
    graph = with_sparse_features()
    keys = {"epochs": 8, "checkpoint_steps": 1, "weight_decay": 0.01}

    def job_with(**more: object):
        job = job_for(graph, uri=str(tmp_path), **keys, **more)
        inputs = ModelInputs(COLUMNS, NUM_CLASSES, sparse=True)
        return with_model(replace(job, model=replace(job.model, inputs=inputs)), dropout=0.0)

    one = replace(
        job_with(batch_size=120), files=JobFiles()
    )  # a step is an epoch, of the same targets on one rank and two
    expected = train(one, progress=Recording(), open_source=graph.open_source)
    updater = {"kind": "parameter_server", "mode": "synchronous", "servers": 2}
    client = cluster_of(LocalCluster(workers=workers, memory_limit="2GiB")).dask_client()
    job = job_with(batch_size=60, workers=2, updater=updater)
    found = train_on_ranks(job, client, progress=Recording(), open_source=graph.open_source).result
    for name, weights in decode_weights(expected.weights).items():
        torch.testing.assert_close(decode_weights(found.weights)[name], weights, atol=2e-4, rtol=1e-3)
    table = COLUMNS * one.model.config.hidden * 4
    assert 0 < found.metrics["train.pulled_bytes_per_step"] < table / 10
    assert 0 < found.metrics["train.pushed_bytes_per_step"] < table / 10
