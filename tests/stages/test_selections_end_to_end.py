"""Every kind of neighbours from tables to certified predictions, whatever the partitions, and into service."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.graph.errors import LayerError, RegistryError
from gnnflow.graph.facts import SelectFacts
from gnnflow.graph.run_facts import InferFacts
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from gnnflow.config import Config

EXACT = 1e-4
PATHS = [["account", "device", "account"], ["account", "account"], ["merchant", "account", "merchant"]]
# neighbours and the model that they are made for; on a graph of three types where the graph is `typed`
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "walks": ("plain", {"kind": "walks", "walks": 6, "top_k": 4}, {"kind": "pinsage"}),
    "rings": ("plain", {"kind": "rings", "max_nodes": 6}, {"kind": "sage", "across": "max"}),
    "anchors": ("plain", {"kind": "anchors"}, {"kind": "pgnn"}),
    "paths of one type": (
        "plain",
        {"kind": "metapaths", "paths": [["node"] * 3], "max_instances": 5},
        {"kind": "sage"},
    ),
    "own": ("plain", {"kind": "tests.neighbors.own_functions:everyone_before"}, {"kind": "gcn"}),
    "metapaths": ("typed", {"kind": "metapaths", "paths": PATHS, "max_instances": 5}, {"kind": "magnn", "heads": 2}),
}


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Any]:
    """The graph sections of an untyped and of a typed graph."""
    write_graph(tmp_path / "plain", num_edges=200)
    plain = {side: str(tmp_path / "plain" / f"{side}.parquet") for side in ("nodes", "edges")}
    return {"plain": plain, "typed": {**write_tables(tmp_path / "typed", typed_tables()), "reverse_edges": True}}


def config_of(folder: Path, tables: dict[str, Any], name: str, *, partitions: int = 3, **sections: Any) -> Config:
    graph, neighbors, model = RUNS[name]
    return graph_config(
        folder,
        **{
            "graph": {**tables[graph], "partitions": partitions},
            "neighbors": neighbors,
            "model": {**model, "layers": 2, "hidden": 4, "dropout": 0.0},
            # one batch for each epoch, so that its order says nothing
            "train": {"epochs": 2, "batch_size": 1000, "threads": 1},
            "infer": {"parity_samples": 20},
            **sections,
        },
    )


def predictions(uri: str) -> dict[Any, Any]:
    table = pq.read_table(uri)
    scores = table["probabilities"].to_pylist()
    return {key: np.asarray(each) for key, each in zip(table["id"].to_pylist(), scores, strict=True)}


def digests(uri: str) -> dict[str, str]:
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in Path(uri).iterdir()}


@pytest.mark.table(6)
@pytest.mark.parametrize("name", RUNS)
def test_predictions_are_certified_and_those_of_other_partitions_and_of_a_rerun(
    tmp_path: Path, tables: dict[str, Any], name: str
) -> None:
    made = pipeline.run_quietly(config_of(tmp_path, tables, name))
    parity = made.stages["infer"].facts(InferFacts).parity
    assert (parity.samples, parity.compared) == (20, "like training")
    assert parity.max_difference is not None
    assert parity.max_difference < EXACT
    assert made.stages["select"].facts(SelectFacts).num_edges > 0
    again = pipeline.run_quietly(config_of(tmp_path, tables, name, workspace=str(tmp_path / "again")))
    assert digests(made.predictions) == digests(again.predictions) != {}
    one = predictions(pipeline.run_quietly(config_of(tmp_path, tables, name, partitions=1)).predictions)
    three = predictions(made.predictions)
    assert one.keys() == three.keys()
    for key, found in three.items():
        np.testing.assert_allclose(one[key], found, atol=EXACT)


def published(config: Config) -> tuple[StageContext, publish.PublishResult]:
    context = StageContext.of(config)
    pipeline.run(context)
    return context, publish.run(context)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["metapaths", "rings"])
def test_a_model_of_selected_neighbors_is_compared_and_scores_a_graph_that_changed(
    tmp_path: Path, tables: dict[str, Any], name: str
) -> None:
    _, first = published(config_of(tmp_path, tables, name))
    version = registry.read_version(str(tmp_path / "runs"), "small", 1)
    relations = [each.split(" ")[0] for each in version.signature.neighbors.split(", ")]
    assert relations == [str(each) for each in config_of(tmp_path, tables, name).aggregated_relations or ()]
    assert first.in_service == 1
    if name == "rings":
        write_graph(tmp_path / "plain", num_edges=200, num_nodes=70, seed=1)
    else:
        write_tables(tmp_path / "typed", typed_tables(seed=1))
    context, second = published(config_of(tmp_path, tables, name, seed=1))
    assert second.champion.keys() == second.candidate.keys() != set()
    registry.promote(str(tmp_path / "runs"), "small", 1)
    found = score.run(context)
    assert (found.version, found.rows) == (1, 70 if name == "rings" else 40)
    assert predictions(found.predictions).keys() == predictions(second.predictions).keys()
    assert score.run(context).reused


@pytest.mark.slow
def test_models_of_other_neighbors_are_not_compared(tmp_path: Path, tables: dict[str, Any]) -> None:
    published(config_of(tmp_path, tables, "rings"))
    model = {"kind": "sage", "layers": 2, "hidden": 4}
    direct = config_of(tmp_path, tables, "rings", neighbors={"kind": "direct"}, model=model)
    context, second = published(direct)
    assert not second.promoted
    assert "neighbors is direct, the model was trained on node__ring1__node (0), node__ring2__node (0)" in second.reason
    # the champion selects its own neighbours of the graph
    assert score.run(context).rows == 60
    write_graph(tmp_path / "plain", width=6)
    context, _ = published(config_of(tmp_path, tables, "rings", seed=2))
    with pytest.raises(RegistryError, match="feature width is 6, the model was trained on 5"):
        score.run(context)


@pytest.mark.slow
def test_a_model_is_trained_further_on_the_relations_it_was_trained_on(tmp_path: Path, tables: dict[str, Any]) -> None:
    first = config_of(tmp_path, tables, "metapaths")
    published(first)
    train = {"epochs": 1, "batch_size": 1000, "threads": 1, "start": "small/1"}
    assert pipeline.run_quietly(config_of(tmp_path, tables, "metapaths", train=train)).stages["train"].digest
    fewer = {"kind": "metapaths", "paths": PATHS[:2], "max_instances": 5}
    other = config_of(tmp_path, tables, "metapaths", neighbors=fewer, train=train)
    context = StageContext.of(other)
    with pytest.raises(LayerError, match="another architecture"):
        perform(context, "run")
