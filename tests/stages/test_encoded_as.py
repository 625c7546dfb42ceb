"""A published model reads later tables with the columns that it learned from, whatever values the day brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.config.loading import PartialConfig
from gnnflow.graph.errors import GnnflowError
from gnnflow.graph.facts import GraphFacts
from gnnflow.stages import guards, pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.first_look import first_look
from gnnflow.stages.running import make_artifact
from tests.hearing import Heard
from tests.small_graphs import graph_config
from tests.stages.published import probabilities, run_published

NUM_NODES = 80
GRAPH = {"features": ["age", "country", "score"], "normalize": "standard"}


def write(folder: Path, **columns: Any) -> None:
    rng = np.random.default_rng(0)
    nodes = {
        "id": np.arange(NUM_NODES),
        "age": pa.array(rng.integers(18, 80, NUM_NODES), mask=rng.random(NUM_NODES) < 0.2),
        "country": pa.array(np.array(["de", "fr", "it"])[np.arange(NUM_NODES) % 3]),
        "score": rng.random(NUM_NODES),
        "label": np.arange(NUM_NODES) % 2,
        "split": np.array(["train", "train", "valid", "test"], dtype=object)[np.arange(NUM_NODES) // 2 % 4],
    }
    src, dst = rng.integers(0, NUM_NODES, (2, 240))
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({**nodes, **columns}), folder / "nodes.parquet")
    pq.write_table(pa.table({"src": src, "dst": dst}), folder / "edges.parquet")


def context_of(folder: Path, *, graph: Any = None, **train: Any) -> StageContext:
    sections: dict[str, Any] = {"train": {"epochs": 2, "threads": 1, **train}, "model": {"hidden": 4}}
    sections |= {"publish": {"incomparable": "promote"}}
    return StageContext.of(graph_config(folder, graph={**GRAPH, **(graph or {})}, **sections), progress=Heard())


def published(folder: Path, **keys: Any) -> StageContext:
    return run_published(context_of(folder, **keys))


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_a_model_scores_rows_as_before_where_other_rows_bring_other_values(tmp_path: Path, scaling: str) -> None:
    """Later rows lie apart from the graph: they change every count, mean and category, and no neighbour."""
    graph = {"normalize": scaling}
    write(tmp_path)
    before = probabilities(published(tmp_path, graph=graph))
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    more = nodes.set_column(0, "id", pc.add(nodes["id"], 1000))
    more = more.set_column(2, "country", pa.array(["se"] * NUM_NODES))
    more = more.set_column(3, "score", pa.array([None if place % 2 else 50.0 for place in range(NUM_NODES)]))
    pq.write_table(pa.concat_tables([nodes, more]), tmp_path / "nodes.parquet")
    later = context_of(tmp_path, graph=graph)
    after = probabilities(later)
    assert len(after) == 2 * NUM_NODES
    np.testing.assert_allclose(after[:NUM_NODES], before, atol=1e-5)
    said = [text for text in later.progress.messages if "'country' is categorical" in text]
    assert any("80 of 160 values are rarer or unknown" in text for text in said)
    assert score.run(later).reused
    assert score.is_quick(later)


def test_runs_encode_as_a_model_does_where_they_are_told_to(tmp_path: Path) -> None:
    write(tmp_path)
    first = published(tmp_path)
    write(tmp_path, country=pa.array(["de", "se"] * (NUM_NODES // 2)), score=np.arange(NUM_NODES) * 1.0)
    again = context_of(tmp_path, graph={"scaled_as": "small"})
    make_artifact(again, "ingest")
    ours, theirs = (each.artifact("ingest").facts(GraphFacts) for each in (again, first))
    assert ours.states == theirs.states
    assert ours.scales == theirs.scales
    assert ours.encodings["nodes"][1].unknown == NUM_NODES // 2
    version = registry.find_version(again.config.workspace, "small", "1")
    assert version.states == theirs.states


def test_the_look_shows_the_kinds_of_a_model_whose_columns_are_not_said(tmp_path: Path) -> None:
    """Without the model, text of digits is refused as a feature: the user has to say its kind."""
    write(tmp_path, code=[str(number % 3) for number in range(NUM_NODES)])
    features = {"features": ["age", "code"]}
    published(tmp_path, graph={**features, "columns": {"code": {"kind": "categorical"}}})
    alone, known = (
        first_look(PartialConfig(context_of(tmp_path, graph={**features, "scaled_as": name}).config))
        for name in (None, "small")
    )
    assert "column 'code' is string, not numbers" in str(alone.stops[0])
    assert not known.stops
    assert {column.name: column.role for column in known.tables[0].columns}["code"] == "feature (categorical)"


def test_a_champion_of_other_values_is_compared_on_its_own(tmp_path: Path) -> None:
    write(tmp_path)
    published(tmp_path)
    write(tmp_path, country=pa.array(["de", "se"] * (NUM_NODES // 2)))
    second = context_of(tmp_path)
    pipeline.run(second)
    found = publish.run(second)
    assert found.champion, found.reason


def test_a_column_of_another_kind_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    published(tmp_path)
    write(tmp_path, country=pa.array([["de"]] * NUM_NODES))
    with pytest.raises(GnnflowError, match=r"'country' is list.*, not single values"):
        score.run(context_of(tmp_path))


def test_a_model_reads_the_columns_that_all_stood_for(tmp_path: Path) -> None:
    write(tmp_path)
    graph = {"features": "all"}
    before = probabilities(published(tmp_path, graph=graph))
    write(tmp_path, added=np.arange(NUM_NODES))
    np.testing.assert_allclose(probabilities(context_of(tmp_path, graph=graph)), before, atol=1e-6)


def test_guards_look_at_shares_and_let_single_values_come_and_go(tmp_path: Path) -> None:
    write(tmp_path)
    pipeline.run(context_of(tmp_path))
    countries = np.array(["de", "fr", "it"])[np.arange(NUM_NODES) % 3].astype(object)
    countries[5] = "se"
    write(tmp_path, country=pa.array(countries))
    make_artifact(context_of(tmp_path), "ingest")
    assert "psi.country = de" in guards.check(context_of(tmp_path)).figures
    write(tmp_path, country=pa.array(["de", "se", "se", "se"] * (NUM_NODES // 4)))
    make_artifact(context_of(tmp_path), "ingest")
    with pytest.raises(GnnflowError, match=r"column country = se has changed.*country = it"):
        guards.check(context_of(tmp_path))


def test_a_model_reads_its_columns_where_others_have_gained_a_kind(tmp_path: Path) -> None:
    write(tmp_path)
    before = probabilities(published(tmp_path, graph={"features": "all"}))
    write(tmp_path, added=np.arange(NUM_NODES) % 4)
    graph = {"features": "all", "columns": {"added": {"kind": "categorical"}}}
    np.testing.assert_allclose(probabilities(context_of(tmp_path, graph=graph)), before, atol=1e-6)
