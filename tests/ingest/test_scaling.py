"""Edge attributes are scaled where that is asked for, and large numbers that nothing scales are told of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.facts import GraphFacts
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import GraphStore
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

STANDARD = {"edge_features": ["amount", "hour"], "edge_normalize": "standard"}
LABELS = {"kind": "edge", "split": {"kind": "random"}}


def ingested(folder: Path, *, heard: Heard | None = None, graph: Any = STANDARD, **sections: Any) -> ArtifactResult:
    config = graph_config(folder, graph=graph, **sections)
    return make_artifact(StageContext.of(config, progress=heard or Heard()), "ingest")


def change(folder: Path, name: str, make: Any, *, table: str = "edges") -> None:
    """Replace a column of a table by a function of it."""
    held = pq.read_table(folder / f"{table}.parquet")
    column = pa.array(make(held[name].to_numpy()))
    pq.write_table(held.set_column(held.column_names.index(name), name, column), folder / f"{table}.parquet")


def attributes(result: ArtifactResult, relation: int = 0) -> Any:
    store = GraphStore.of(result.artifact, result.manifest)
    parts = [store.edges(part, ["attributes"], relation=relation) for part in range(store.num_partitions)]
    return np.concatenate([to_matrix(part["attributes"]) for part in parts])


@pytest.mark.parametrize("sections", [{}, {"task": LABELS}])
def test_columns_have_mean_zero_and_variance_one(tmp_path: Path, sections: dict[str, Any]) -> None:
    write_graph(tmp_path)
    change(tmp_path, "amount", lambda held: 1e6 + 1e4 * held)
    edges = pq.read_table(tmp_path / "edges.parquet")
    labels = pa.array(np.arange(edges.num_rows) % 2)
    pq.write_table(edges.append_column("label", labels), tmp_path / "edges.parquet")
    held = attributes(ingested(tmp_path, **sections))
    np.testing.assert_allclose(held.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(held.std(0), 1, atol=1e-3)


def test_the_unit_of_a_column_changes_no_byte(tmp_path: Path) -> None:
    write_graph(tmp_path)
    first = ingested(tmp_path).digest
    change(tmp_path, "amount", lambda held: held * 1024)  # which rounds nothing
    assert ingested(tmp_path).digest == first


def test_a_reverse_edge_has_the_numbers_of_its_edge(tmp_path: Path) -> None:
    write_graph(tmp_path)
    one_way = attributes(ingested(tmp_path))
    both = attributes(ingested(tmp_path, graph={**STANDARD, "reverse_edges": True}))
    assert {*map(tuple, both.tolist())} == {*map(tuple, one_way.tolist())}


@pytest.mark.parametrize("task", [{"kind": "node"}, LABELS])
def test_neither_order_of_rows_nor_files_change_a_byte(tmp_path: Path, task: dict[str, Any]) -> None:
    write_graph(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    edges = edges.append_column("label", pa.array(np.arange(edges.num_rows) % 2))
    # no two edges of the same ends, whose order is the table's
    pairs = zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True)
    edges = edges.take(sorted({pair: row for row, pair in enumerate(pairs)}.values()))
    digests = set()
    for seed, files in ((0, 1), (1, 4)):
        rows = edges.take(np.random.default_rng(seed).permutation(edges.num_rows))
        folder = tmp_path / f"edges-{seed}"
        folder.mkdir()
        for number, part in enumerate(np.array_split(np.arange(rows.num_rows), files)):
            pq.write_table(rows.take(part), folder / f"{number}.parquet")
        digests.add(ingested(tmp_path, graph={**STANDARD, "edges": str(folder)}, task=task).digest)
    assert len(digests) == 1


def test_each_relation_is_scaled_by_its_own_edges(tmp_path: Path) -> None:
    tables = typed_tables()
    pays = tables["account__pays__merchant"]
    amounts = pa.array(7.0 * np.arange(pays.num_rows) + 1e5)
    tables["account__pays__merchant"] = pays.set_column(pays.column_names.index("amount"), "amount", amounts)
    section = {**write_tables(tmp_path, tables), "edge_features": ["amount"]}
    as_given = ingested(tmp_path, graph=section).facts(GraphFacts)
    assert as_given.large_columns["graph.edge_normalize"] == ("account__pays__merchant: amount",)
    result = ingested(tmp_path, graph={**section, "edge_normalize": "standard"})
    facts = result.facts(GraphFacts)
    scaled = [number for number, each in enumerate(facts.relations) if each.attribute_width]
    assert scaled
    for relation in scaled:
        held = attributes(result, relation)
        np.testing.assert_allclose(held.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(held.std(0), 1, atol=1e-4)


def test_a_constant_becomes_zeros_and_large_integers_are_kept_apart(tmp_path: Path) -> None:
    write_graph(tmp_path)
    change(tmp_path, "amount", lambda held: np.full(len(held), 0.1))
    change(tmp_path, "hour", lambda held: 1_700_000_000 + np.arange(len(held)))
    constant, times = attributes(ingested(tmp_path)).T
    assert not constant.any()
    assert len(np.unique(times)) == len(times)


def test_rows_set_aside_hold_what_the_table_held(tmp_path: Path) -> None:
    write_graph(tmp_path)
    change(tmp_path, "dst", lambda held: np.where(np.arange(len(held)) == 5, 10**6, held))
    given = pq.read_table(tmp_path / "edges.parquet").slice(5, 1)
    result = ingested(tmp_path, graph={**STANDARD, "on_bad_rows": "quarantine"})
    (file,) = (entry.name for entry in result.manifest.files if entry.name.startswith("quarantine/edges"))
    (row,) = pq.read_table(Path(result.artifact) / file).to_pylist()
    assert row["attributes"] == pytest.approx([given["amount"][0].as_py(), given["hour"][0].as_py()])


@pytest.mark.parametrize(
    ("columns", "graph", "expected"),
    [
        ([], {}, {}),
        (["amount"], {}, {"graph.edge_normalize": ("amount",)}),
        (["amount"], {"edge_normalize": "standard"}, {}),
        (["x"], {}, {"graph.normalize": ("x",)}),
        (["x"], {"normalize": "standard"}, {}),
        (["x"], {"normalize": "row"}, {}),
        (["x", "hour"], {}, {"graph.normalize": ("x",), "graph.edge_normalize": ("hour",)}),
    ],
)
def test_large_numbers_are_told_of_with_the_key_that_scales_them(
    tmp_path: Path, columns: list[str], graph: dict[str, Any], expected: dict[str, tuple[str, ...]]
) -> None:
    write_graph(tmp_path)
    for name in columns:
        if name == "x":
            nodes = pq.read_table(tmp_path / "nodes.parquet")
            x = to_matrix(nodes["x"]).copy()
            x[:, 2] *= 20  # one column of the list is enough
            held = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
            pq.write_table(nodes.set_column(1, "x", held), tmp_path / "nodes.parquet")
        else:
            change(tmp_path, name, lambda held: held * 30)
    heard = Heard()
    facts = ingested(tmp_path, heard=heard, graph={"edge_features": ["amount", "hour"], **graph}).facts(GraphFacts)
    assert {key: names for key, names in facts.large_columns.items() if names} == expected
    told = [text for text in heard.messages if "large numbers" in text]
    assert len(told) == len(expected)
    for text, (key, names) in zip(told, expected.items(), strict=True):
        assert f"Set {key}: standard" in text
        assert ", ".join(names) in text
