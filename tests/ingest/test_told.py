"""What ingest says of tables that can be read and are not what they seem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from gnnflow.config import GraphConfig
from gnnflow.graph.errors import GuardError, TableError, TrainingError
from gnnflow.graph.facts import BadRows, RowCounts
from gnnflow.stages import pipeline
from gnnflow.stages.bad_rows import check_bad_rows, tell_of_bad_rows
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from gnnflow.stages.running import make_artifact
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from collections.abc import Callable


def told(folder: Path, **sections: Any) -> str:
    heard = Heard()
    make_artifact(StageContext.of(graph_config(folder, **sections), progress=heard), "ingest")
    return "\n".join(heard.messages)


def set_labels(folder: Path, labels: pa.Array) -> None:
    nodes = pq.read_table(folder / "nodes.parquet")
    pq.write_table(nodes.set_column(nodes.schema.get_field_index("label"), "label", labels), folder / "nodes.parquet")


def label_rows(folder: Path, label: Callable[[int, str | None], Any]) -> None:
    """Label each node by its number and its split."""
    splits = pq.read_table(folder / "nodes.parquet")["split"].to_pylist()
    set_labels(folder, pa.array([label(number, split) for number, split in enumerate(splits)]))


@pytest.mark.parametrize(
    ("label", "found"),
    [
        (lambda number, _: number // 4 % 3, ""),
        (lambda number, split: 2 if split == "test" else number // 4 % 2, "no train row has class 2: "),
        (lambda number, split: 2 if split is None else number // 4 % 2, "no train row has class 2: "),
        (lambda _, split: int(split != "train"), "no train row has class 1 and every train row has class 0: "),
        (lambda _, __: 1, "every train row has class 1: "),
        (lambda number, _: [number // 4 % 2, 1 - number // 4 % 2], ""),
        (lambda number, split: [number // 4 % 2, int(split != "train")], "no train row has label 1: "),
        (lambda number, split: [number // 4 % 2, int(split == "train")], "every train row has label 1: "),
    ],
)
def test_labels_that_training_cannot_teach_are_named_once(
    tmp_path: Path, label: Callable[[int, str | None], Any], found: str
) -> None:
    write_graph(tmp_path)
    label_rows(tmp_path, label)
    text = told(tmp_path, graph={"partitions": 3})
    assert text.count("train row has") == (2 if " and " in found else bool(found))
    assert found in text


@pytest.mark.parametrize(
    ("label", "found"),
    [
        (lambda _, split: int(split != "train"), "every train row has class 0: a model learns nothing from 15 targets"),
        (lambda _, split: [1, int(split != "train")], "no train row has label 1 and every train row has label 0"),
    ],
)
def test_a_train_split_of_one_label_is_refused_before_training(
    tmp_path: Path, label: Callable[[int, str | None], Any], found: str
) -> None:
    write_graph(tmp_path)
    label_rows(tmp_path, label)
    with pytest.raises(TrainingError, match=found):
        perform(StageContext.of(graph_config(tmp_path)), "run")


def test_rows_that_were_set_aside_are_counted_by_table(tmp_path: Path) -> None:
    write_graph(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    ids = pa.array([*edges["src"].to_pylist()[:-2], 10**9, 10**9 + 1], edges["src"].type)
    pq.write_table(edges.set_column(0, "src", ids), tmp_path / "edges.parquet")
    text = told(tmp_path, graph={"on_bad_rows": "quarantine"})
    assert f"edges: 2 of {edges.num_rows:,} rows (0.5 %) were set aside, see " in text
    assert "edges: rows  share  column  reason" in text
    assert "edges:    2  0.5 %     src  src is not an id of the node table" in text
    assert not [line for line in text.splitlines() if line.startswith("nodes: ") and "were set aside" in line]
    (place,) = {line.rpartition("see ")[2] for line in text.splitlines() if "set aside" in line}
    assert pq.read_table(place).num_rows == 2


def test_at_most_ten_reasons_of_a_table_are_told() -> None:
    heard = Heard()
    reasons = tuple(BadRows(f"x{number}", "is null", 12 - number) for number in range(12))
    tell_of_bad_rows({"nodes": RowCounts(1000, 922, 78, reasons)}, "store", heard.message)
    assert heard.messages[0] == "nodes: 78 of 1,000 rows (7.8 %) were set aside, see store/quarantine"
    assert heard.messages[1:3] == ["nodes: rows  share  column  reason", "nodes:   12  1.2 %      x0  is null"]
    assert heard.messages[-1] == "nodes: and 2 more reasons"
    assert len(heard.messages) == 13


def test_labels_that_were_set_aside_are_counted_and_head_the_report(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet").to_pylist()
    nodes[3] |= {"x": [np.inf] * 5, "label": -1}
    nodes[7]["x"] = [np.inf] * 5
    pq.write_table(pa.Table.from_pylist([*nodes, nodes[11]]), tmp_path / "nodes.parquet")
    aside = {"on_bad_rows": "quarantine", "max_bad_rows": 1.0}
    config = graph_config(tmp_path, graph=aside, train={"epochs": 1}, infer={"parity_samples": 4})
    heard = Heard()
    made = pipeline.run(StageContext.of(config, progress=heard))
    found = [line for line in heard.messages if line.startswith("nodes: ") and "file" not in line]
    assert found[0].startswith("nodes: 3 of 61 rows (4.92 %), 2 (3.33 %) of those with a label, were set aside, see ")
    assert found[1:4] == [
        "nodes: rows   share  with a label  column  reason",
        (
            "nodes:    2  3.28 %    1 (1.67 %)       x  feature is null, NaN, infinite or beyond what float32 holds "
            "(3.4e38)"
        ),
        "nodes:    1  1.64 %    1 (1.67 %)      id  id appears more than once",
    ]
    page = Path(made.report.removeprefix("file://")).read_text()
    assert page.index("Rows were set aside") < page.index('<section id="')


def spoil_sources(folder: Path, number: int) -> None:
    edges = pq.read_table(folder / "edges.parquet")
    ids = [*range(10**9, 10**9 + number), *edges["src"].to_pylist()[number:]]
    pq.write_table(edges.set_column(0, "src", pa.array(ids, edges["src"].type)), folder / "edges.parquet")


def test_a_run_stops_above_the_share_of_rows_that_may_go_and_a_higher_share_goes_on(tmp_path: Path) -> None:
    write_graph(tmp_path)
    spoil_sources(tmp_path, 5)
    aside: dict[str, Any] = {"on_bad_rows": "quarantine"}
    with pytest.raises(GuardError) as caught:
        told(tmp_path, graph=aside)
    found = caught.value
    assert found.where == str(tmp_path / "edges.parquet")
    assert found.problem == (
        "5 of 400 rows (1.25 %) were set aside, and graph.max_bad_rows allows 1 %; 5 of them because of column 'src': "
        "src is not an id of the node table"
    )
    place = found.fix.removeprefix("Mend the rows listed in ").partition(", ")[0]
    assert pq.read_table(place).num_rows == 5
    assert "set graph.max_bad_rows: 0.013 to continue without them" in found.fix

    begun = Resumed()
    context = StageContext.of(graph_config(tmp_path, graph={**aside, "max_bad_rows": 0.013}), progress=begun)
    made = make_artifact(context, "ingest")
    assert made.manifest.rows_quarantined == 5
    assert begun.tasks_done
    assert set(begun.tasks_done) <= {True}


class Resumed(Heard):
    """Keeps of each round whether all its tasks were done before."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks_done: list[bool] = []

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        self.tasks_done.append(num_tasks == num_done)


def test_rows_set_aside_are_told_before_the_splits_that_lack_them(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    lost = pa.array([each == "train" for each in nodes["split"].to_pylist()])
    column = pa.compute.if_else(lost, pa.scalar(None, pa.int64()), nodes["id"])
    pq.write_table(nodes.set_column(0, "id", column), tmp_path / "nodes.parquet")
    with pytest.raises(GuardError, match=r"15 of 60 rows \(25 %\), .* were set aside, .* column 'id': null id"):
        told(tmp_path, graph={"on_bad_rows": "quarantine"})
    with pytest.raises(TableError, match=r"no row is in split 'train' .*; 15 rows were set aside"):
        told(tmp_path, graph={"on_bad_rows": "quarantine", "max_bad_rows": 1})


def test_edges_set_aside_are_told_before_their_splits(tmp_path: Path) -> None:
    write_graph(tmp_path)
    spoil_sources(tmp_path, 400)
    link: dict[str, Any] = {"task": {"kind": "link", "width": 4}, "train": {"metric": "mrr"}}
    with pytest.raises(GuardError, match=r"400 of 400 rows \(100 %\) were set aside"):
        told(tmp_path, graph={"on_bad_rows": "quarantine"}, **link)


@pytest.mark.parametrize(("number", "share"), [(4, 0.01), (5, 1), (0, 0)])
def test_a_share_that_is_reached_but_not_passed_is_allowed(tmp_path: Path, number: int, share: float) -> None:
    write_graph(tmp_path)
    spoil_sources(tmp_path, number)
    told(tmp_path, graph={"on_bad_rows": "quarantine", "max_bad_rows": share})


def test_a_graph_store_of_a_more_generous_config_is_refused_by_a_stricter_one(tmp_path: Path) -> None:
    write_graph(tmp_path)
    spoil_sources(tmp_path, 5)
    told(tmp_path, graph={"on_bad_rows": "quarantine", "max_bad_rows": 1})
    strict = StageContext.of(graph_config(tmp_path, graph={"on_bad_rows": "quarantine"}))
    for stage in ("ingest", "select", "run"):
        with pytest.raises(GuardError, match=r"5 of 400 rows"):
            perform(strict, stage)


def test_several_tables_above_the_share_are_all_named() -> None:
    lost = {"nodes": RowCounts(100, 90, 10, (BadRows("x", "is null", 10),))}
    lost["edges"] = RowCounts(100, 70, 30, (BadRows("src", "is unknown", 20), BadRows("weight", "is negative", 10)))
    graph = GraphConfig(nodes="n.csv", edges="e.csv", on_bad_rows="quarantine")
    with pytest.raises(GuardError) as caught:
        check_bad_rows(lost, graph, "store")
    assert str(caught.value) == (
        "e.csv: 30 of 100 rows (30 %) were set aside, and graph.max_bad_rows allows 1 %; 20 of them because of column "
        "'src': is unknown. The limit is also exceeded in nodes. Mend the rows listed in store/quarantine, or "
        "set graph.max_bad_rows: 0.3 to continue without them."
    )


def test_the_first_bad_row_says_how_many_are_bad_in_its_piece(tmp_path: Path) -> None:
    write_graph(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    weights = pa.array([-1.0, None, *edges["weight"].to_pylist()[2:]])
    pq.write_table(edges.set_column(2, "weight", weights), tmp_path / "edges.parquet")
    with pytest.raises(
        TableError, match=r"quarantine to set bad rows aside: 2 of the 400 rows of this piece \(0\.5 %\)"
    ):
        told(tmp_path)


def test_ids_that_appear_twice_are_named_by_the_users_column(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet").rename_columns({"id": "account"})
    pq.write_table(pa.concat_tables([nodes, nodes.slice(0, 1)]), tmp_path / "nodes.parquet")
    with pytest.raises(TableError, match=r"column 'account': id appears more than once"):
        told(tmp_path, graph={"id": "account"})


@pytest.mark.parametrize(
    ("shift", "found"),
    [(0, None), (1, "no row has class 0: a model still has an output for each of 5"), (20, "19 and 15 more")],
)
def test_classes_that_no_row_has_are_named(tmp_path: Path, shift: int, found: str | None) -> None:
    write_graph(tmp_path)
    labels = pq.read_table(tmp_path / "nodes.parquet")["label"].to_pylist()
    spread = [None if each is None else each + shift if shift < 20 else each and 20 + each for each in labels]
    set_labels(tmp_path, pa.array(spread))
    text = told(tmp_path)
    if shift == 0:
        assert "no row has" not in text
    elif shift == 1:
        assert found is not None
        assert found in text
    else:
        assert (
            "no row has any of the classes 1, 2, 3, 4, 5 and 15 more: a model still has an output for each of 24"
            in text
        )


@pytest.mark.parametrize("numbers", [[1.7e9, 1.7e9 + 1, 1.7e9 + 2], [2e7, 2e7 + 0.5, 2e7 + 1]])
def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path: Path, numbers: list[float]) -> None:
    write_graph(tmp_path)
    set_labels(tmp_path, pa.array([numbers[each % 3] for each in range(60)]))
    with pytest.raises(TableError, match=r"column 'label': float32 rounds its numbers by up to .*Subtract a constant"):
        told(tmp_path, train={"metric": "mae"})


@pytest.mark.parametrize("numbers", [[1e-30, 2e-30, 3e-30], [0.1, 0.1, 0.1], [1e6, 2e6 + 0.1, 3e30]])
def test_numbers_that_float32_can_tell_apart_are_not(tmp_path: Path, numbers: list[float]) -> None:
    write_graph(tmp_path)
    set_labels(tmp_path, pa.array([numbers[each % 3] for each in range(60)]))
    told(tmp_path, train={"metric": "mae"})


def test_a_column_of_weights_that_is_named_is_there(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(TableError, match=r"graph\.weight: no edge table has a column 'wieght'"):
        told(tmp_path, graph={"weight": "wieght"})


def test_a_folders_key_may_be_the_label(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    (tmp_path / "nodes.parquet").unlink()
    for label in sorted(set(nodes["label"].to_pylist())):
        place = tmp_path / "nodes.parquet" / f"label={label}"
        place.mkdir(parents=True)
        rows = nodes.filter(pa.compute.equal(nodes["label"], label)).drop_columns(["label"])
        pq.write_table(rows, place / "part.parquet")
    train = {"epochs": 1, "threads": 1}
    assert pipeline.run(StageContext.of(graph_config(tmp_path, train=train))).metrics["train.epochs"] == 1
