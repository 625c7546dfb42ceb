"""Cluster-batch: steps are clusters drawn by the epoch, outputs those of whole neighbourhoods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.config import Config, MiniBatchConfig
from gnnflow.config.stages import stages_of
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.stages import pipeline
from gnnflow.train.clusterbatch import open_cluster_source
from gnnflow.train.clusterbatch.plan import check_clusters, plan_clusters
from gnnflow.train.minibatch import hold_graph, open_store_source
from tests.small_graphs import write_graph
from tests.train.on_stores import config_of, job_of, resumes_to_the_same_weights

CLUSTERS: dict[str, Any] = {"strategy": "cluster-batch", "epochs": 4, "lr": 0.05}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_graph(tmp_path, num_nodes=120, num_edges=900)
    return tmp_path


def clusters_of(folder: Path, which: str = "plain", *, partitions: int = 8, **train: Any) -> Config:
    return config_of(folder, which, graph={"partitions": partitions}, train={**CLUSTERS, **train})


@pytest.mark.parametrize("per_batch", [1, 3])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_every_cluster_with_targets_comes_once_per_epoch_dealt_to_equal_numbers_of_steps(per_batch, num_ranks):
    numbers = np.array([1, 2, 3, 5, 8, 9, 12, 13, 14, 20])
    plan = plan_clusters(numbers, per_batch=per_batch, seed=3, num_ranks=num_ranks)
    epochs = []
    for epoch in (0, 1, 0):
        groups = [plan.groups(epoch, rank) for rank in range(num_ranks)]
        assert len({len(each) for each in groups}) == 1
        drawn = [group for each in groups for group in each]
        assert all(len(group) >= min(per_batch, len(numbers) // num_ranks) for group in drawn)
        np.testing.assert_array_equal(np.sort(np.concatenate(drawn)), numbers)
        epochs.append(np.concatenate(drawn).tolist())
    assert epochs[0] == epochs[2] != epochs[1]


def test_steps_have_the_training_targets_of_their_clusters_and_no_others(folder: Path) -> None:
    job = job_of(clusters_of(folder, clusters_per_batch=2, boundary_hops=1))
    facts, held = job.neighbors.store.facts, hold_graph(job.neighbors)
    with open_cluster_source(job) as source:
        groups = source.plan(0, 0)
        steps = list(source.steps(0, since=0))
        later = list(source.steps(0, since=2))
    assert len(steps) == len(groups) == source.steps_per_epoch == 4
    for group, step in zip(groups, steps, strict=True):
        assert set(facts.cluster_book.number(step.targets).tolist()) <= set(group.tolist())
        assert len(step.features) >= len(step.targets) == len(step.labels)
    taken = np.concatenate([step.targets for step in steps])
    np.testing.assert_array_equal(np.sort(taken), held.splits["train"].nodes)
    for one, two in zip(steps[2:], later, strict=True):
        np.testing.assert_array_equal(one.targets, two.targets)


@pytest.mark.parametrize("graph", ["plain", "typed"])
def test_all_clusters_at_once_with_every_edge_are_the_batch_of_all_targets(folder: Path, graph: str) -> None:
    job = job_of(clusters_of(folder, graph, partitions=2, clusters_per_batch=2))
    whole = replace(job, train=MiniBatchConfig(source="store", batch_size=1000))
    model = job.model.build().eval()
    with open_cluster_source(job) as clusters, open_store_source(whole) as batches:
        (one,), (two,) = clusters.steps(0, since=0), batches.steps(0, since=0)
        order = np.argsort(one.targets)
        np.testing.assert_array_equal(one.targets[order], two.targets)
        np.testing.assert_array_equal(one.labels[order], two.labels)
        torch.testing.assert_close(one.logits(model)[order], two.logits(model), rtol=1e-5, atol=1e-5)


@pytest.mark.table(2)
@pytest.mark.parametrize("graph", ["plain", "typed"])
@pytest.mark.parametrize("edges", [True, False])
def test_outputs_are_those_of_whole_neighbourhoods(folder: Path, graph: str, edges: bool) -> None:
    job = job_of(clusters_of(folder, graph))
    whole = replace(job, train=MiniBatchConfig(source="store", batch_size=7))
    model = job.model.build()
    with open_cluster_source(job, edges=edges) as clusters, open_store_source(whole, edges=edges) as batches:
        for split in ("train", "valid", "test"):
            one, two = clusters.outputs(model, split), batches.outputs(model, split)
            np.testing.assert_array_equal(one.targets, two.targets)
            np.testing.assert_allclose(one.logits, two.logits, atol=1e-5)


def test_ranks_take_their_clusters_and_parts_of_each_split(folder: Path) -> None:
    job = job_of(clusters_of(folder))
    shares = [job.of_rank(rank, 2) for rank in range(2)]
    model, held = job.model.build(), hold_graph(job.neighbors)
    taken, scored = [], []
    for share in shares:
        with open_cluster_source(share) as source:
            steps = list(source.steps(1, since=0))
            assert len(steps) == source.steps_per_epoch == 4
            taken += [step.targets for step in steps]
            scored.append(source.outputs(model, "test").targets)
    np.testing.assert_array_equal(np.sort(np.concatenate(taken)), held.splits["train"].nodes)
    np.testing.assert_array_equal(np.concatenate(scored), held.splits["test"].nodes)
    assert min(map(len, scored)) > 0


@pytest.mark.table(4)
@pytest.mark.parametrize("keys", [{}, {"clusters_per_batch": 3, "boundary_hops": 1}, {"prefetch": 0, "cache": 0}])
def test_interruptions_change_no_weight(folder: Path, keys: dict[str, Any]) -> None:
    config = clusters_of(folder, checkpoint_steps=1, epochs=6, **keys)
    resumes_to_the_same_weights(config, str(folder / "checkpoints"), open_source=open_cluster_source)


def test_a_run_has_no_graphflat_and_is_certified(folder: Path) -> None:
    config = clusters_of(folder, clusters_per_batch=2, boundary_hops=1, baseline=True, class_weight="balanced")
    assert stages_of(config) == ("ingest", "select", "train", "infer")
    result = pipeline.run_quietly(config)
    assert result.metrics["infer.parity_max_difference"] < 1e-4
    assert "baseline.test.accuracy" in result.metrics


def test_a_typed_graph_trains_on_its_partitions_as_clusters(folder: Path) -> None:
    assert "test.accuracy" in pipeline.run_quietly(clusters_of(folder, "typed", boundary_hops=2)).metrics


@pytest.mark.parametrize(
    ("sections", "where", "said"),
    [
        ({"graph": {"partitions": 1}}, "graph.partitions", "two clusters or more"),
        ({"train": {"clusters_per_batch": 4}}, "graph.partitions", "a batch takes 4 of them"),
        ({"train": {"boundary_hops": 3}}, "train.boundary_hops", "must be 0, 1 or 2"),
        ({"neighbors": {"sampling": {"kind": "uniform", "fanout": [3, 2]}}}, "neighbors.sampling.kind", "every edge"),
        ({"train": {"batch_size": 4}}, "train.batch_size", "clusters_per_batch"),
    ],
)
def test_what_cannot_be_trained_on_clusters_is_refused(folder, sections, where, said) -> None:
    sections = {**sections, "train": {**CLUSTERS, **sections.get("train", {})}}
    with pytest.raises(ConfigError) as caught:
        config_of(folder, "plain", **sections)
    assert where in str(caught.value)
    assert said in str(caught.value)


def test_too_few_clusters_are_refused_with_numbers() -> None:
    with pytest.raises(TrainingError, match="the graph is one cluster"):
        check_clusters(1, per_batch=1)
    with pytest.raises(TrainingError, match="9 clusters per batch of one rank, and the graph has 8"):
        check_clusters(8, per_batch=9)
    with pytest.raises(TrainingError, match="2 clusters with training targets cannot be dealt to 3 ranks"):
        plan_clusters(np.array([0, 4]), per_batch=1, seed=0, num_ranks=3)


def test_any_rank_makes_the_batches_of_another_with_the_draws_of_that_one(folder: Path) -> None:
    job = job_of(clusters_of(folder, clusters_per_batch=1))
    first, second = (open_cluster_source(job.of_rank(rank, 2)) for rank in range(2))
    with first, second:
        expected = list(second.steps(3, since=1))
        found = [first.step(3, number, share=1) for number in range(1, second.steps_per_epoch)]
    assert len(found) == len(expected) > 1
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.targets, other.targets)
        assert (one.seeded, one.epoch, one.share, one.number) == (other.seeded, other.epoch, 1, other.number)
