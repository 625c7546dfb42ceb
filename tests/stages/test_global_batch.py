"""Runs that train on the whole graph: no shards, the same scores by both paths, versions that can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnflow.config import STAGES, config_from_dict
from gnnflow.config.stages import run_chain, stages_of
from gnnflow.graph.errors import ConfigError, LayerError
from gnnflow.graph.run_facts import InferFacts, TrainFacts
from gnnflow.stages import pipeline, publish
from gnnflow.stages.base import StageContext
from tests.conftest import ClusterOf
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables


def config_of(folder: Path, **sections):
    train = {"strategy": "global-batch", "epochs": 5, **sections.pop("train", {})}
    return graph_config(folder, train=train, infer={"parity_samples": 10}, **sections)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_graph(tmp_path, num_nodes=80, num_edges=500)
    return tmp_path


def test_a_run_has_no_shards_and_is_certified_by_the_path_that_trained_it(folder: Path):
    config = config_of(folder, model={"kind": "gat", "hidden": 8, "heads": 2})
    result = pipeline.run_quietly(config)
    assert "flat" not in stages_of(config)
    context = StageContext.of(config)
    facts = context.artifact("infer").facts(InferFacts)
    assert facts.parity.samples == 10
    assert facts.parity.max_difference is not None
    assert facts.parity.max_difference < 1e-5
    manifest = context.artifact("train").manifest
    assert manifest.rows_in == 60  # labelled nodes with a split
    assert len(context.artifact("train").facts(TrainFacts).history) == 5
    assert Path(result.report).exists()
    assert pipeline.run_quietly(config).metrics == result.metrics


def test_layers_computed_again_are_no_other_run(folder: Path):
    kept, again = (StageContext.of(config_of(folder, train={"recompute": each})).run for each in (False, True))
    assert kept.fingerprints == again.fingerprints


def test_versions_of_both_strategies_are_compared_on_the_same_targets(folder: Path):
    whole = config_of(folder, model={"kind": "gcn", "hidden": 8})
    mini = graph_config(folder, train={"epochs": 5}, model={"kind": "gcn", "hidden": 8}, infer={"parity_samples": 10})
    published = []
    for config in (whole, mini, config_of(folder, model={"kind": "gcn", "hidden": 8}, seed=1)):
        context = StageContext.of(config)
        pipeline.run(context)
        published.append(publish.run(context))
    first, second, third = published
    assert first.promoted
    assert {"test.accuracy"} <= second.champion.keys()
    assert {"test.accuracy"} <= third.champion.keys()


@pytest.mark.parametrize(
    ("keys", "where", "said"),
    [
        (
            {"train": {"updater": {"kind": "parameter_server"}, "workers": 2}},
            "train.updater.kind",
            "ranks compute every step together",
        ),
        ({"train": {"workers": 4}, "graph": {"partitions": 3}}, "graph.partitions", "4 ranks share 3 partitions"),
        (
            {"task": {"kind": "link", "split": {"kind": "time"}}, "train": {"metric": "mrr"}},
            "train.strategy",
            "its row differs at each time",
        ),
        ({"train": {"batch_size": 10}}, "train.batch_size", "unknown key"),
    ],
)
def test_what_does_not_go_with_the_whole_graph_is_refused(folder: Path, keys, where, said):
    with pytest.raises(ConfigError) as caught:
        config_of(folder, **keys, cluster={"kind": "local", "workers": 4})
    assert caught.value.where == where
    assert said in caught.value.problem


def test_the_chain_of_tasks_leaves_graphflat_out(folder: Path):
    assert run_chain(config_of(folder)) == ("ingest", "select", "train", "infer", "run")
    assert set(run_chain(config_of(folder))) <= STAGES.keys()
    assert config_from_dict(config_of(folder).model_dump(mode="json")) == config_of(folder)


@pytest.mark.table(3)
@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"kind": "sage", "hidden": 8, "across": "mean"}},
        {
            "model": {"kind": "han", "heads": 2, "hidden": 8},
            "neighbors": {"sampling": {"kind": "weighted", "fanout": [4, 3]}},
        },
        {
            "model": {"kind": "magnn", "heads": 2, "hidden": 8},
            "neighbors": {"kind": "metapaths", "paths": [["account", "merchant", "account"]]},
        },
    ],
    ids=["every edge", "a sample", "metapaths"],
)
def test_a_typed_graph_is_trained_whole_and_certified(tmp_path: Path, sections):
    config = config_from_dict(
        {
            "name": "typed",
            "workspace": str(tmp_path / "runs"),
            "graph": {**write_tables(tmp_path, typed_tables()), "reverse_edges": True},
            "train": {"strategy": "global-batch", "epochs": 3},
            "infer": {"parity_samples": 20},
            "cluster": {"kind": "synchronous"},
            **sections,
        }
    )
    parity = pipeline.run_quietly(config).stages["infer"].manifest.facts["parity"]
    assert parity["samples"] == 20
    assert parity["max_difference"] < 1e-5


def test_a_run_under_a_budget_of_memory_is_certified_and_of_another_fingerprint(folder: Path):
    plain, config = config_of(folder), config_of(folder, train={"memory": "1GiB", "scratch": str(folder)})
    result = pipeline.run_quietly(config)
    context = StageContext.of(config)
    parity = context.artifact("infer").facts(InferFacts).parity
    assert parity.max_difference is not None
    assert parity.max_difference < 1e-5
    assert result.metrics["test.accuracy"] >= 0
    keys = STAGES["train"].keys
    assert keys(plain) != keys(config)
    assert keys(config) == keys(config_of(folder, train={"memory": "1GiB"}))


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [2], scope="session")
def test_ranks_under_a_budget_of_memory_train_as_one_does(folder: Path, workers: int, cluster_of: ClusterOf):
    keys, model = {"memory": "1GiB", "epochs": 4}, {"kind": "gcn", "hidden": 8, "dropout": 0.0}
    alone = pipeline.run_quietly(config_of(folder, train=keys, model=model))
    cluster = {"kind": "local", "workers": workers, "memory_limit": "2GiB"}
    config = config_of(folder, train={**keys, "workers": 2}, model=model, cluster=cluster)
    result = pipeline.run(StageContext.of(config, cluster_of(config.cluster)))
    assert result.metrics["test.accuracy"] == alone.metrics["test.accuracy"]
    assert result.metrics["train.loss"] == pytest.approx(alone.metrics["train.loss"], rel=1e-4)
    assert StageContext.of(config).artifact("infer").facts(InferFacts).parity.max_difference < 1e-5


def test_a_layer_that_does_not_merge_is_refused_before_the_first_stage(folder: Path):
    config = config_of(
        folder, train={"memory": "1GiB"}, model={"kind": "tests.contracts.own_layers:MedianLayer", "hidden": 8}
    )
    with pytest.raises(LayerError, match=r"cannot run on the execution streamed: .* states of Median do not merge"):
        pipeline.run_quietly(config)


def test_a_budget_on_a_card_is_refused_on_a_typed_graph(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"train\.device: cuda is not allowed where .* the graph is typed"):
        config_from_dict(
            {
                "name": "typed",
                "graph": {
                    "nodes": {"user": "u.parquet", "item": "i.parquet"},
                    "edges": {"user__buys__item": "b.parquet"},
                    "target": "user",
                    "reverse_edges": True,
                },
                "train": {"strategy": "global-batch", "memory": "1GiB", "device": "cuda"},
            }
        )
