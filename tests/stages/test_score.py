"""Whichever model is in service scores the current graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.graph.errors import RegistryError, ScoringError, StorageError, TrainingError
from gnnflow.layers import saved
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import perform
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = {"epochs": 2, "batch_size": 16, "threads": 1}


def published(folder: Path, **train: object) -> tuple[StageContext, publish.PublishResult]:
    config = graph_config(folder, train={**TRAIN, **train}, publish={"incomparable": "promote"})
    context = StageContext.of(config)
    pipeline.run(context)
    return context, publish.run(context)


def predicted(uri: str) -> pa.Table:
    """Return predictions by id, without what the tables say of labels and splits."""
    held = pq.read_table(uri).sort_by("id")
    return held.select([name for name in held.column_names if name not in {"label", "split"}])


def test_a_promoted_model_has_scored_everything_already(tmp_path: Path) -> None:
    write_graph(tmp_path)
    context, result = published(tmp_path)
    found = score.run(context)
    assert (found.version, found.predictions, found.rows) == (1, result.predictions, 60)


@pytest.mark.slow
def test_a_champion_that_stays_scores_the_new_graph(tmp_path: Path) -> None:
    write_graph(tmp_path)
    published(tmp_path)
    write_graph(tmp_path, num_nodes=80, seed=1)
    context, result = published(tmp_path, lr=0.02)
    registry.promote(context.config.workspace, "small", 1)
    found = score.run(context)
    assert (found.version, found.rows, result.version) == (1, 80, 2)
    ours, theirs = (pq.read_table(uri).column("probabilities") for uri in (found.predictions, result.predictions))
    assert not ours.equals(theirs)
    assert score.run(context).reused


@pytest.mark.slow
def test_a_model_of_another_format_says_to_train_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    published(tmp_path)
    write_graph(tmp_path, num_nodes=80, seed=1)
    context, _ = published(tmp_path, lr=0.02)
    registry.promote(context.config.workspace, "small", 1)
    monkeypatch.setattr(saved, "FORMAT", 99)
    with pytest.raises(StorageError, match=r"model\.json: is of format 1, .* reads format 99\. Train again"):
        score.run(context)


@pytest.mark.table(3)
@pytest.mark.parametrize(
    ("named", "train"),
    [(False, TRAIN), (True, TRAIN), (True, {"strategy": "global-batch", "epochs": 2})],
    ids=["numbers", "names", "global-batch"],
)
def test_later_tables_are_scored_by_one_command_and_need_no_labels(
    tmp_path: Path, train: dict[str, Any], *, named: bool
) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    names = ["low", "mid", "high", "top"]
    if named:
        label = pa.array([names[each] for each in nodes["label"].to_pylist()])
        pq.write_table(nodes.set_column(2, "label", label), tmp_path / "nodes.parquet")
    sections: dict[str, Any] = {"train": train, "graph": {"classes": names} if named else {}}
    context = StageContext.of(graph_config(tmp_path, **sections))
    pipeline.run(context)
    expected = predicted(publish.run(context).predictions)
    assert not score.is_quick(context)  # its predictions are there; to judge them all are read
    pq.write_table(nodes.drop_columns(["label", "split"]), tmp_path / "nodes.parquet")
    later = StageContext.of(graph_config(tmp_path, **sections))
    found = score.run(later)
    assert predicted(found.predictions).equals(expected)
    assert ("class" in expected.column_names) == named
    assert score.is_quick(later)
    with pytest.raises(TrainingError, match="no label column 'label', so nothing can be trained"):
        perform(later, "run")


@pytest.mark.parametrize("now", [("low", "low"), ("low", "new"), ("x", "y", "low", "z", "w")])
def test_later_tables_with_labels_of_other_classes_are_scored_as_those_of_the_model(
    tmp_path: Path, now: tuple[str, ...]
) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")

    def write(names: tuple[str, ...]) -> None:
        label = pa.array([names[each % len(names)] for each in nodes["label"].to_pylist()])
        pq.write_table(nodes.set_column(2, "label", label), tmp_path / "nodes.parquet")

    write(("low", "mid", "high", "top"))
    context = StageContext.of(graph_config(tmp_path, train=TRAIN))
    pipeline.run(context)
    expected = predicted(publish.run(context).predictions)
    write(now)
    found = score.run(StageContext.of(graph_config(tmp_path, train=TRAIN)))
    assert predicted(found.predictions).equals(expected)
    assert set(expected["class"].to_pylist()) <= {"low", "mid", "high", "top"}


@pytest.mark.table(3)
@pytest.mark.parametrize("labels", ["nulls", "labels and splits", "nonsense"])
def test_labels_that_are_there_are_not_read_where_none_are_asked_for(tmp_path: Path, labels: str) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet").rename_columns(["id", "x", "risk", "part"])
    pq.write_table(nodes, tmp_path / "nodes.parquet")
    columns = {"label": "risk", "split": "part"}
    context = StageContext.of(graph_config(tmp_path, train=TRAIN, graph=columns))
    pipeline.run(context)
    expected = predicted(publish.run(context).predictions)
    if labels != "labels and splits":
        held = {"nulls": pa.nulls(60, pa.int64()), "nonsense": pa.array(["?"] * 60)}[labels]
        split = {"nulls": pa.nulls(60, pa.string()), "nonsense": pa.array(range(60))}[labels]
        nodes = nodes.set_column(2, "risk", held).set_column(3, "part", split)
        pq.write_table(nodes, tmp_path / "nodes.parquet")
    unread = {**columns, "label": None}
    found = score.run(StageContext.of(graph_config(tmp_path, train=TRAIN, graph=unread)))
    assert predicted(found.predictions).equals(expected)
    with pytest.raises(TrainingError, match=r"graph\.label: null, so nothing can be trained"):
        perform(StageContext.of(graph_config(tmp_path, train=TRAIN, graph=unread)), "run")


def test_targets_of_a_split_that_none_is_in_are_not_quietly_nothing(tmp_path: Path) -> None:
    write_graph(tmp_path)
    published(tmp_path)
    asked: dict[str, Any] = {"train": TRAIN, "graph": {"label": None}, "infer": {"targets": ["valid", "test"]}}
    with pytest.raises(ScoringError, match=r"infer\.targets: none of the nodes is in valid, test .*so nothing would"):
        score.run(StageContext.of(graph_config(tmp_path, **asked)))


def test_numbers_are_predicted_without_any(tmp_path: Path) -> None:
    write_graph(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    amounts = pa.array([1e6 * each + 0.5 for each in nodes["label"].to_pylist()])
    pq.write_table(nodes.set_column(2, "label", amounts), tmp_path / "nodes.parquet")
    train = {**TRAIN, "metric": "mae"}
    context = StageContext.of(graph_config(tmp_path, train=train))
    pipeline.run(context)
    expected = predicted(publish.run(context).predictions)
    pq.write_table(nodes.drop_columns(["label", "split"]), tmp_path / "nodes.parquet")
    found = score.run(StageContext.of(graph_config(tmp_path, train=train)))
    assert predicted(found.predictions).equals(expected)


def test_other_labels_than_the_model_learned_are_refused(tmp_path: Path) -> None:
    write_graph(tmp_path)
    published(tmp_path)
    nodes = pq.read_table(tmp_path / "nodes.parquet")
    more = pa.array([each + (each == 3) for each in nodes["label"].to_pylist()])
    pq.write_table(nodes.set_column(2, "label", more), tmp_path / "nodes.parquet")
    with pytest.raises(RegistryError, match="num classes is 5, the model was trained on 4"):
        score.run(StageContext.of(graph_config(tmp_path, train=TRAIN)))


def test_nothing_in_service_is_said(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with pytest.raises(RegistryError, match="no version is in service"):
        score.run(StageContext.of(graph_config(tmp_path)))
