"""The targets of scored tables that are judged: of any split, and none that the model was trained on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import metrics as sk

from gnnflow.graph.errors import TableError, TrainingError
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from tests.small_graphs import write_graph
from tests.stages.test_edge_labels import config_of, write_labelled
from tests.stages.test_score_figures import by_sign, published, relabel

DAY = {"task": {"split": {"kind": "time", "column": "day"}}}
RANDOM = {"task": {"split": {"kind": "random", "valid": 0.2, "test": 0.2}}}


def write_month(folder: Path, *, split: str | None, day: int = 0, first_id: int = 0) -> pa.Table:
    """Write a month of nodes with labels, all in one split and of one day, and return its nodes."""
    write_graph(folder, num_nodes=200)
    nodes = relabel(folder, by_sign, split=pa.array([split] * 200, pa.string()))
    nodes = nodes.append_column("day", pa.array([day] * 200)).set_column(
        0, "id", pa.array(moved(nodes, "id", first_id))
    )
    edges = pq.read_table(folder / "edges.parquet")
    for number, name in enumerate(("src", "dst")):
        edges = edges.set_column(number, name, pa.array(moved(edges, name, first_id)))
    pq.write_table(nodes, folder / "nodes.parquet")
    pq.write_table(edges, folder / "edges.parquet")
    return nodes


def moved(table: pa.Table, column: str, first: int) -> np.ndarray:
    return table[column].to_numpy() + first


def first_month(folder: Path, **sections: Any) -> StageContext:
    nodes = write_month(folder, split="train")
    split = np.array(["train", "valid", "test"], dtype=object)[np.arange(200) % 3]
    nodes = nodes.set_column(3, "split", pa.array(split)).set_column(4, "day", pa.array(np.arange(200)))
    pq.write_table(nodes, folder / "nodes.parquet")
    return published(folder, **sections)


@pytest.mark.table(2)
@pytest.mark.parametrize(
    ("split", "sections", "refused"),
    [
        ("test", {}, (TableError, "column 'split': no row is in split 'train'")),
        ("train", {}, (TableError, "column 'split': no row is in split 'valid'")),
        (None, {}, (TrainingError, "no split column 'split' that marks nodes as train")),
        ("test", DAY, (TableError, "no labelled node was drawn for split .*Rows of one time are in one split")),
        ("train", RANDOM, None),
    ],
    ids=["test", "train", "none", "one day", "drawn"],
)
def test_a_month_is_judged_whatever_its_splits_are_and_only_a_training_asks_for_them(
    tmp_path: Path, split: str | None, sections: Any, refused: tuple[type[Exception], str] | None
) -> None:
    context = first_month(tmp_path, **sections)
    write_month(tmp_path, split=split, day=300, first_id=10_000)
    later = StageContext.of(context.config)
    found = score.run(later)
    table = pq.read_table(found.predictions).to_pandas()
    assert found.figures.labelled == len(table) == 200  # the model has seen none of these ids
    assert found.metrics["score.accuracy"] == pytest.approx(sk.accuracy_score(table["label"], table["class"]))
    if refused is not None:  # the graph store is there now, and still nothing trains on it
        with pytest.raises(refused[0], match=refused[1]):
            perform(StageContext.of(context.config), "run")


def test_without_the_graph_store_of_the_training_the_split_of_the_tables_decides_and_this_is_told(
    tmp_path: Path,
) -> None:
    context = first_month(tmp_path)
    shutil.rmtree(context.run.artifact("ingest").removeprefix("file://"))
    write_month(tmp_path, split="train", first_id=10_000)
    found = score.run(StageContext.of(context.config)).figures
    assert (found.metrics, found.labelled) == ({}, 0)
    assert any(
        "200 labels" in each and "the graph store of its training can no longer be read" in each for each in found.notes
    )


@pytest.mark.parametrize(("split", "messages"), [("train", False), ("test", True)])
def test_labels_of_later_edges_are_judged_unless_the_model_learned_the_edge(
    tmp_path: Path, split: str, *, messages: bool
) -> None:
    """Only a training and a later store show that an edge is known again, and its next payment is not taken for it."""
    edges = write_labelled(tmp_path)
    names = np.array(["train", "valid", "test"])[np.arange(edges.num_rows) % 3]
    edges = edges.append_column("split", pa.array(names, mask=edges["label"].is_null().to_numpy()))
    pq.write_table(edges, tmp_path / "edges.parquet")
    task = {"split": {"kind": "column"}, "messages": messages}
    graph = (
        {"classes": ["legal", "illicit"], "timestamp": "timestamp"} if messages else {"classes": ["legal", "illicit"]}
    )
    config = config_of(tmp_path, task=task, graph=graph)
    context = StageContext.of(config)
    pipeline.run(context)
    publish.run(context)
    # next month: these edges in another split, and as many payments between the same ends
    place = edges.column_names.index("split")
    later = edges.set_column(
        place, "split", pa.array([split] * edges.num_rows, mask=edges["label"].is_null().to_numpy())
    )
    amount = np.roll(edges["amount"].to_numpy(), 1)
    more = later.set_column(later.column_names.index("amount"), "amount", pa.array(amount))
    pq.write_table(pa.concat_tables([later, more]), tmp_path / "edges.parquet")
    found = score.run(StageContext.of(config))
    table = numbered(pq.read_table(found.predictions).to_pandas())
    known = numbered(
        pa.concat_tables([edges, more.set_column(place, "split", pa.nulls(more.num_rows, pa.string()))]).to_pandas()
    )
    table = table.merge(known[["src", "dst", "number", "split"]], on=["src", "dst", "number"], suffixes=("_later", ""))
    table = table.dropna(subset="label")
    judged = table[~table["split"].isin(["train", "valid"])]
    assert edges.num_rows / 2 < found.figures.labelled == len(judged) < len(table)
    assert found.metrics["score.accuracy"] == pytest.approx(sk.accuracy_score(judged["label"], judged["class"]))
    # amounts are an attribute of edges, and the same ones as those of training
    assert found.drift is not None
    assert found.drift.columns["edge: amount"][0] < 0.01


def numbered(table: Any) -> Any:
    """Return a frame of edges with the number of each among those of the same ends, whose order a store keeps."""
    return table.assign(number=table.groupby(["src", "dst"]).cumcount())
