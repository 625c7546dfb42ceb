"""Ranks on cards: those that share one exchange gradients through the memory of the machine."""

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
from tests.train.ranks.together import together

GRAPH = planted(train_shards=1)


def reduced(group, device):
    tensor = torch.full((5,), group.rank + 1.0, device=device)
    group.meet_on(device)
    return group.own_cards, group.all_reduce(tensor).wait().tolist(), tensor.tolist()


def test_ranks_that_share_a_card_reduce_through_copies_and_one_with_its_own_over_nccl():
    card = torch.device("cuda", 0)
    sums = [3.0] * 5
    assert together(lambda group: reduced(group, card), 2) == [(False, sums, sums)] * 2
    mixed = together(lambda group: reduced(group, card if group.rank else torch.device("cpu")), 2)
    assert mixed == [(False, sums, sums)] * 2
    assert together(lambda group: reduced(group, card), 1) == [(True, [1.0] * 5, [1.0] * 5)]


@pytest.mark.parametrize("updater", [{"kind": "all_reduce"}, {"kind": "parameter_server", "mode": "synchronous"}])
def test_two_ranks_on_one_card_learn_what_one_rank_learns(updater):
    keys = {"epochs": 3, "batch_size": 15, "accumulate": 100, "optimizer": "sgd", "lr": 0.1, "device": "cuda"}
    one, job = job_for(GRAPH, **keys), job_for(GRAPH, workers=2, updater=updater, **keys)
    one, job = (replace(each, model=each.model.model_copy(update={"dropout": 0.0})) for each in (one, job))
    expected = train(one, progress=Recording(), open_source=GRAPH.open_source)
    with Cluster(LocalCluster(workers=2)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=120)
        found, again = (
            train_on_ranks(job, client, progress=Recording(), open_source=GRAPH.open_source).result for _ in range(2)
        )
    assert found.device.startswith("cuda (")
    assert found.weights == again.weights
    for name, weights in decode_weights(expected.weights).items():
        torch.testing.assert_close(decode_weights(found.weights)[name], weights, atol=1e-4, rtol=1e-3)
