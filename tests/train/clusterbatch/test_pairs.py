"""Pairs by clusters: each comes once per epoch with its target's cluster, and no batch holds an edge that it scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.config import Config, MiniBatchConfig, config_from_dict
from gnnflow.graphfeature import exclusion
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.train.clusterbatch import open_cluster_source
from gnnflow.train.minibatch import open_store_source
from gnnflow.train.trainer import train
from tests.train.on_stores import job_of, resumes_to_the_same_weights
from tests.train.pairs_on_stores import CASES, config_of

CLUSTERS: dict[str, Any] = {"strategy": "cluster-batch", "clusters_per_batch": 2, "lr": 0.05}


def clusters_of(folder: Path, case: str, *, train: dict[str, Any] | None = None, **sections: Any) -> Config:
    content = config_of(folder, case, **sections).model_dump(mode="json")
    kept = {name: content["train"][name] for name in ("epochs", "metric")}
    return config_from_dict({**content, "train": {**kept, **CLUSTERS, **(train or {})}})


@pytest.mark.table(6)
@pytest.mark.parametrize("case", CASES)
def test_all_clusters_at_once_are_the_batch_of_all_pairs(tmp_path: Path, case: str) -> None:
    job = job_of(clusters_of(tmp_path, case, train={"clusters_per_batch": 4}))
    whole = replace(job, train=MiniBatchConfig(source="store", batch_size=100_000))
    model = job.model.build().eval()
    with open_cluster_source(job) as clusters, open_store_source(whole) as batches:
        (one,), (two,) = clusters.steps(0, since=0), batches.steps(0, since=0)
        # the first column is of the pair itself, whatever it is told from
        found, expected = (np.sort(each.logits(model).detach().numpy()[:, 0]) for each in (one, two))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.array_equal(np.sort(one.targets), np.sort(two.targets))
        for split in ("valid", "test"):
            assert np.array_equal(clusters.outputs(model, split).logits, batches.outputs(model, split).logits)


@pytest.mark.table(4)
@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize("case", ["links", "typed links"])
def test_a_pair_comes_once_per_epoch_with_the_cluster_of_its_target_and_without_its_edge(
    tmp_path: Path, case: str, hops: int
) -> None:
    job = job_of(clusters_of(tmp_path, case, train={"boundary_hops": hops}))
    facts = job.neighbors.store.facts
    with open_cluster_source(job) as source:
        groups, pairs = source.plan(1, 0), source.loader.build.train
        steps = list(source.steps(1, since=0))
        again = list(source.steps(1, since=1))
        other = list(source.steps(2, since=0))
    assert np.array_equal(np.sort(np.concatenate([step.targets for step in steps])), np.sort(pairs.targets))
    for group, step in zip(groups, steps, strict=True):
        assert set(facts.cluster_book.number(step.targets).tolist()) <= set(group.tolist())
        head, blocks = step.batch.head, step.batch.tensors.blocks
        assert len({id(block) for block in blocks}) <= 2
        ends = {frozenset(pair) for pair in zip(head.sources.tolist(), head.candidates[:, 0].tolist(), strict=True)}
        if case == "links":
            for block in blocks:
                csr = block.relations[0].block.csr
                edges = zip(csr.sources.tolist(), csr.targets.tolist(), strict=True)
                assert not ends & {frozenset(edge) for edge in edges}
    first, resumed, later = ([step.batch.head.ends[1] for step in each] for each in (steps, again, other))
    assert all(torch.equal(one, two) for one, two in zip(first[1:], resumed, strict=True))
    assert any(one.shape != two.shape or not torch.equal(one, two) for one, two in zip(first, later, strict=True))


@pytest.mark.table(2)
@pytest.mark.parametrize("kind", ["degree", "in_batch"])
def test_links_are_learned_with_every_kind_of_negatives(tmp_path: Path, kind: str) -> None:
    negatives = {"kind": kind, "pool": 200, "evaluation": 30, "per_edge": 2}
    keys = {"epochs": 10, "boundary_hops": 1, "baseline": True}
    config = clusters_of(tmp_path, "links", train=keys, task={"negatives": negatives})
    metrics = train(job_of(config), progress=Silent()).metrics
    assert metrics["test.roc_auc"] > 0.7


def test_a_killed_training_ends_on_the_same_weights(tmp_path: Path) -> None:
    config = clusters_of(tmp_path, "links", train={"checkpoint_steps": 1, "clusters_per_batch": 1})
    resumes_to_the_same_weights(config, str(tmp_path / "checkpoints"), open_source=open_cluster_source)


def test_an_edge_that_stays_in_the_batch_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted leak: without exclusion the scores of a batch are others."""
    job = job_of(clusters_of(tmp_path, "links"))
    model, scores = job.model.build().eval(), []
    for leaks in (False, True):
        with monkeypatch.context() as patched, open_cluster_source(job) as source:
            if leaks:
                patched.setattr(exclusion, "without_between", lambda block, *_, **__: block)
            scores.append([step.logits(model).detach()[:, 0] for step in source.steps(0, since=0)])
    assert all(not torch.allclose(*each, atol=1e-3) for each in zip(*scores, strict=True))


@pytest.mark.table(2)
@pytest.mark.parametrize("case", ["links", "typed labels"])
def test_a_run_is_certified(tmp_path: Path, case: str) -> None:
    metrics = pipeline.run_quietly(clusters_of(tmp_path, case)).metrics
    assert metrics["infer.parity_max_difference"] < 1e-4
