from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, write_graph
from tests.time_splits import time_splits

LINK = {"task": {"kind": "link"}, "train": {"metric": "mrr"}}
Edge = tuple[Any, Any]


def ingested(config: Config) -> tuple[GraphStore, list[Edge], dict[str, list[Edge]]]:
    """The store, its edges and the pairs of each split, by the user's ids."""
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    parts = range(store.num_partitions)
    ids = np.concatenate([store.nodes(part, ["id"])["id"].to_numpy() for part in parts])
    edges = pa.concat_tables([store.edges(part, ["src", "dst"]) for part in parts])
    pairs = pa.concat_tables([store.pairs(part, ["src", "dst", "split"]) for part in parts])
    return (
        store,
        list(zip(ids[edges["src"].to_numpy()], ids[edges["dst"].to_numpy()], strict=True)),
        {
            split: list(zip(ids[kept["src"].to_numpy()], ids[kept["dst"].to_numpy()], strict=True))
            for code, split in enumerate(SPLITS)
            for kept in [pairs.filter(pa.array(pairs["split"].to_numpy() == code))]
        },
    )


def table_edges(folder: Path) -> list[Edge]:
    table = pq.read_table(folder / "edges.parquet")
    return list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))


@pytest.mark.parametrize("both_ways", [False, True])
def test_no_held_out_edge_and_no_copy_of_one_carries_messages(tmp_path: Path, both_ways: bool) -> None:
    write_graph(tmp_path, num_edges=900)  # of 60 nodes: parallel and reverse edges abound
    split = {"kind": "random", "valid": 0.2, "test": 0.2}
    config = graph_config(
        tmp_path, **{**LINK, "task": {"kind": "link", "split": split}}, graph={"reverse_edges": both_ways}
    )
    _, edges, pairs = ingested(config)
    held = {frozenset(pair) for name in ("valid", "test") for pair in pairs[name]}
    assert held
    assert not held & {frozenset(edge) for edge in edges}
    given = table_edges(tmp_path)
    expected = sum(frozenset(edge) not in held for edge in given)
    if both_ways:
        expected += sum(frozenset(edge) not in held and edge[0] != edge[1] for edge in given)
    assert len(edges) == expected


def test_every_edge_but_a_loop_is_a_target_once(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=900)
    store, _, pairs = ingested(graph_config(tmp_path, **LINK))
    listed = [pair for split in pairs.values() for pair in split]
    assert len(listed) == len(set(listed))
    assert set(listed) == {edge for edge in table_edges(tmp_path) if edge[0] != edge[1]}
    assert {name: len(found) for name, found in pairs.items()} == {name: store.facts.splits[name] for name in SPLITS}


def test_both_directions_are_in_one_split_whatever_the_partitions(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=900)
    found = [ingested(graph_config(tmp_path, **LINK, graph={"partitions": parts}))[2] for parts in (1, 4)]
    assert {name: set(pairs) for name, pairs in found[0].items()} == {
        name: set(pairs) for name, pairs in found[1].items()
    }
    split = {pair: name for name, pairs in found[0].items() for pair in pairs}
    assert all(split[pair] == split[pair[::-1]] for pair in split if pair[::-1] in split)


def with_splits(folder: Path, splits: list[str | None]) -> None:
    table = pq.read_table(folder / "edges.parquet")
    pq.write_table(table.append_column("split", pa.array(splits, pa.string())), folder / "edges.parquet")


def test_a_planted_reverse_of_a_test_edge_is_left_out_and_counted(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=50, num_edges=6)
    table = pq.read_table(tmp_path / "edges.parquet")
    ids = pq.read_table(tmp_path / "nodes.parquet")["id"].to_pylist()
    ends = [(0, 1), (1, 0), (2, 3), (4, 5), (2, 3), (6, 7)]  # (1, 0) reverses a test edge, (2, 3) comes twice
    table = table.set_column(0, "src", pa.array([ids[a] for a, _ in ends]))
    table = table.set_column(1, "dst", pa.array([ids[b] for _, b in ends]))
    pq.write_table(table, tmp_path / "edges.parquet")
    with_splits(tmp_path, ["test", "train", "valid", "train", None, None])
    config = graph_config(tmp_path, task={"kind": "link", "split": {"kind": "column"}}, train={"metric": "mrr"})
    store, edges, pairs = ingested(config)
    assert edges == sorted([(ids[4], ids[5]), (ids[6], ids[7])], key=edges.index)
    assert pairs == {"train": [(ids[4], ids[5])], "valid": [(ids[2], ids[3])], "test": [(ids[0], ids[1])]}
    assert store.facts.copies_left_out == 2
    degrees = np.concatenate([store.nodes(part, ["in_degree"])["in_degree"].to_numpy() for part in range(3)])
    assert degrees.sum() == len(edges)


@pytest.mark.table(8)
@pytest.mark.parametrize("seed", range(4))
def test_of_the_rows_of_a_pair_one_of_the_latest_split_is_the_target(tmp_path: Path, seed: int) -> None:
    write_graph(tmp_path, num_nodes=8, num_edges=90, seed=seed)  # of 56 pairs
    drawn = pairs_with_keys(ingested(graph_config(tmp_path, **LINK))[0])
    rng = np.random.default_rng(seed)
    splits = rng.choice(np.array([*SPLITS, None], dtype=object), 90, p=[0.6, 0.1, 0.1, 0.2]).tolist()
    with_splits(tmp_path, splits)
    config = graph_config(tmp_path, task={"kind": "link", "split": {"kind": "column"}}, train={"metric": "mrr"})
    store, edges, pairs = ingested(config)
    codes = [SPLITS.index(split) if split else -1 for split in splits]
    rows = list(zip(table_edges(tmp_path), codes, strict=True))
    latest: dict[frozenset[Any], int] = {}
    for edge, code in rows:
        between = frozenset(edge)
        latest[between] = max(latest.get(between, -1), code if len(between) == 2 else -1)
    targets = {(edge, code) for edge, code in rows if code >= 0 and code == latest[frozenset(edge)]}
    assert sorted(targets) == sorted((pair, SPLITS.index(name)) for name, found in pairs.items() for pair in found)
    assert sorted(edges) == sorted(edge for edge, _ in rows if latest[frozenset(edge)] <= 0)
    keys = pairs_with_keys(store)
    assert keys == {pair: drawn[pair] for pair in keys}


def pairs_with_keys(store: GraphStore) -> dict[Edge, int]:
    """The key of each pair, by dense ids, which a split does not change."""
    tables = [store.pairs(part, ["src", "dst", "key"]) for part in range(store.num_partitions)]
    columns = (pa.concat_tables(tables)[name].to_pylist() for name in ("src", "dst", "key"))
    return {(src, dst): key for src, dst, key in zip(*columns, strict=True)}


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = graph_config(tmp_path, task={"kind": "link", "split": {"kind": "column"}}, train={"metric": "mrr"})
    with pytest.raises(TableError, match=r"no column 'split'.*task.split.kind is column"):
        ingested(config)


def test_a_split_that_is_none_is_refused_with_its_row(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=3)
    with_splits(tmp_path, ["train", "valid", "dev"])
    config = graph_config(tmp_path, task={"kind": "link", "split": {"kind": "column"}}, train={"metric": "mrr"})
    with pytest.raises(TableError, match=r"split is none of train, valid, test.*row 2: 'dev'"):
        ingested(config)


def test_without_train_edges_ingest_stops(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=3)
    with_splits(tmp_path, ["valid", "valid", "test"])
    config = graph_config(tmp_path, task={"kind": "link", "split": {"kind": "column"}}, train={"metric": "mrr"})
    with pytest.raises(TableError, match=r"no edge is in split 'train'"):
        ingested(config)


def test_another_split_is_another_store_and_other_keys_are_not(tmp_path: Path) -> None:
    write_graph(tmp_path)
    shares = {"kind": "random", "valid": 0.1, "test": 0.1}
    configs = [
        graph_config(tmp_path, train={"metric": "mrr"}, task={"kind": "link", **task})
        for task in ({}, {"width": 8, "decoder": {"kind": "mlp"}}, {"split": shares})
    ]
    first, second, third = (StageContext.of(config).run.fingerprints["ingest"] for config in configs)
    assert first == second != third


def test_two_nodes_have_no_negative_and_are_refused_by_ingest(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=2, num_edges=60)
    task = {"kind": "link", "split": {"kind": "time", "valid": 0.2, "test": 0.2}}
    edges = pq.read_table(tmp_path / "edges.parquet")
    stamps = pa.array(np.arange(edges.num_rows))
    pq.write_table(edges.append_column("timestamp", stamps), tmp_path / "edges.parquet")
    config = graph_config(tmp_path, **{**LINK, "task": task}, graph={"timestamp": "timestamp", "partitions": 1})
    with pytest.raises(TableError, match=r"the graph has 2 nodes: no negative exists.* at least 3 nodes"):
        ingested(config)


@pytest.mark.parametrize(("last", "partitions"), [(10**9, 1), (12, 3)])
def test_times_divide_edges_as_sorting_all_of_them_does(tmp_path: Path, last: int, partitions: int) -> None:
    write_graph(tmp_path, num_nodes=2000, num_edges=20_000)  # a sample of them would miss the bounds
    table = pq.read_table(tmp_path / "edges.parquet")
    times = np.random.default_rng(0).integers(-5, last, table.num_rows)
    pq.write_table(table.append_column("timestamp", pa.array(times)), tmp_path / "edges.parquet", row_group_size=6000)
    split = {"kind": "time", "valid": 0.1, "test": 0.2}
    config = graph_config(
        tmp_path, **{**LINK, "task": {"kind": "link", "split": split}}, graph={"partitions": partitions}
    )
    store, _, _ = ingested(config)
    pairs = pa.concat_tables([store.pairs(part, ["time", "split"]) for part in range(store.num_partitions)])
    times = pairs["time"].to_numpy()  # a loop is no target
    assert pairs["split"].to_numpy().tolist() == time_splits(times, valid=0.1, test=0.2).tolist()
    assert store.facts.split_times["test"] == str(times[pairs["split"].to_numpy() == SPLITS.index("test")].min())
