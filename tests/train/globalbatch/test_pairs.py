"""Pairs of nodes in steps over the whole graph: scores of the plain definition, no leak, the same on any ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gnnflow.config import config_from_dict
from gnnflow.executions import reference
from gnnflow.executions.globalbatch import PlacedTensors
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.graphfeature.exclusion import keeping
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.train.globalbatch import open_source, pairs
from gnnflow.train.globalbatch.pairs import HiddenPairs
from gnnflow.train.minibatch import hold_graph
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.ranks.rows import open_rows
from gnnflow.train.trainer import train
from gnnflow.train.updater import LocalUpdater
from tests.train.globalbatch.stepping import fresh, opened, stepped
from tests.train.on_stores import job_of, resumes_to_the_same_weights
from tests.train.pairs_on_stores import CASES, config_of
from tests.train.ranks.together import together

WHOLE = {"strategy": "global-batch", "lr": 0.05, "optimizer": "sgd"}


pytestmark = pytest.mark.usefixtures("one_thread")


def whole_config(folder: Path, case: str, *, train=None, **sections):
    keys = {**WHOLE, **(train or {})}
    content = config_of(folder, case, **sections).model_dump(mode="json")
    kept = {name: content["train"][name] for name in ("epochs", "metric")}
    return config_from_dict({**content, "train": {**kept, **keys}})


def write_chance(folder: Path, *, size: int = 300, num_edges: int = 900):
    """Write nodes with features of chance, and edges of chance in both directions."""
    rng = np.random.default_rng(4)
    x, ends = rng.normal(size=(size, 6)).astype(np.float32), rng.integers(0, size, (num_edges, 2))
    columns = {"id": np.arange(size), "x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 6)}
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    ends = np.concatenate([ends, ends[:, ::-1]])
    pq.write_table(pa.table({"src": ends[:, 0], "dst": ends[:, 1]}), folder / "edges.parquet")


def without_the_pairs(graph, source, target):
    """The whole graph without any edge between two ends, told one by one."""
    edges = graph.neighborhood.edges
    gone = {frozenset(pair) for pair in zip(source.tolist(), target.tolist(), strict=True)}
    into = np.repeat(np.tile(np.arange(edges.num_targets), edges.num_relations), edges.lengths)
    ends = zip(edges.sources.tolist(), into.tolist(), strict=True)
    kept = np.array([frozenset(pair) not in gone for pair in ends], bool)
    block = keeping(Block(edges, edges.num_targets), kept)
    return WholeGraph(block, graph.neighborhood.degrees, graph.neighborhood.features), int((~kept).sum())


@pytest.mark.table(6)
@pytest.mark.parametrize("case", CASES)
def test_a_step_scores_its_pairs_in_the_graph_without_them(tmp_path: Path, case: str):
    job = job_of(whole_config(tmp_path, case))
    model, graph = fresh(job).eval(), hold_graph(job.neighbors)
    trained = []
    with open_source(job) as source:
        stored = source.pairs.stored
        for step in source.steps(1, since=0):
            places = step.batch.places
            hidden = places if case != "labels" else places[:0]
            whole, gone = without_the_pairs(graph, stored.sources[hidden], stored.targets[hidden])
            assert bool(gone) == (case != "labels")
            rows = reference.forward(model, whole)
            candidates = source.pairs.candidates(places, pool=step.batch.pool, epoch=1)
            columns = candidates.shape[1]
            ends = (rows[np.repeat(stored.sources[places], columns)], rows[candidates.ravel()])
            attributes = None
            if model.inputs.decoder.attribute_width:
                attributes = torch.from_numpy(stored.attributes[places])
            expected = model.score(*ends, attributes).reshape(len(places), -1)
            found = step.logits(model)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            loss = Objective(job.label_kind).loss
            wanted, got = (
                torch.autograd.grad(loss(each, step.labels)[0], list(model.parameters()), allow_unused=True)
                for each in (expected, found)
            )
            for one, other in zip(got, wanted, strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            trained.append(places)
    assert len(trained) == (1 if case == "labels" else 4)
    assert np.array_equal(np.sort(np.concatenate(trained)), stored.of("train"))


def losses_and_scores(source, job, updater_of):
    """Return the losses of two epochs' steps, the weights after them, and the scores of each split."""
    model = fresh(job)
    return stepped(source, model, Objective(job.label_kind), updater_of(model), epochs=2)


def assert_ranks_step_as_one(job, size: int, *, is_placed: bool):
    def on(group):
        with opened(open_source, job, group) as source:
            (layers,) = {type(each) for each in source.shares[0].batch(0).tensors.layers}
            assert (layers is PlacedTensors) == is_placed
            return losses_and_scores(
                source, job, lambda made: LocalUpdater(made, job.train, exchange=AllReduce(made, group, is_joint=True))
            )

    with open_source(job) as source:
        losses, weights, outputs = losses_and_scores(source, job, lambda made: LocalUpdater(made, job.train))
    for found in together(on, size):
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        for name, value in weights.items():
            torch.testing.assert_close(found[1][name], value, rtol=1e-4, atol=1e-5, msg=name)
        for split, (targets, labels, logits) in outputs.items():
            assert np.array_equal(found[2][split][0], targets)
            assert np.array_equal(found[2][split][1], labels)
            np.testing.assert_allclose(found[2][split][2], logits, rtol=1e-3, atol=1e-4)


@pytest.mark.table(10)
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_ranks_take_the_steps_of_one(tmp_path: Path, case: str, size: int):
    job = job_of(whole_config(tmp_path, case, train={"recompute": size == 4}))
    assert_ranks_step_as_one(job, size, is_placed=False)


@pytest.mark.table(4)
@pytest.mark.parametrize("partition", [{"kind": "edge_1d", "by": "source"}, {"kind": "vertex_cut"}])
@pytest.mark.parametrize("size", [2, 4])
def test_edges_of_a_fold_are_left_out_where_edges_are_placed_too(tmp_path: Path, partition, size: int, monkeypatch):
    monkeypatch.setattr("gnnflow.executions.globalbatch.batch.is_fewer_bytes", lambda *_, **__: True)
    job = job_of(whole_config(tmp_path, "links", partition=partition))
    assert_ranks_step_as_one(job, size, is_placed=True)


@pytest.mark.table(2)
@pytest.mark.parametrize("kind", ["uniform", "degree", "in_batch"])
def test_negatives_are_a_function_of_seed_epoch_and_pair(tmp_path: Path, kind: str):
    negatives = {"kind": kind, "pool": 40, "evaluation": 10, "per_edge": 3}
    job = job_of(whole_config(tmp_path, "links", task={"negatives": negatives}))

    def drawn(exchange_or_group=None):
        opened = open_source(job, exchange=exchange_or_group and open_rows(exchange_or_group))
        pairs, found = opened.pairs, {}
        for fold in range(pairs.num_folds):
            places = pairs.of_fold(fold)
            for epoch in range(2):
                held = pairs.candidates(places, pool=fold, epoch=epoch)
                found |= {(epoch, key): row.tolist() for key, row in zip(pairs.stored.keys[places], held, strict=True)}
        return found

    alone = drawn()
    ranks = together(drawn, 2)
    assert {key: row for each in ranks for key, row in each.items()} == alone
    first, second = ([row for (epoch, _), row in alone.items() if epoch == number] for number in (0, 1))
    assert first != second
    assert all(len(row) == 4 for row in first)


def test_the_same_seed_gives_the_same_bytes_and_a_killed_training_ends_on_them(tmp_path: Path):
    config = whole_config(tmp_path, "links", train={"checkpoint_steps": 1, "optimizer": "adam"})
    runs = {train(job_of(config), progress=Silent()).weights for _ in range(2)}
    assert len(runs) == 1
    resumes_to_the_same_weights(config, str(tmp_path / "checkpoints"), open_source=open_source)


@pytest.mark.slow
def test_without_exclusion_training_learns_to_look_for_the_edge_itself(tmp_path: Path, monkeypatch):
    """The planted leak: on a graph of chance the only thing to learn is whether the edge is there."""
    negatives = {"kind": "uniform", "pool": 3000, "evaluation": 30}  # a small one could be learned by heart
    keys = {"epochs": 40, "patience": 0, "optimizer": "adam", "lr": 0.02}
    config = whole_config(tmp_path, "links", train=keys, task={"negatives": negatives})
    write_chance(tmp_path)
    honest = train(job_of(config), progress=Silent()).history[-1]["train_loss"]
    monkeypatch.setattr(HiddenPairs, "left_out_of", lambda _, blocks: list(blocks))
    leaking = train(job_of(config), progress=Silent()).history[-1]["train_loss"]
    assert leaking < honest - 0.05


@pytest.mark.table(2)
@pytest.mark.parametrize("case", ["links", "hidden labels", "typed links"])
def test_a_held_out_edge_that_carries_messages_is_caught(tmp_path: Path, case: str, monkeypatch):
    read = pairs.read_pairs

    def leaking(store, partitions):
        stored = read(store, partitions)
        splits = stored.splits.copy()
        splits[np.flatnonzero(splits == 0)[-1]] = 1
        return replace(stored, splits=splits)

    monkeypatch.setattr(pairs, "read_pairs", leaking)
    with pytest.raises(TrainingError, match=r"the valid edge from node number .* its score is computed from"):
        train(job_of(whole_config(tmp_path, case)), progress=Silent())


@pytest.mark.table(4)
@pytest.mark.parametrize("case", ["links", "labels", "typed links", "typed labels"])
def test_a_run_is_certified_and_has_a_baseline(tmp_path: Path, case: str):
    config = whole_config(tmp_path, case, train={"baseline": True, "epochs": 4, "optimizer": "adam"})
    metrics = pipeline.run_quietly(config).metrics
    assert metrics["infer.parity_max_difference"] < 1e-4
    assert any(name.startswith("baseline.test.") for name in metrics)


def test_times_are_refused_with_what_to_set(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"train.strategy: .*its row differs at each time.*mini-batch"):
        whole_config(tmp_path, "labels", task={"split": {"kind": "time", "valid": 0.1, "test": 0.1}})
