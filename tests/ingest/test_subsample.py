"""Subsamples of a graph's tables: which nodes and edges stay, and what of the graph they keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from gnnflow.config import GraphConfig
from gnnflow.ingest.subsample import Subsample, levels, read_subsample
from gnnflow.progress import Silent
from gnnflow.storage.columns import id_keys

NODES, EDGES, HUBS = 6_000, 60_000, 40


def write(folder: Path, *, text: bool = False, suffix: str = "parquet") -> GraphConfig:
    """Write a graph whose first nodes are the sources of half of the edges; three nodes in all are of split `test`."""
    rng = np.random.default_rng(0)
    numbers = np.arange(NODES) * 7 + 3
    ids: Any = np.array([f"node-{each}" for each in numbers]) if text else numbers
    src, dst = rng.integers(0, NODES, EDGES), (NODES * rng.random(EDGES) ** 2).astype(np.int64)
    src[::2] = rng.integers(0, HUBS, EDGES // 2)
    split = np.where(rng.random(NODES) < 0.1, "train", np.where(rng.random(NODES) < 0.1, "valid", ""))
    split[[11, 500, 4_000]] = "test"
    nodes = pa.table({"id": ids, "label": rng.integers(0, 3, NODES), "split": split, "f": rng.random(NODES)})
    edges = pa.table({"src": ids[src], "dst": ids[dst], "weight": rng.random(EDGES)})
    for name, table in (("nodes", nodes), ("edges", edges)):
        uri = folder / f"{name}.{suffix}"
        if suffix == "csv":
            pa_csv.write_csv(table, uri)
        else:
            pq.write_table(table, uri, row_group_size=2_500)
    return GraphConfig(nodes=str(folder / f"nodes.{suffix}"), edges=str(folder / f"edges.{suffix}"), features=("f",))


def held(config: GraphConfig) -> tuple[Subsample, tuple[int, ...]]:
    return read_subsample(config, targets=None, smallest=1_000, largest=30_000, progress=Silent())


def read(config: GraphConfig) -> tuple[pa.Table, pa.Table]:
    assert isinstance(config.nodes, str)
    assert isinstance(config.edges, str)
    reader = pa_csv.read_csv if config.nodes.endswith("csv") else pq.read_table
    nodes, edges = reader(config.nodes), reader(config.edges)
    return nodes, edges


def degrees(edges: pa.Table, column: str) -> dict[Any, int]:
    values, counts = np.unique(edges[column].to_numpy(zero_copy_only=False), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


FORMS = [{"text": False}, {"text": True}, {"text": True, "suffix": "csv"}, {"text": False, "suffix": "csv"}]


@pytest.mark.parametrize("form", FORMS, ids=["integers", "text", "text in CSV", "integers in CSV"])
def test_a_node_that_stays_has_its_in_edges_and_sources_that_stay(tmp_path: Path, form: dict[str, Any]) -> None:
    graph = write(tmp_path, **form)
    subsample, found = held(graph)
    assert found == (64, 16, 4)
    assert subsample.num_rows == (NODES, EDGES)
    whole, (_, all_edges) = {}, read(graph)
    whole = degrees(all_edges, "dst")
    before: set[Any] = set()
    for one_in in (16, 4):
        nodes, edges = read(subsample.write(str(tmp_path / str(one_in)), one_in=one_in, chunks=2))
        kept = set(nodes["id"].to_pylist())
        assert 0.8 < len(kept) * one_in / NODES < 1.2
        assert before <= kept
        assert degrees(edges, "dst") == {node: count for node, count in whole.items() if node in kept}
        assert set(edges["src"].to_pylist()) <= kept
        before = kept
    assert subsample.write(str(tmp_path / "all"), one_in=1, chunks=2) is graph


def test_nodes_that_many_edges_start_at_still_are_such_nodes(tmp_path: Path) -> None:
    graph = write(tmp_path)
    subsample, _ = held(graph)
    _, edges = read(subsample.write(str(tmp_path / "few"), one_in=4, chunks=1))
    hubs = sum(count for node, count in degrees(edges, "src").items() if node < HUBS * 7)
    assert 0.4 < hubs / edges.num_rows < 0.6


def test_every_split_is_there_with_labels_of_its_own_rows(tmp_path: Path) -> None:
    graph = write(tmp_path)
    subsample, _ = held(graph)
    own = pq.read_table(graph.nodes)
    labels = set(own.filter(pa.compute.equal(own["split"], "test"))["label"].to_pylist())
    for one_in in (64, 16, 4):
        nodes, _ = read(subsample.write(str(tmp_path / str(one_in)), one_in=one_in, chunks=1))
        test = nodes.filter(pa.compute.equal(nodes["split"], "test"))
        assert test.num_rows == 3
        assert set(test["label"].to_pylist()) <= labels
        assert len(set(nodes["id"].to_pylist())) == nodes.num_rows


def test_partitions_are_as_even_as_of_any_nodes(tmp_path: Path) -> None:
    subsample, _ = held(write(tmp_path))
    nodes, _ = read(subsample.write(str(tmp_path / "few"), one_in=4, chunks=1))
    counts = np.bincount((id_keys(nodes["id"]) % np.uint64(4)).astype(np.int64), minlength=4)
    assert counts.min() > nodes.num_rows / 5


def test_a_type_of_few_nodes_stays_whole_and_its_edges_thin_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    users, shops = np.arange(8_000), np.arange(90) + 100_000
    for name, ids in (("user", users), ("shop", shops)):
        pq.write_table(pa.table({"id": ids, "f": rng.random(len(ids)), "label": ids % 2}), tmp_path / f"{name}.parquet")
    buys = pa.table({"src": rng.choice(users, 40_000), "dst": rng.choice(shops, 40_000)})
    pq.write_table(buys, tmp_path / "buys.parquet")
    graph = GraphConfig(
        nodes={name: str(tmp_path / f"{name}.parquet") for name in ("user", "shop")},
        edges={"user__buys__shop": str(tmp_path / "buys.parquet")},
        target="user",
        features=("f",),
    )
    subsample, found = held(graph)
    assert found[-1] == 4
    few = subsample.write(str(tmp_path / "few"), one_in=4, chunks=1)
    assert not isinstance(few.nodes, str)
    assert not isinstance(few.edges, str)
    assert pq.read_table(few.nodes["shop"]).num_rows == len(shops)
    kept = pq.read_table(few.nodes["user"])["id"].to_pylist()
    assert 0.9 < len(kept) / 2_000 < 1.1
    edges = pq.read_table(few.edges["user__buys__shop"])
    assert 0.9 < edges.num_rows / 10_000 < 1.1
    assert set(edges["src"].to_pylist()) <= set(kept)


@pytest.mark.parametrize(
    ("edges", "expected"),
    [(100, (4, 1)), (5_000, (16, 4, 1)), (30_000, (64, 16, 4, 1)), (500_000, (1024, 256, 64, 16))],
)
def test_subsamples_grow_by_the_same_factor_to_the_largest_that_may_be(edges: int, expected: tuple[int, ...]) -> None:
    assert levels(edges, smallest=1_000, largest=32_000) == expected
