"""A number means to a published model what it meant when it was trained, whatever mean later tables have."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.config import config_from_dict
from gnnflow.graph.errors import ConfigError, RegistryError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.scales import ColumnScale, agree
from gnnflow.registry.signature import signature_of
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.rehearsal import rehearsal_config
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from tests.hearing import Heard
from tests.small_graphs import graph_config, stored_x, write_graph
from tests.stages.published import probabilities, run_published
from tests.typed_graphs import typed_tables, write_tables

GRAPH = {"normalize": "standard", "edge_features": ["amount"], "edge_normalize": "standard"}
UNSCALED = {"normalize": "none", "edge_normalize": "none"}
MODEL = {"kind": "gat_e", "hidden": 4, "heads": 2, "dropout": 0.0}


def context_of(folder: Path, *, graph: dict[str, Any] | None = None, **sections: Any) -> StageContext:
    train = {"epochs": 3, "lr": 0.05, "threads": 1, **sections.pop("train", {})}
    sections = {"model": MODEL, "publish": {"incomparable": "promote"}, **sections}
    config = graph_config(folder, graph={**GRAPH, **(graph or {})}, train=train, **sections)
    return StageContext.of(config, progress=Heard())


def published(folder: Path, **keys: Any) -> StageContext:
    return run_published(context_of(folder, **keys))


def replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def moved(nodes: pa.Table, by: float) -> pa.Table:
    """Nodes with a number added to all features: nothing that scaling by the table's own mean would leave."""
    x = to_matrix(nodes["x"]) + np.float32(by)
    return replaced(nodes, "x", pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1]))


def tables_of(folder: Path) -> tuple[pa.Table, pa.Table]:
    nodes, edges = (pq.read_table(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    return nodes, edges


def write(folder: Path, nodes: pa.Table, edges: pa.Table) -> None:
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(edges, folder / "edges.parquet")


def shift(folder: Path, features: float = 2.0, amounts: float = 3.0) -> None:
    nodes, edges = tables_of(folder)
    write(folder, moved(nodes, features), replaced(edges, "amount", pc.add(edges["amount"], amounts)))


def numbers(context: StageContext) -> tuple[Any, Any]:
    """Features and attributes of a run's graph store, in its order."""
    found = context.artifact("ingest")
    store = GraphStore.of(found.uri, found.manifest)
    parts = range(store.num_partitions)
    x = [stored_x(store.nodes(part, ["x"])["x"]) for part in parts]
    attributes = [to_matrix(store.edges(part, ["attributes"])["attributes"]) for part in parts]
    return np.concatenate(x), np.concatenate(attributes)


def ingested_again(context: StageContext) -> bool:
    return any("are ingested once more by those" in text for text in context.progress.messages)


@pytest.fixture
def first(tmp_path: Path) -> StageContext:
    write_graph(tmp_path)
    return published(tmp_path)


def test_a_shift_of_all_rows_is_seen_where_columns_are_scaled_as_for_a_model(
    tmp_path: Path, first: StageContext
) -> None:
    x, attributes = numbers(first)
    deviation = first.artifact("ingest").facts(GraphFacts).scales["nodes"].deviation
    shift(tmp_path)
    own, theirs = (context_of(tmp_path, graph={"scaled_as": named}) for named in (None, "small"))
    for context in (own, theirs):
        make_artifact(context, "ingest")
    np.testing.assert_allclose(numbers(own)[0], x, atol=1e-5)
    np.testing.assert_allclose(numbers(theirs)[0], x + 2.0 / np.array(deviation), atol=1e-5)
    assert (numbers(theirs)[1] > attributes + 2).all()
    assert theirs.config.graph.scaled_as == "small/1"
    assert any("scaled as for small/1" in text for text in theirs.progress.messages)


def test_what_a_model_scores_does_not_depend_on_the_mean_of_the_day(tmp_path: Path, first: StageContext) -> None:
    """The tables gain a copy of the graph that lies far away: it changes every mean, and no neighbour of a node."""
    before = probabilities(first)
    nodes, edges = tables_of(tmp_path)
    far = replaced(moved(nodes, 50.0), "id", pc.add(nodes["id"], 10_000))
    beside = replaced(edges, "src", pc.add(edges["src"], 10_000))
    beside = replaced(beside, "dst", pc.add(edges["dst"], 10_000))
    write(tmp_path, pa.concat_tables([nodes, far]), pa.concat_tables([edges, beside]))
    later = context_of(tmp_path)
    make_artifact(later, "ingest")
    after = probabilities(later)
    assert len(after) == 2 * len(before)
    np.testing.assert_allclose(after[: len(before)], before, atol=1e-4)
    assert ingested_again(later)
    assert score.run(later).reused
    assert score.is_quick(later)


def test_a_model_scores_numbers_as_it_was_trained_where_the_config_scales_otherwise_now(
    tmp_path: Path, first: StageContext
) -> None:
    scaled = probabilities(first)
    unscaled = context_of(tmp_path, graph=UNSCALED)
    make_artifact(unscaled, "ingest")
    np.testing.assert_array_equal(probabilities(unscaled), scaled)
    published(tmp_path, graph=UNSCALED)
    registry.promote(first.config.workspace, "small", 2)
    np.testing.assert_array_equal(probabilities(first), probabilities(unscaled))
    assert not np.array_equal(probabilities(first), scaled)


@pytest.mark.table(4)
@pytest.mark.parametrize("train", [{}, {"source": "store"}, {"strategy": "global-batch"}], ids=str)
def test_a_champion_is_compared_on_numbers_scaled_as_it_knows_them(tmp_path: Path, train: dict[str, Any]) -> None:
    """The same rows and a far away copy of them without labels: what the champion scores is what it scored before."""
    write_graph(tmp_path, num_nodes=200, num_edges=900)
    first = published(tmp_path, train=train)
    before = registry.read_version(first.config.workspace, "small", 1).metrics
    nodes, edges = tables_of(tmp_path)
    far = replaced(moved(nodes, 50.0), "id", pc.add(nodes["id"], 10_000))
    far = replaced(far, "split", pa.nulls(far.num_rows, pa.string()))
    write(tmp_path, pa.concat_tables([nodes, far]), edges)
    context = context_of(tmp_path, train={**train, "lr": 0.04})
    pipeline.run(context)
    found = publish.run(context)
    shared = found.champion.keys() & before.keys()
    assert {"test.accuracy", "test.macro_f1"} <= shared
    assert {key: found.champion[key] for key in shared} == pytest.approx({key: before[key] for key in shared})
    assert ingested_again(context)


def test_the_same_figures_in_another_version_are_no_reason_to_ingest_again(tmp_path: Path, first: StageContext) -> None:
    shift(tmp_path)
    second = published(tmp_path, graph={"scaled_as": "small/1"}, train={"lr": 0.04})
    registry.promote(first.config.workspace, "small", 2)
    again = context_of(tmp_path, graph={"scaled_as": "small"}, train={"lr": 0.04})
    assert again.config.graph.scaled_as == "small/2"
    assert again.run.uri == second.run.uri
    assert context_of(tmp_path).run.fingerprints["ingest"] != second.run.fingerprints["ingest"]
    # the store of the run holds what the version in service reads
    registry.promote(first.config.workspace, "small", 1)
    score.run(second)
    assert not ingested_again(second)


def test_a_version_from_before_scales_were_kept_scores_as_it_did(tmp_path: Path, first: StageContext) -> None:
    where = Path(registry.read_version(first.config.workspace, "small", 1).uri) / "version.json"
    held = json.loads(where.read_text())
    where.write_text(json.dumps({key: value for key, value in held.items() if key not in {"scales", "checksum"}}))
    assert registry.read_version(first.config.workspace, "small", 1).scales == {}
    shift(tmp_path)
    later = published(tmp_path)
    registry.promote(first.config.workspace, "small", 1)
    score.run(later)
    assert not ingested_again(later)
    with pytest.raises(ConfigError, match="version 1 does not hold the scales of its columns"):
        context_of(tmp_path, graph={"scaled_as": "small/1"})


def test_models_that_are_not_there_or_scaled_nothing_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(RegistryError, match="no model 'small'"):
        context_of(tmp_path, graph={"scaled_as": "small"})
    with pytest.raises(ConfigError, match="does not name a published model"):
        context_of(tmp_path, graph={"scaled_as": "s3://bucket/run"})
    published(tmp_path, graph=UNSCALED)
    with pytest.raises(ConfigError, match="and no columns are scaled"):
        context_of(tmp_path, graph={**UNSCALED, "scaled_as": "small"})
    with pytest.raises(ConfigError, match="version 1 does not hold"):
        context_of(tmp_path, graph={"scaled_as": "small"})


@pytest.mark.table(2)
@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"edge_features": ["amount", "hour"]}, "column 2 of edges is hour, the model was trained on none"),
        ({"features": ["y"]}, "column 1 of nodes is y, the model was trained on x"),
    ],
)
@pytest.mark.usefixtures("first")
def test_other_columns_than_the_models_are_refused_unread(tmp_path: Path, graph: dict[str, Any], message: str) -> None:
    nodes, edges = tables_of(tmp_path)
    write(tmp_path, nodes.append_column("y", pa.array(np.arange(nodes.num_rows) / 7)), edges)
    with pytest.raises(TableError, match=message):
        make_artifact(context_of(tmp_path, graph={**graph, "scaled_as": "small"}), "ingest")


def test_each_table_of_a_typed_graph_is_scaled_as_its_own_was(tmp_path: Path) -> None:
    section = {**write_tables(tmp_path, typed_tables()), **GRAPH, "features": {"account": ["x"]}}
    facts = published(tmp_path, graph=section, model={"kind": "rgcn", "hidden": 4}).artifact("ingest").facts(GraphFacts)
    assert "edges/account__pays__merchant" in facts.scales
    assert {name for name in facts.scales if name.startswith("nodes/")}
    again = context_of(tmp_path, graph={**section, "scaled_as": "small"})
    assert make_artifact(again, "ingest").facts(GraphFacts) == facts


@pytest.mark.table(4)
@pytest.mark.parametrize("scaled_as", [None, "small"])
@pytest.mark.usefixtures("first")
def test_going_on_from_a_model_that_knows_columns_otherwise_is_told(tmp_path: Path, scaled_as: str | None) -> None:
    shift(tmp_path)
    later = context_of(tmp_path, graph={"scaled_as": scaled_as}, train={"start": "small", "epochs": 1})
    pipeline.run(later)
    told = [text for text in later.progress.messages if "other figures for small/1. Set graph.scaled_as" in text]
    assert len(told) == (scaled_as is None)


def test_a_rehearsal_looks_for_no_model(tmp_path: Path, first: StageContext) -> None:
    config = context_of(tmp_path, graph={"scaled_as": "small"}).config
    elsewhere = rehearsal_config(config, config.graph, one_in=4, workspace=str(tmp_path / "elsewhere"))
    assert StageContext.of(elsewhere).run.scales == {}
    assert first.run.scales == {}


@pytest.mark.slow
def test_in_how_many_parts_tables_were_counted_is_no_other_scale(tmp_path: Path, first: StageContext) -> None:
    other = context_of(tmp_path, graph={"partitions": 7})
    pipeline.run(other)
    facts, others = (each.artifact("ingest").facts(GraphFacts).scales for each in (first, other))
    assert agree(facts, others)
    for change in (lambda held: held + 1e-3, lambda held: held * 1.001):
        for figure in ("mean", "deviation"):
            scale = replace(facts["edges"], **{figure: tuple(change(np.array(getattr(facts["edges"], figure))))})
            assert not agree(facts, {**facts, "edges": scale})
    assert not agree(facts, {"nodes": facts["nodes"]})
    score.run(other)
    assert not ingested_again(other)


def test_scales_are_no_part_of_what_models_must_share(first: StageContext) -> None:
    facts = first.artifact("ingest").facts(GraphFacts)
    others = replace(facts, scales={"nodes": ColumnScale((0.0,) * 5, (1.0,) * 5)})
    assert signature_of(facts) == signature_of(others)


def test_a_config_without_the_key_is_written_as_it_was(tmp_path: Path, first: StageContext) -> None:
    held = first.config.model_dump(mode="json")
    assert config_from_dict(held) == first.config
    assert "scaled_as" not in held["graph"]
    assert "scaled_as" in context_of(tmp_path, graph={"scaled_as": "small"}).config.model_dump(mode="json")["graph"]
