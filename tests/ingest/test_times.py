"""Splits by time, and labels of edges, as ingest reads them from the edge table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gnnflow.config import Config
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, write_graph

TIME = {"kind": "time", "valid": 0.2, "test": 0.2}


def add(folder: Path, **columns: Any) -> None:
    table = pq.read_table(folder / "edges.parquet")
    for name, values in columns.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else pa.array(values))
    pq.write_table(table, folder / "edges.parquet", row_group_size=100)


def config_of(folder: Path, kind: str = "link", *, split: dict[str, Any] | None = None, **sections: Any) -> Config:
    task = {"kind": kind, "split": split or TIME, **sections.pop("task", {})}
    return graph_config(folder, task=task, train={"metric": "mrr" if kind == "link" else "accuracy"}, **sections)


def ingested(config: Config) -> tuple[GraphFacts, pa.Table, pa.Table]:
    made = make_artifact(StageContext.of(config), "ingest")
    store = GraphStore.of(made.artifact, made.manifest)
    parts = range(store.num_partitions)
    columns = ["src", "dst", "split", *store.pair_columns]
    return (
        store.facts,
        pa.concat_tables([store.edges(part, ["src", "dst", *store.edge_columns]) for part in parts]),
        pa.concat_tables([store.pairs(part, columns) for part in parts]),
    )


def times_of(pairs: pa.Table) -> dict[str, np.ndarray]:
    split = pairs["split"].to_numpy()
    return {name: pairs["time"].to_numpy()[split == code] for code, name in enumerate(SPLITS)}


@pytest.mark.parametrize("kind", ["link", "edge"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_the_last_edges_are_test_and_those_before_them_valid(tmp_path: Path, kind: str, partitions: int) -> None:
    write_graph(tmp_path, num_edges=500)
    add(tmp_path, timestamp=np.random.default_rng(0).integers(0, 10**6, 500), label=np.arange(500) % 3)
    _, edges, pairs = ingested(config_of(tmp_path, kind, graph={"partitions": partitions}))
    times = times_of(pairs)
    assert times["train"].max() < times["valid"].min() <= times["valid"].max() < times["test"].min()
    shares = [len(times[name]) / pairs.num_rows for name in SPLITS]
    np.testing.assert_allclose(shares, [0.6, 0.2, 0.2], atol=0.01)
    latest = edges["time"].to_numpy().max()
    assert (latest < times["valid"].min()) == (kind == "link")  # labels do not keep an edge from carrying messages


def test_edges_of_one_time_are_in_one_split(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=300)
    add(tmp_path, timestamp=np.arange(300) // 60)
    times = times_of(ingested(config_of(tmp_path, split={"kind": "time", "valid": 0.01, "test": 0.01}))[2])
    assert {name: set(held.tolist()) for name, held in times.items()} == {"train": {0, 1, 2}, "valid": {3}, "test": {4}}


def test_an_edge_between_the_same_ends_is_history_and_carries_messages(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=50, num_edges=5)
    table, ids = pq.read_table(tmp_path / "edges.parquet"), pq.read_table(tmp_path / "nodes.parquet")["id"].to_pylist()
    table = table.set_column(0, "src", pa.array([ids[0], ids[0], ids[1], ids[0], ids[2]]))
    table = table.set_column(1, "dst", pa.array([ids[1], ids[1], ids[0], ids[1], ids[3]]))
    pq.write_table(table, tmp_path / "edges.parquet")
    add(tmp_path, timestamp=[1, 2, 3, 9, 8])
    _, edges, pairs = ingested(config_of(tmp_path))
    assert sorted(edges["time"].to_pylist()) == [1, 2, 3]
    assert sorted(pairs["time"].to_pylist()) == [1, 2, 3, 8, 9]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "day"])
def test_times_are_read_in_every_unit(tmp_path: Path, unit: str) -> None:
    write_graph(tmp_path, num_edges=100)
    moments = [datetime(2024, 1, 1) + timedelta(days=day) for day in range(100)]  # noqa: DTZ001 - as tables hold them
    add(tmp_path, when=pa.array(moments, pa.date32() if unit == "day" else pa.timestamp(unit)))
    times = times_of(ingested(config_of(tmp_path, graph={"timestamp": "when"}))[2])
    assert len(times["test"]) == pytest.approx(20, abs=2)
    assert times["train"].max() < times["test"].min()


def test_times_written_as_int96_are_those_of_microseconds(tmp_path: Path) -> None:
    days = [datetime(year, 1, 1) + timedelta(days=day) for year in (1, 2024, 9999) for day in range(33)]  # noqa: DTZ001
    written = {}
    for kind in ("int96", "us"):
        folder = tmp_path / kind
        folder.mkdir()
        write_graph(folder, num_edges=99)
        add(folder, timestamp=pa.array(days, pa.timestamp("us")))
        table = pq.read_table(folder / "edges.parquet")
        pq.write_table(table, folder / "edges.parquet", use_deprecated_int96_timestamps=kind == "int96")
        written[kind] = ingested(config_of(folder))[2]
    assert written["int96"].equals(written["us"])
    assert {moment.year for moment in written["int96"]["time"].to_numpy().view("datetime64[us]").tolist()} == {
        1,
        2024,
        9999,
    }


def test_files_of_int96_and_of_microseconds_are_one_table(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=100)
    days = [datetime(9900, 1, 1) + timedelta(days=day) for day in range(100)]  # noqa: DTZ001 - as Spark writes them
    add(tmp_path, timestamp=pa.array(days, pa.timestamp("us")))
    table = pq.read_table(tmp_path / "edges.parquet")
    (tmp_path / "edges.parquet").unlink()
    for part in (0, 1):
        file, rows = tmp_path / f"edges-{part}.parquet", table.slice(50 * part, 50)
        pq.write_table(rows, file, use_deprecated_int96_timestamps=part == 0)
    pairs = ingested(config_of(tmp_path, graph={"edges": str(tmp_path / "edges-*.parquet")}))[2]
    given = table.filter(pc.not_equal(table["src"], table["dst"]))["timestamp"]
    assert sorted(pairs["time"].to_pylist()) == given.cast(pa.int64()).to_pylist()


def test_files_of_two_time_zones_are_one_table(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=100)
    days = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(100)]
    add(tmp_path, timestamp=pa.array(days, pa.timestamp("us", "UTC")))
    _, edges, pairs = ingested(config_of(tmp_path, graph={"edge_features": ["timestamp"]}))
    table = pq.read_table(tmp_path / "edges.parquet")
    place = table.schema.get_field_index("timestamp")
    elsewhere = table.set_column(place, "timestamp", table["timestamp"].cast(pa.timestamp("us", "Europe/Berlin")))
    (tmp_path / "edges.parquet").unlink()
    pq.write_table(table.slice(0, 50), tmp_path / "edges-0.parquet")
    pq.write_table(elsewhere.slice(50), tmp_path / "edges-1.parquet")
    graph = {"edge_features": ["timestamp"], "edges": str(tmp_path / "edges-*.parquet")}
    _, *found = ingested(config_of(tmp_path, graph=graph))
    assert found[0].equals(edges)
    assert found[1].equals(pairs)


def test_reverses_have_the_time_of_their_edge(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=200)
    add(tmp_path, timestamp=np.arange(200))
    _, edges, _ = ingested(config_of(tmp_path, graph={"reverse_edges": True}))
    held = {(a, b, t) for a, b, t in zip(*(edges[name].to_pylist() for name in ("src", "dst", "time")), strict=True)}
    assert held == {(b, a, t) for a, b, t in held}


def test_parallel_edges_have_labels_of_their_own(tmp_path: Path) -> None:
    write_graph(tmp_path, num_nodes=3, num_edges=60)
    label = np.arange(60) % 4
    split = ["train", "valid", "test"] * 20
    add(tmp_path, label=label, split=split)
    facts, edges, pairs = ingested(config_of(tmp_path, "edge", split={"kind": "column"}))
    assert (facts.targets, facts.label_kind, facts.num_classes, facts.labelled) == ("edges", "single", 4, 60)
    assert facts.splits == {"none": 0, "train": 20, "valid": 20, "test": 20}
    assert sorted(pairs["label"].to_pylist()) == sorted(label.tolist())
    assert edges.num_rows == 60
    assert "label" not in edges.column_names


def test_without_messages_no_held_out_edge_nor_a_copy_of_one_carries_any(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=900)
    add(tmp_path, label=np.arange(900) % 2, split=np.array(["train", "valid", "test"])[np.arange(900) % 3])
    config = config_of(tmp_path, "edge", split={"kind": "column"}, task={"messages": False})
    _, edges, pairs = ingested(config)
    held = pairs.filter(pa.array(pairs["split"].to_numpy() > 0))
    ends = {frozenset(pair) for pair in zip(held["src"].to_pylist(), held["dst"].to_pylist(), strict=True)}
    carrying = {frozenset(pair) for pair in zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True)}
    assert not ends & carrying
    assert pairs.num_rows == 900


def test_an_edge_without_a_label_carries_messages_and_is_in_no_split(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=300)
    label = pa.array([None if number % 3 else number % 2 for number in range(300)], pa.int64())
    add(tmp_path, label=label, timestamp=np.arange(300))
    facts, edges, pairs = ingested(config_of(tmp_path, "edge"))
    assert edges.num_rows == pairs.num_rows == 300
    assert facts.splits["none"] == 200
    assert facts.labelled == 100


@pytest.mark.parametrize(
    ("columns", "kind", "found"),
    [
        ({}, "link", r"no column 'timestamp' \(graph.timestamp\).*Set graph.timestamp"),
        ({"timestamp": np.arange(60.0)}, "link", r"column 'timestamp' is double, not a time.*integers, dates"),
        ({"timestamp": pa.array([None, *range(59)])}, "link", r"time is null in 1 row.*row 0"),
        ({"timestamp": ["now"] * 60}, "link", r"is text, not a time \(row 0: 'now'\).*such as 2024-01-31"),
        (
            {"timestamp": ["2024-02-29"] * 58 + ["2024-02-30"] * 2},
            "link",
            r"no.*ISO.* in 2 row.*\(row 58: '2024-02-30'",
        ),
        (
            {"timestamp": ["2024-02-29T05Z"] * 59 + ["2024-02-29"]},
            "link",
            r"has no time zone.*\(row 59: '2024-02-29'\)",
        ),
        ({"timestamp": ["2024-02-29"] * 59 + ["2024-02-29 05+01"]}, "link", r"has a time zone.*\(row 59: .*\+01'\)"),
        ({"timestamp": pa.array([None, *["2024-02-29"] * 59])}, "link", r"time is null in 1 row.*row 0"),
        ({"timestamp": np.zeros(60, np.int64)}, "link", r"no edge is in split 'train'"),
        ({"timestamp": np.arange(60)}, "edge", r"no column 'label' \(graph.label, where.*or to null"),
        ({"timestamp": np.arange(60), "label": [["a"]] * 60}, "edge", r"column 'label' is list.*, not a label"),
        ({"timestamp": np.arange(60), "label": [-2] * 60}, "edge", r"label out of range.*in 60 row"),
        ({"timestamp": np.arange(60), "label": [10**9] * 60}, "edge", r"the largest class is 1,000,000,000"),
        ({"timestamp": np.arange(60), "label": np.full(60, 0.5)}, "edge", r"holds floats.*train.metric is accuracy"),
    ],
    ids=[
        "none",
        "floats",
        "null",
        "no time",
        "no day",
        "no zone",
        "a zone",
        "null among text",
        "one time",
        "no label",
        "text",
        "below",
        "above",
        "numbers",
    ],
)
def test_what_the_edge_table_lacks_is_named(tmp_path: Path, columns: dict[str, Any], kind: str, found: str) -> None:
    write_graph(tmp_path, num_edges=60)
    add(tmp_path, **columns)
    with pytest.raises(TableError, match=found):
        ingested(config_of(tmp_path, kind))


def test_a_split_without_a_label_is_named(tmp_path: Path) -> None:
    write_graph(tmp_path, num_edges=3)
    add(tmp_path, label=pa.array([0, None, 1]), split=["train", "valid", "test"])
    with pytest.raises(TableError, match=r"has a split but no label.*row 1"):
        ingested(config_of(tmp_path, "edge", split={"kind": "column"}))


def test_a_label_is_no_attribute_of_its_own_edge(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(ConfigError, match=r"graph.edge_features.*'amount' is the column of graph.label"):
        config_of(tmp_path, "edge", graph={"label": "amount", "edge_features": ["amount", "hour"]})


def test_a_column_of_times_that_nothing_reads_is_of_no_consequence(tmp_path: Path) -> None:
    write_graph(tmp_path)
    names = [graph_config(tmp_path, graph={"timestamp": name}) for name in ("timestamp", "amount")]
    assert len({StageContext.of(config).run.fingerprints["ingest"] for config in names}) == 1
