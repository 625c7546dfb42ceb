"""Schedules and accumulated batches on ranks of a cluster: the same bits each time, and of one rank's worth."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.layers.saved import decode_weights
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.trainer import train
from tests.train.planted import Recording, job_for, planted

pytestmark = pytest.mark.distributed
GRAPH = planted(train_shards=1)


@pytest.mark.parametrize("updater", [{"kind": "all_reduce"}, {"kind": "parameter_server", "mode": "synchronous"}])
def test_ranks_follow_a_schedule_and_accumulate(updater: dict[str, str], tmp_path) -> None:
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
    one, job = (replace(each, model=each.model.model_copy(update={"dropout": 0.0})) for each in (one, job))
    expected = train(one, progress=Recording(), open_source=GRAPH.open_source)
    with Cluster(LocalCluster(workers=2)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=60)
        found = train_on_ranks(job, client, progress=Recording(), open_source=GRAPH.open_source).result
    assert [row["lr"] for row in found.history] == [row["lr"] for row in expected.history]
    for name, weights in decode_weights(expected.weights).items():
        torch.testing.assert_close(decode_weights(found.weights)[name], weights, atol=1e-4, rtol=1e-3)
    assert found.history[-1]["train_loss"] == pytest.approx(expected.history[-1]["train_loss"], rel=1e-4)
