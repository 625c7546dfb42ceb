"""What ingest says of tables that can be read and are not what they seem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import TableError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from tests.hearing import Heard
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path


def told(folder: Path, **sections: Any) -> str:
    heard = Heard()
    make_artifact(StageContext.of(graph_config(folder, **sections), progress=heard), "ingest")
    return "\n".join(heard.messages)


def set_labels(folder: Path, labels: pa.Array) -> None:
    nodes = pq.read_table(folder / "nodes.parquet")
    pq.write_table(nodes.set_column(nodes.schema.get_field_index("label"), "label", labels), folder / "nodes.parquet")


def test_rows_that_were_set_aside_are_counted_by_table(tmp_path: Path) -> None:
    write_graph(tmp_path)
    edges = pq.read_table(tmp_path / "edges.parquet")
    ids = pa.array([*edges["src"].to_pylist()[:-2], 10**9, 10**9 + 1], edges["src"].type)
    pq.write_table(edges.set_column(0, "src", ids), tmp_path / "edges.parquet")
    text = told(tmp_path, graph={"on_bad_rows": "quarantine"})
    assert f"edges: 2 of {edges.num_rows:,} rows were set aside, see " in text
    assert "nodes: 0 of" not in text
    (place,) = {line.rpartition("see ")[2] for line in text.splitlines() if "set aside" in line}
    assert pq.read_table(place).num_rows == 2


@pytest.mark.parametrize(
    ("shift", "found"),
    [(0, None), (1, "no row has class 0: a model has an output for each of 5 all the same"), (20, "19 and 15 more")],
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
        assert "no row has any of the classes 1, 2, 3, 4, 5 and 15 more: a model has an output for each of 24" in text


@pytest.mark.parametrize("numbers", [[1.7e9, 1.7e9 + 1, 1.7e9 + 2], [2e7, 2e7 + 0.5, 2e7 + 1]])
def test_numbers_that_float32_cannot_tell_apart_are_refused(tmp_path: Path, numbers: list[float]) -> None:
    write_graph(tmp_path)
    set_labels(tmp_path, pa.array([numbers[each % 3] for each in range(60)]))
    with pytest.raises(TableError, match=r"column 'label': float32 misses its numbers by up to .*Take a constant off"):
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
