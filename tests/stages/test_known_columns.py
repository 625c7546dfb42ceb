"""A model knows columns by their places and classes by their numbers: others are not taken for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import RegistryError, TableError
from gnnflow.registry import other_columns
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = {"epochs": 2, "batch_size": 16, "threads": 1}
COLUMNS = ["a", "b", "c"]
GRAPH = {"features": COLUMNS, "edge_features": ["far", "near"], "classes": ["low", "mid", "high", "top"]}


def write_columns(folder: Path) -> None:
    """Write a small graph with columns of features and of edges, and names of classes."""
    write_graph(folder)
    nodes, edges = (pq.read_table(folder / f"{side}.parquet") for side in ("nodes", "edges"))
    rng, names = np.random.default_rng(3), GRAPH["classes"]
    for name in (*COLUMNS, "noise"):
        nodes = nodes.append_column(name, pa.array(rng.normal(size=nodes.num_rows)))
    label = pa.array([None if each is None or each < 0 else names[each] for each in nodes["label"].to_pylist()])
    nodes = nodes.set_column(nodes.schema.get_field_index("label"), "label", label)
    pq.write_table(nodes, folder / "nodes.parquet")
    for name in ("far", "near"):
        edges = edges.append_column(name, pa.array(rng.normal(size=edges.num_rows)))
    pq.write_table(edges, folder / "edges.parquet")


def context_of(folder: Path, *, graph: dict[str, Any] | None = None, **train: Any) -> StageContext:
    sections = {"graph": {**GRAPH, **(graph or {})}, "train": {**TRAIN, **train}}
    return StageContext.of(graph_config(folder, **sections), progress=Heard())


def heard(context: StageContext) -> str:
    assert isinstance(context.progress, Heard)
    return "\n".join(context.progress.messages)


OTHERS = [
    ({"features": ["b", "a", "c"]}, "column 1 of nodes is b, the model was trained on a"),
    ({"features": ["a", "b", "noise"]}, "column 3 of nodes is noise, the model was trained on c"),
    ({"edge_features": ["near", "far"]}, "column 1 of edges is near, the model was trained on far"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("known")
    write_columns(made)
    context = context_of(made)
    pipeline.run(context)
    assert publish.run(context).promoted
    return made


@pytest.mark.parametrize(("graph", "found"), OTHERS)
def test_other_columns_of_the_same_width_are_not_scored(folder: Path, graph: dict[str, Any], found: str) -> None:
    with pytest.raises(RegistryError, match=f"cannot score this graph: {found}"):
        score.run(context_of(folder, graph=graph))


@pytest.mark.table(3)
@pytest.mark.parametrize(("graph", "found"), OTHERS)
def test_a_champion_is_not_compared_on_columns_it_does_not_know(
    folder: Path, graph: dict[str, Any], found: str
) -> None:
    context = context_of(folder, graph=graph, lr=0.03)
    pipeline.run(context)
    result = publish.run(context)
    assert not result.promoted
    assert found in result.reason


def test_a_champion_is_not_compared_where_classes_have_other_numbers(folder: Path) -> None:
    context = context_of(folder, graph={"classes": ["mid", "low", "high", "top"]}, lr=0.04)
    pipeline.run(context)
    result = publish.run(context)
    assert not result.promoted
    assert "class 0 is mid, the model was trained on low" in result.reason


def test_training_tells_where_it_starts_from_a_model_of_other_columns(folder: Path) -> None:
    context = context_of(folder, graph={"features": ["a", "c", "b"]}, start="small/1")
    pipeline.run(context)
    assert "train.start: column 2 of nodes is c, the model was trained on b. small/1 learned them by" in heard(context)


def test_figures_of_another_column_scale_none(tmp_path: Path) -> None:
    write_columns(tmp_path)
    scaling = {"normalize": "standard"}
    context = context_of(tmp_path, graph=scaling)
    pipeline.run(context)
    publish.run(context)
    later = context_of(tmp_path, graph={**scaling, "features": ["b", "a", "c"], "scaled_as": "small"})
    with pytest.raises(TableError, match=r"graph\.scaled_as: column 1 of nodes is b, the model was trained on a"):
        perform(later, "run")


def test_edges_are_turned_round_where_they_were_for_the_model(tmp_path: Path) -> None:
    write_columns(tmp_path)
    context = context_of(tmp_path, graph={"reverse_edges": True})
    pipeline.run(context)
    expected = pq.read_table(publish.run(context).predictions).sort_by("id")
    found = pq.read_table(score.run(context_of(tmp_path)).predictions).sort_by("id")
    assert found.equals(expected)


def test_what_an_older_version_did_not_keep_is_not_held_against_it() -> None:
    known = {"nodes": ["a", "b"]}
    assert not other_columns({}, known)
    assert not other_columns(known, {})
    assert not other_columns(known, {"nodes": ("a", "b")})
    assert other_columns(known, {"nodes": ("a",), "edges": ("w",)}) == (
        "column 2 of nodes is none, the model was trained on b",
        "column 1 of edges is w, the model was trained on none",
    )
