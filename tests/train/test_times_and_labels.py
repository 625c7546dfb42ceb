"""Pairs whose edges have times, and edges that have labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gnnflow.graph.errors import TrainingError
from gnnflow.graphfeature.times import ALL_EARLIER, TimedBatch, build_before
from gnnflow.layers.model import Model
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch import pairs as pair_batches
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording
from tests.train.planted_links import Links, link_job, links, message_graph
from tests.train.planted_times import Edges, edge_job, timed_edges, timed_job

GRAPH = timed_edges()
COLUMN = {"split": {"kind": "column", "earlier_only": True}}


def trained(graph: Edges, job: TrainJob) -> TrainResult:
    return train(job, progress=Recording(), open_source=graph.open_source)


def fresh(job: TrainJob) -> Model:
    return job.model.build(seed=0).eval()


def scores(graph: Edges, job: TrainJob, split: str) -> np.ndarray:
    with graph.open_source(replace(job, graph=replace(job.graph, entries=graph.entries())), edges=True) as source:
        return source.outputs(fresh(job), split).logits


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("task", [COLUMN, {"split": {"kind": "time"}}], ids=["column", "time"])
def test_a_pair_is_scored_as_in_the_graph_that_was_there_before_it(split: str, task: dict[str, object]) -> None:
    job = timed_job(GRAPH, task=task)
    together = scores(GRAPH, job, split)
    plain = timed_job(GRAPH, task={})
    for number in range(0, len(together), 11):
        alone = scores(GRAPH.alone(split, number), plain, "train")
        np.testing.assert_allclose(together[number], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("messages", [True, False])
def test_an_edge_is_judged_as_in_the_graph_that_was_there_before_it(messages: bool) -> None:
    job = edge_job(GRAPH, task={**COLUMN, "messages": messages})
    together, plain = scores(GRAPH, job, "train"), edge_job(GRAPH)
    for number in range(0, len(together), 17):
        alone = scores(GRAPH.alone("train", number), plain, "train")
        np.testing.assert_allclose(together[number], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_where_all_edges_carry_messages_held_out_ones_see_earlier_held_out_ones(split: str) -> None:
    graph = timed_edges(all_carry=True)
    together, plain = scores(graph, edge_job(graph, task={"split": {"kind": "time"}}), split), edge_job(graph)
    for number in range(0, len(together), 7):
        alone = graph.alone(split, number, carrying=("train", "valid", "test"))
        np.testing.assert_allclose(together[number], scores(alone, plain, "train")[0], rtol=1e-4, atol=1e-5)


def test_links_of_times_are_learned() -> None:
    result = trained(GRAPH, timed_job(GRAPH))
    assert result.metrics["test.roc_auc"] > 0.7


def test_a_later_edge_in_a_neighbourhood_stops_training_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(neighborhood, rows, before, **keys) -> TimedBatch:  # type: ignore[no-untyped-def]
        # every edge is taken, and each row still says from when on it should not have been
        groups = np.unique(before, return_inverse=True)[1]
        built = build_before(neighborhood, rows[groups == 0], np.full(sum(groups == 0), ALL_EARLIER), **keys)
        return replace(built, cuts=np.full_like(built.cuts, before.min()))

    monkeypatch.setattr(pair_batches, "build_before", careless)
    with pytest.raises(TrainingError, match=r"the edge of time \d+ from node number \d+ to \d+ is among those that"):
        trained(GRAPH, timed_job(GRAPH))


def test_a_held_out_edge_put_back_among_the_messages_stops_training_and_is_named() -> None:
    graph = timed_edges(leak=True)
    time = graph.neighborhood.edges.time
    assert time is not None
    with pytest.raises(TrainingError, match=rf"edge of time {time.max()} from node .* valid edges .* scored from"):
        trained(graph, timed_job(graph))


@pytest.mark.parametrize("make", [timed_job, edge_job])
def test_batches_ranks_and_prefetch_do_not_change_what_scoring_gives(make) -> None:  # type: ignore[no-untyped-def]
    job = make(GRAPH, task=COLUMN)
    whole = scores(GRAPH, job, "train")
    small = replace(job, train=job.train.model_copy(update={"eval_batch_size": 13, "prefetch": 0}))
    np.testing.assert_allclose(scores(GRAPH, small, "train"), whole, rtol=1e-4, atol=1e-5)
    parts = [scores(GRAPH, job.of_rank(rank, 3), "train") for rank in range(3)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [timed_job, edge_job])
def test_equal_jobs_give_equal_weights(make) -> None:  # type: ignore[no-untyped-def]
    weights = [trained(GRAPH, make(GRAPH, task=COLUMN, epochs=2, prefetch=ahead)).weights for ahead in (0, 3)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("decoder", [{"kind": "mlp", "hidden": 16}, {"kind": "distmult"}])
def test_labels_of_edges_are_learned_from_attributes_where_the_decoder_reads_them(decoder: dict[str, object]) -> None:
    job = edge_job(GRAPH, task={"decoder": decoder}, epochs=40, class_weight="balanced")
    metrics = trained(GRAPH, job).metrics
    assert {"test.accuracy", "test.macro_f1", "test.roc_auc"} <= metrics.keys()
    assert (metrics["test.accuracy"] > 0.8) == (decoder["kind"] == "mlp")


def test_numbers_of_edges_are_learned() -> None:
    numbers = {split: held[:, 0] * 2 for split, held in GRAPH.attributes.items()}
    graph = replace(GRAPH, labels=numbers)
    job = replace(edge_job(graph, outputs=1, epochs=60), label_kind="regression", num_classes=1)
    job = replace(job, train=job.train.model_copy(update={"metric": "rmse"}))
    assert trained(graph, job).metrics["test.rmse"] < 0.5 * np.std(numbers["test"])


@pytest.mark.parametrize("messages", [True, False])
def test_messages_say_whether_an_edge_is_seen_where_it_is_judged(messages: bool) -> None:
    graph = GRAPH.without_times()
    job, x = edge_job(graph, task={"messages": messages}), graph.neighborhood.features.dense
    assert x is not None
    only = replace(graph.only("train", 0), have_times=False)
    absent = replace(only, neighborhood=message_graph(graph.pairs["train"][1:], x))
    same = np.allclose(scores(only, job, "train"), scores(absent, job, "train"), rtol=1e-4, atol=1e-5)
    assert same == (not messages)


def test_a_held_out_edge_without_messages_of_its_own_is_caught() -> None:
    graph = timed_edges(all_carry=True).without_times()
    with pytest.raises(TrainingError, match=r"valid edge from node number .* its score is computed from"):
        trained(graph, edge_job(graph, task={"messages": False}))
    assert trained(graph, edge_job(graph, task={"messages": True}, epochs=1)).metrics


def test_a_baseline_without_edges_asks_no_times() -> None:
    job = timed_job(GRAPH, task=COLUMN, epochs=1)
    with GRAPH.open_source(job, edges=False) as source:
        assert len(source.outputs(fresh(job), "valid").logits) == len(GRAPH.pairs["valid"])


def test_a_planted_reverse_of_a_target_edge_makes_scores_jump_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out edges keep their reverse among the messages of a graph of chance: without the guard that is learned."""
    honest = links(chance=True)
    x = honest.neighborhood.features.dense
    assert x is not None
    pairs = np.concatenate(list(honest.pairs.values()))
    leaking = Links(message_graph(pairs, x), honest.pairs)

    def auc(graph: Links) -> float:
        job = link_job(graph, epochs=40, task={"decoder": {"kind": "dot"}})
        return float(train(job, progress=Recording(), open_source=graph.open_source).metrics["test.roc_auc"])

    with pytest.raises(TrainingError, match=r"valid edge from node number \d+ to \d+ is among the edges"):
        auc(leaking)
    monkeypatch.setattr(pair_batches, "without_pairs", lambda batch, _: batch)
    monkeypatch.setattr(pair_batches, "pairs_seen", lambda *_: np.zeros(0, np.int64))
    assert auc(leaking) > auc(honest) + 0.1
