"""Ranks on cards: those that share one exchange gradients through the memory of the machine."""

from __future__ import annotations

import pytest
import torch

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.layers.saved import decode_weights
from gnnflow.train.ranks.gang import train_on_ranks
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.trainer import train
from tests.train.globalbatch.stored import job_for as job_for_stored
from tests.train.globalbatch.stored import write
from tests.train.planted import Recording, job_for, planted, with_model
from tests.train.ranks.together import together
from tests.train.streamed.cutting import open_cut

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


def passed_on(group, device):
    group.meet_on(device)
    rows = torch.arange(6.0, device=device).view(3, 2) + 10 * group.rank
    sent, received = [0] * group.size, [0] * group.size
    sent[(group.rank + 1) % group.size] = received[group.rank - 1] = 3
    found = open_rows(group).begin(rows, sent=sent, received=received).wait()
    return found.device.type, found[0].tolist()


def test_rows_go_round_through_copies_where_ranks_share_a_card_and_else_over_nccl():
    card = torch.device("cuda", 0)
    assert together(lambda group: passed_on(group, card), 2) == [("cuda", [10.0, 11.0]), ("cuda", [0.0, 1.0])]
    assert together(lambda group: passed_on(group, card), 1) == [("cuda", [0.0, 1.0])]  # NCCL, to itself


@pytest.mark.parametrize("scratch", ["memory", "folder"])
def test_a_ring_of_cards_under_a_budget_learns_what_one_holds_in_memory(tmp_path, scratch):
    write(tmp_path)
    keys = {"optimizer": "sgd", "lr": 0.3, "epochs": 5, "device": "cuda"}
    files = str(tmp_path) if scratch == "folder" else None
    whole = train(job_for_stored(tmp_path, **keys), progress=Recording())
    with Cluster(LocalCluster(workers=2)) as cluster:
        client = cluster.dask_client()
        client.wait_for_workers(2, timeout=120)
        job = job_for_stored(tmp_path, workers=2, memory="1GiB", scratch=files, **keys)
        found, again = (
            train_on_ranks(job, client, progress=Recording(), open_source=open_cut(intervals=2)).result
            for _ in range(2)
        )
    assert found.weights == again.weights
    for name, weights in decode_weights(whole.weights).items():
        torch.testing.assert_close(decode_weights(found.weights)[name], weights, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("updater", [{"kind": "all_reduce"}, {"kind": "parameter_server", "mode": "synchronous"}])
def test_two_ranks_on_one_card_learn_what_one_rank_learns(updater):
    keys = {"epochs": 3, "batch_size": 15, "accumulate": 100, "optimizer": "sgd", "lr": 0.1, "device": "cuda"}
    one, job = job_for(GRAPH, **keys), job_for(GRAPH, workers=2, updater=updater, **keys)
    one, job = (with_model(each, dropout=0.0) for each in (one, job))
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
