from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from gnnflow.config import LinkTask
from gnnflow.graph.errors import TrainingError
from gnnflow.layers.model import Model
from gnnflow.train.metrics import metrics_of
from gnnflow.train.minibatch import pairs as pair_batches
from gnnflow.train.minibatch.loader import Batch
from gnnflow.train.objective import Objective
from gnnflow.train.trainer import TrainResult, train
from tests.train.planted import Recording
from tests.train.planted_links import Links, link_job, links, message_graph

GRAPH = links()


def trained(graph: Links, **keys: object) -> TrainResult:
    return train(link_job(graph, **keys), progress=Recording(), open_source=graph.open_source)  # type: ignore[arg-type]


@pytest.mark.table(4)
@pytest.mark.parametrize("decoder", ["dot", "distmult", "mlp"])
@pytest.mark.parametrize("negatives", ["uniform", "degree", "in_batch"])
def test_links_are_learned_with_every_decoder_and_kind_of_negatives(decoder: str, negatives: str) -> None:
    task = {"decoder": {"kind": decoder}, "negatives": {"kind": negatives, "evaluation": 60, "per_edge": 2}}
    result = trained(GRAPH, task=task)
    assert result.metrics["test.roc_auc"] > 0.75
    assert result.metrics["test.mrr"] > 2 * np.mean(1 / np.arange(1, 62))


def test_a_graph_of_chance_is_scored_as_one() -> None:
    result = trained(links(chance=True), epochs=40, patience=0)
    assert abs(result.metrics["test.roc_auc"] - 0.5) < 0.12


def test_without_exclusion_training_learns_to_look_for_the_edge_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted leak: on a graph of chance the only thing to learn is whether the edge is in the blocks."""
    graph = links(chance=True)
    honest = trained(graph, epochs=40, patience=0).history[-1]["train_loss"]
    monkeypatch.setattr(pair_batches, "without_pairs", lambda batch, _: batch)
    leaking = trained(graph, epochs=40, patience=0).history[-1]["train_loss"]
    assert leaking < honest - 0.05


def test_a_held_out_edge_that_carries_messages_is_caught() -> None:
    graph = links(leak=True)
    with pytest.raises(TrainingError, match=r"valid edge from node number .* its score is computed from"):
        trained(graph)


def test_a_score_does_not_depend_on_whether_the_graph_has_the_edge() -> None:
    job = link_job(GRAPH)
    model = job.model.build(seed=0).eval()
    x = GRAPH.neighborhood.features.dense
    assert x is not None
    edges = GRAPH.pairs["train"]
    pairs = edges[:1]
    graphs = [Links(message_graph(kept, x), {"train": pairs}) for kept in (edges, edges[1:])]
    found = []
    for graph in graphs:
        with graph.open_source(replace(job, graph=replace(job.graph, entries=graph.entries())), edges=True) as source:
            found.append(source.outputs(model, "train").logits)
    np.testing.assert_array_equal(*found)


def test_batches_do_not_change_what_scoring_gives() -> None:
    job = link_job(GRAPH)
    model = job.model.build()
    scores = []
    for size in (7, 1000):
        sized = replace(job, train=job.train.model_copy(update={"eval_batch_size": size}))
        with GRAPH.open_source(sized, edges=True) as source:
            scores.append(source.outputs(model, "valid").logits)
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_a_step_is_a_function_of_seed_epoch_and_step() -> None:
    job = link_job(GRAPH)
    with GRAPH.open_source(job, edges=True) as source:
        passed = [step.batch.head.candidates for step in source.steps(2, since=0)]
        resumed = [step.batch.head.candidates for step in source.steps(2, since=1)]
        other = [step.batch.head.candidates for step in source.steps(3, since=0)]
    assert len(passed) == source.steps_per_epoch
    for one, again in zip(passed[1:], resumed, strict=True):
        np.testing.assert_array_equal(one, again)
    assert any(one.shape != another.shape or (one != another).any() for one, another in zip(passed, other, strict=True))


def test_equal_jobs_give_equal_weights_whatever_is_prefetched() -> None:
    assert trained(GRAPH, epochs=3, prefetch=0).weights == trained(GRAPH, epochs=3, prefetch=4).weights


def test_the_loss_is_binary_cross_entropy_of_edges_and_negatives() -> None:
    logits = torch.randn(9, 2)
    truth = torch.tensor([1.0, 0.0]).expand(9, 2)
    found, count = Objective("link").loss(logits, np.zeros(9, np.int64))
    assert count == 9
    torch.testing.assert_close(found, functional.binary_cross_entropy_with_logits(logits, truth))


def test_metrics_are_those_of_a_plain_definition() -> None:
    logits = np.random.default_rng(0).normal(size=(200, 61)).astype(np.float32)
    logits[:, 0] += 1
    logits[:20, 1:] = 0.0
    logits[:20, 0] = 0.0  # ties: the middle of the ranks they could have
    ranks = [1 + (row[1:] > row[0]).sum() + (row[1:] == row[0]).sum() / 2 for row in logits]
    found = metrics_of(logits, np.zeros(200, np.int64), label_kind="link", intervals=True)
    assert found.values["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    for most in (1, 10, 50):
        assert found.values[f"hits_at_{most}"] == pytest.approx(np.mean([rank <= most for rank in ranks]))
    truth = np.zeros(logits.shape)
    truth[:, 0] = 1
    assert found.values["roc_auc"] == pytest.approx(roc_auc_score(truth.ravel(), logits.ravel()))
    for name, (low, high) in found.intervals.items():
        assert low < found.values[name] < high


def test_hits_among_fewer_pairs_than_places_are_no_number() -> None:
    found = metrics_of(np.zeros((5, 11), np.float32), np.zeros(5, np.int64), label_kind="link")
    assert "hits_at_50" not in found.values
    assert any("every rank is within 50" in note for note in found.notes)


def test_negatives_of_the_task_are_per_edge() -> None:
    task = LinkTask.model_validate({"negatives": {"kind": "uniform", "per_edge": 3}})
    job = replace(link_job(GRAPH), task=task)
    with GRAPH.open_source(job, edges=True) as source:
        step = next(iter(source.steps(0, since=0)))
    assert step.batch.head.candidates.shape == (len(step.targets), 4)


def test_ranks_score_a_split_in_parts_that_follow_each_other() -> None:
    job = link_job(GRAPH)
    model = job.model.build()
    with GRAPH.open_source(job, edges=True) as source:
        whole = source.outputs(model, "valid")
    parts = []
    for rank in range(3):
        with GRAPH.open_source(job.of_rank(rank, 3), edges=True) as source:
            parts.append(source.outputs(model, "valid"))
    np.testing.assert_array_equal(np.concatenate([part.targets for part in parts]), whole.targets)
    found = np.concatenate([part.logits for part in parts])
    np.testing.assert_allclose(found, whole.logits, rtol=1e-4, atol=1e-5)


def test_a_killed_run_ends_on_the_weights_of_an_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"epochs": 4, "checkpoint_steps": 1}
    undisturbed = trained(GRAPH, **keys)
    job, taken = link_job(GRAPH, uri=str(tmp_path), **keys), []  # type: ignore[arg-type]
    honest = Batch.logits

    def killed(batch: Batch, model: Model) -> torch.Tensor:
        taken.append(model.training)
        if sum(taken) == 7:
            raise KeyboardInterrupt
        return honest(batch, model)

    with monkeypatch.context() as patched:
        patched.setattr(Batch, "logits", killed)
        with pytest.raises(KeyboardInterrupt):
            train(job, progress=Recording(), open_source=GRAPH.open_source)
    heard = Recording()
    resumed = train(job, progress=heard, open_source=GRAPH.open_source)
    assert any("goes on from epoch" in message for message in heard.messages)
    assert resumed.weights == undisturbed.weights
