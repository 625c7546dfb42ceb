"""Hybrid steps are those of data-parallel training on one rank, whatever the number of ranks, and of the definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.config import STAGES, Config, config_from_dict
from gnnflow.config.pipelines import load_named
from gnnflow.config.stages import stages_of
from gnnflow.config.train_section import pipeline_of
from gnnflow.executions import reference
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.batch import Block
from gnnflow.graph.errors import ConfigError, TrainingError
from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.explain import explain_model
from gnnflow.train.hybrid import open_task_source
from gnnflow.train.hybrid import source as hybrid_source
from gnnflow.train.minibatch import hold_graph
from gnnflow.train.minibatch.memory import array_bytes
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.trainer import train
from gnnflow.train.updater import LocalUpdater
from tests.small_graphs import write_graph
from tests.train import on_stores, pairs_on_stores
from tests.train.globalbatch.stepping import fresh, opened, stepped
from tests.train.on_stores import job_of
from tests.train.ranks.together import together

STEP = {"optimizer": "sgd", "lr": 0.3, "epochs": 2}
MINI = {"strategy": "mini-batch", "batch_size": 7, **STEP}
CLUSTERS = {"strategy": "cluster-batch", "clusters_per_batch": 2, "boundary_hops": 1, **STEP}
UNIFORM = {"sampling": {"kind": "uniform", "fanout": [4, 3]}}
WEIGHTED = {"sampling": {"kind": "weighted", "fanout": [3, 3]}}
GAT = {"kind": "gat", "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
    "gat": GAT,
    "gat_e": {"kind": "gat_e", "hidden": 8, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "deep": {"kind": "sage", "hidden": 8, "layers": 4, "dropout": 0.0, "norm": "layer", "residual": True},
    "gin": {"kind": "gin", "hidden": 8, "dropout": 0.0},
    "largest": {"kind": "sage", "hidden": 8, "aggregator": "max", "dropout": 0.0},
}
NODES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gcn": ("plain", MINI, {"model": MODELS["gcn"], "neighbors": UNIFORM}),
    "weighted": ("plain", MINI, {"model": MODELS["gcn"], "neighbors": WEIGHTED}),
    "resampled": ("plain", {**MINI, "resample": "epoch"}, {"model": MODELS["gat"], "neighbors": UNIFORM}),
    "gat_e": ("plain", MINI, {"model": MODELS["gat_e"]}),
    "deep": ("plain", MINI, {"model": MODELS["deep"]}),
    "largest": ("plain", MINI, {"model": MODELS["largest"]}),
    "typed": ("typed", MINI, {"model": {"kind": "rgcn", "hidden": 8, "dropout": 0.0}}),
    "clusters": ("plain", CLUSTERS, {"model": MODELS["gcn"]}),
    "clusters of gin": ("plain", {**CLUSTERS, "boundary_hops": 0}, {"model": MODELS["gin"]}),
    "typed clusters": ("typed", CLUSTERS, {"model": {"kind": "sage", "hidden": 8, "dropout": 0.0}}),
}


pytestmark = pytest.mark.usefixtures("one_thread")


def hybrid(config: Config, **keys: Any) -> Config:
    """Return a config that trains on batches by all ranks together."""
    content = config.model_dump(mode="json")
    content["train"].pop("source", None)
    return config_from_dict({**content, "train": {**content["train"], "parallel": "hybrid", **keys}})


def nodes_config(folder: Path, case: str) -> Config:
    which, keys, sections = NODES[case]
    write_graph(folder, num_nodes=90, num_edges=600, hub=3)
    keys = keys if keys["strategy"] == "cluster-batch" else {"source": "store", **keys}
    graph = {"partitions": 4 if keys["strategy"] == "mini-batch" else 8}
    return on_stores.config_of(folder, which, train=keys, graph=graph, **sections)


def pairs_config(folder: Path, case: str, strategy: str) -> Config:
    keys = {**MINI, "source": "store", "batch_size": 40, "lr": 0.05}
    if strategy == "cluster-batch":
        keys = {**CLUSTERS, "clusters_per_batch": 3, "boundary_hops": 1, "lr": 0.05}
    config = pairs_on_stores.config_of(folder, case, graph={"partitions": 8})
    content = config.model_dump(mode="json")
    return config_from_dict({**content, "train": {"metric": content["train"]["metric"], **keys}})


def ran(source: Any, job: Any, updater_of: Any) -> Any:
    """Return the losses of three epochs' steps, the weights after them, and the outputs of each split."""
    model = fresh(job)
    return stepped(source, model, Objective(job.label_kind, unit=job.model.inputs.unit), updater_of(model), epochs=3)


def on_ranks(job: Any, size: int) -> list[Any]:
    def on(group: Any) -> Any:
        with opened(open_task_source, job, group) as source:
            shared = lambda made: AllReduce(made, group, is_joint=True)  # noqa: E731
            return ran(source, job, lambda made: LocalUpdater(made, job.train, exchange=shared(made)))

    return together(on, size)


def assert_close(found: Any, expected: Any) -> None:
    """Assert that values differ by at most 1e-5 of the largest one: rounding alone makes about 1e-6."""
    largest = float(np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * largest)


def assert_equal_data_parallel(config: Config, size: int) -> None:
    job = job_of(config)
    with load_named(pipeline_of(job.train).source)(job, edges=True) as source:
        losses, weights, outputs = ran(source, job, lambda made: LocalUpdater(made, job.train))
    for found in on_ranks(job_of(hybrid(config)), size):
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        for name, value in weights.items():
            assert_close(found[1][name].numpy(), value.numpy())
        for split, (targets, labels, logits) in outputs.items():
            assert np.array_equal(found[2][split][0], targets)
            assert np.array_equal(found[2][split][1], labels)
            assert_close(found[2][split][2], logits)


@pytest.mark.table(10)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("case", NODES)
def test_ranks_take_the_steps_of_data_parallel(tmp_path: Path, case: str, size: int):
    assert_equal_data_parallel(nodes_config(tmp_path, case), size)


@pytest.mark.table(10)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("strategy", ["mini-batch", "cluster-batch"])
@pytest.mark.parametrize("case", pairs_on_stores.CASES)
def test_ranks_take_the_steps_of_data_parallel_on_pairs(tmp_path: Path, case: str, strategy: str, size: int):
    assert_equal_data_parallel(pairs_config(tmp_path, case, strategy), size)


@pytest.mark.parametrize("case", ["gat", "gat clusters"])
def test_a_step_computes_the_plain_definition(tmp_path: Path, case: str):
    write_graph(tmp_path, num_nodes=90, num_edges=600, hub=3)
    keys = MINI if case == "gat" else {**CLUSTERS, "boundary_hops": 2}
    sections = {"model": {**GAT, "hidden": 4}, "graph": {"partitions": 8}}
    job = job_of(hybrid(on_stores.config_of(tmp_path, "plain", train=keys, **sections)))
    held = hold_graph(job.neighbors).neighborhood
    whole = WholeGraph(Block(held.edges, held.num_nodes), held.degrees, held.features)
    expected = reference.forward(fresh(job).eval(), whole).detach()

    def on(group: Any) -> Any:
        model = fresh(job).eval()
        with opened(open_task_source, job, group) as source:
            return [(step.targets, step.logits(model).detach()) for step in source.steps(1, since=0)]

    for size in (1, 2, 4):
        found = [step for ran_on in together(on, size) for step in ran_on]
        for targets, logits in found:
            torch.testing.assert_close(logits, expected[targets], rtol=1e-5, atol=1e-5)
        targets = np.concatenate([targets for targets, _ in found])
        assert np.array_equal(np.sort(targets), np.sort(hold_graph(job.neighbors).splits["train"].nodes))


def test_batches_of_one_update_are_one_mean(tmp_path: Path):
    write_graph(tmp_path, num_nodes=90, num_edges=600, hub=3)
    keys = {**MINI, "source": "store", "accumulate": 3, "class_weight": "balanced"}
    config = on_stores.config_of(tmp_path, "plain", train=keys, model=GAT, graph={"partitions": 4})

    def held(source: Any, job: Any, updater_of: Any) -> Any:
        model, objective, losses = fresh(job), Objective("single"), []
        updater = updater_of(model)
        for number, step in enumerate(source.steps(0, since=0)):
            loss, count = objective.loss(step.logits(model), step.labels)
            take = updater.step if number % 3 == 2 else updater.hold
            taken = take(loss, num_targets=count, weight=objective.weight(step.labels))
            losses += [taken.mean] if taken else []
        return losses, model.state_dict()

    job, together_job = job_of(config), job_of(hybrid(config))
    with load_named(pipeline_of(job.train).source)(job, edges=True) as source:
        losses, weights = held(source, job, lambda made: LocalUpdater(made, job.train))

    def on(group: Any) -> Any:
        with opened(open_task_source, together_job, group) as source:
            shared = lambda made: AllReduce(made, group, is_joint=True)  # noqa: E731
            return held(source, together_job, lambda made: LocalUpdater(made, job.train, exchange=shared(made)))

    for found in together(on, 2):
        np.testing.assert_allclose(found[0], losses, rtol=1e-5)
        for name, value in weights.items():
            assert_close(found[1][name].numpy(), value.numpy())


@pytest.mark.parametrize("keys", [{**MINI, "resample": "epoch"}, CLUSTERS])
def test_a_rank_holds_its_part_of_the_graph_alone(tmp_path: Path, keys: dict[str, Any]):
    write_graph(tmp_path, num_nodes=4000, num_edges=40_000, width=16)
    sections = {"graph": {"partitions": 8}, "neighbors": UNIFORM if "resample" in keys else {}}
    keys = {"source": "store", **keys} if "resample" in keys else keys
    config = on_stores.config_of(tmp_path, "plain", train=keys, **sections)
    job = job_of(hybrid(config))

    def held(group: Any) -> int:
        with opened(open_task_source, job, group) as source:
            part = source.shares[0].part
            for view in (0, 1):
                part.layers(view)
            return part.num_bytes

    whole = hold_graph(job.neighbors, with_keys="resample" in keys)
    alone = array_bytes([whole.neighborhood.edges, whole.neighborhood.features, whole.neighborhood.degrees])
    (one,) = together(held, 1)
    for size in (2, 4):
        ran_on = together(held, size)
        assert max(ran_on) <= 1.25 / size * one
        if "resample" not in keys:
            assert max(ran_on) <= 1.25 / size * alone


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path):
    write_graph(tmp_path, num_nodes=90, num_edges=600, hub=3)
    keys = {**MINI, "parallel": "hybrid", "resample": "epoch"}
    dropped, plain = (
        job_of(on_stores.config_of(tmp_path, "plain", train=keys, model={**GAT, **drops}, neighbors=UNIFORM))
        for drops in ({"dropout": 0.4, "attention_dropout": 0.2}, {})
    )
    kept, again = (train(dropped, progress=Silent()) for _ in range(2))
    assert kept.weights == again.weights
    # threads of one process draw from one generator
    first, second = (on_ranks(plain, 2) for _ in range(2))
    assert all(torch.equal(first[0][1][name], second[1][1][name]) for name in first[0][1])


@pytest.mark.parametrize("strategy", ["mini-batch", "cluster-batch"])
def test_a_run_has_no_shards_and_is_certified(tmp_path: Path, strategy: str):
    write_graph(tmp_path, num_nodes=90, num_edges=600, hub=3)
    keys = {**(MINI if strategy == "mini-batch" else CLUSTERS), "baseline": True, "parallel": "hybrid"}
    config = on_stores.config_of(tmp_path, "plain", train=keys, model=GAT, graph={"partitions": 4})
    assert "flat" not in stages_of(config)
    metrics = pipeline.run_quietly(config).metrics
    assert metrics["infer.parity_max_difference"] < 1e-4
    assert "baseline.test.accuracy" in metrics
    assert "train.mirrors_seconds_per_epoch" in metrics
    assert "globalbatch" in explain_model(config).used


REFUSED = {
    "updater": ({"updater": {"kind": "parameter_server"}, "workers": 2}, {}, "parameter_server is not allowed where"),
    "shards": ({"source": "shards"}, {}, "shards is not allowed where train.parallel is hybrid"),
    "memory": ({"memory": "1GiB"}, {}, "memory"),
    "walks": ({"resample": "epoch"}, {"neighbors": {"kind": "walks"}}, "draws walks from the whole graph"),
    "partitions": ({"workers": 5}, {"graph": {"partitions": 4}}, "5 ranks share 4 partitions under hybrid"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_combined_is_refused(tmp_path: Path, why: str):
    write_graph(tmp_path)
    keys, sections, message = REFUSED[why]
    cluster = {"kind": "local", "workers": keys.get("workers", 1)}
    with pytest.raises(ConfigError, match=message):
        on_stores.config_of(tmp_path, "plain", train={"parallel": "hybrid", **keys}, cluster=cluster, **sections)


def test_times_are_refused(tmp_path: Path):
    split = {"kind": "time", "valid": 0.1, "test": 0.1}
    with pytest.raises(ConfigError, match=r"train.parallel: .*its row differs at each time"):
        hybrid(pairs_on_stores.config_of(tmp_path, "labels", task={"split": split}))


def test_a_held_out_edge_that_carries_messages_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job, read = job_of(hybrid(pairs_config(tmp_path, "links", "mini-batch"))), hybrid_source.read_pairs

    def leaking(store: Any, partitions: Any) -> Any:
        pairs = read(store, partitions)
        splits = pairs.splits.copy()
        splits[np.flatnonzero(splits == 0)[-1]] = 1
        return replace(pairs, splits=splits)

    monkeypatch.setattr(hybrid_source, "read_pairs", leaking)
    with pytest.raises(TrainingError, match=r"the valid edge from node number .* its score is computed from"):
        open_task_source(job)


def test_the_default_is_named_nowhere(tmp_path: Path):
    write_graph(tmp_path)
    left_out, named = (on_stores.config_of(tmp_path, "plain", train=keys) for keys in ({}, {"parallel": "data"}))
    assert STAGES["train"].keys(left_out) == STAGES["train"].keys(named)
    assert "parallel" not in STAGES["train"].keys(named)["train"]
