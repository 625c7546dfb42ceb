"""Predictions at a place of the user's: whole or not at all, and never in the place of what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gnnflow as gf
from gnnflow.graph.errors import StorageError
from gnnflow.stages import out as writing
from tests.command_line import printed
from tests.small_graphs import graph_config, write_graph

TRAIN = {"epochs": 1, "threads": 1}


def test_predictions_of_a_run_and_of_a_scoring_appear_where_asked(tmp_path: Path) -> None:
    write_graph(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text(graph_config(tmp_path, train=TRAIN).model_dump_json())
    place = tmp_path / "given" / "month.parquet"
    made = gf.run(str(config), out=str(place), progress=False)
    assert pq.read_table(place).equals(made.predictions)
    assert [each.name for each in place.parent.iterdir()] == ["month.parquet"]
    gf.publish(made, progress=False)
    text = printed(["score", str(config), "--out", str(tmp_path / "scores")])
    assert "score.accuracy" in text
    assert pq.read_table(tmp_path / "scores" / "predictions.parquet").equals(made.predictions)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("{folder}/nodes.parquet", "is one of the config's tables"),
        ("{folder}/runs/artifacts", "lies in the workspace"),
        ("{folder}/out.csv", "scores are written as Parquet"),
        ("{folder}/*.parquet", "read as a pattern"),
        ("", "--out : is empty"),  # an unset variable of a shell would put it into the working directory
    ],
)
def test_a_place_that_is_taken_is_refused_before_the_run(tmp_path: Path, out: str, says: str) -> None:
    write_graph(tmp_path)
    with pytest.raises(StorageError, match=says):
        gf.run(graph_config(tmp_path, train=TRAIN), out=out.format(folder=tmp_path), progress=False)
    assert not (tmp_path / "runs" / "artifacts").exists()


@pytest.mark.parametrize(("pattern", "refused"), [("n*.parquet", True), ("n*", True), ("n[!e]*.parquet", False)])
def test_a_place_that_a_table_s_pattern_matches_is_refused(tmp_path: Path, pattern: str, refused: bool) -> None:
    write_graph(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    config = graph_config(tmp_path, graph={"nodes": f"{tmp_path}/link/{pattern}"})
    if not refused:
        return writing.refuse_taken(f"{tmp_path}/new.parquet", config)
    with pytest.raises(StorageError, match="would be read as a table"):
        writing.refuse_taken(f"{tmp_path}/new.parquet", config)
    return writing.refuse_taken(f"{tmp_path}/other.parquet", config)


def test_a_copy_that_fails_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"predictions/0": pa.table({"id": [1]}), "predictions/1": pa.table({"id": [2]})}
    monkeypatch.setattr(writing, "read_artifact_table", lambda _, name: parts[name])
    place = str(tmp_path / "out.parquet")
    writing.write_out("", list(parts), place)
    assert pq.read_table(place)["id"].to_pylist() == [1, 2]

    def damaged(_: str, name: str) -> Any:
        if name.endswith("1"):
            raise StorageError("damaged", where=name, fix="")
        return pa.table({"id": [7]})

    monkeypatch.setattr(writing, "read_artifact_table", damaged)
    with pytest.raises(StorageError, match="damaged"):
        writing.write_out("", list(parts), place)
    assert pq.read_table(place)["id"].to_pylist() == [1, 2]
