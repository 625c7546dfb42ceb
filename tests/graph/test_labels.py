"""A label kind is complete: every room that treats labels by their kind has an entry for it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
import torch

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind, Metric, check_metric, lower_is_better, selection_metrics
from gnnflow.infer.predictions import prediction_columns, scores_of
from gnnflow.ingest import label_schema
from gnnflow.ingest import labels as ingest_labels
from gnnflow.report.pictures import quality
from gnnflow.train import losses, metrics, objective

LABELLED = [kind for kind, traits in LABEL_KINDS.items() if traits.has_labels]
TABLES = {
    "recognised": label_schema._LABEL_TYPES,
    "read": ingest_labels._COLUMNS,
    "measured": {kind: held for kind, held in metrics._MEASURES.items() if held.metrics},
    "minimised": losses._STANDARD,
    "drawn": quality._PAINTERS,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_exactly_the_kinds_with_labels(name: str):
    trained = name in {"measured", "minimised"}  # links are, and no node carries one
    assert set(TABLES[name]) == {*LABELLED, *(["link"] if trained else [])}


def test_every_kind_has_its_traits():
    assert set(LABEL_KINDS) == set(get_args(LabelKind))


def test_classes_are_balanced_where_there_are_any():
    classed = {kind for kind, traits in LABEL_KINDS.items() if traits.has_classes}
    assert set(objective._COUNTS) == set(objective._BALANCED) == classed


@pytest.mark.parametrize("kind", LABEL_KINDS)
def test_the_named_metrics_are_those_that_are_computed(kind: LabelKind):
    assert tuple(metrics._MEASURES[kind].metrics) == LABEL_KINDS[kind].metrics


@pytest.mark.parametrize("kind", LABEL_KINDS)
def test_every_metric_of_a_kind_can_be_chosen(kind: LabelKind):
    assert set(selection_metrics(kind)) <= set(get_args(Metric))
    for metric in get_args(Metric):
        if metric in selection_metrics(kind):
            check_metric(metric, kind)
        else:
            with pytest.raises(TrainingError, match=f"{metric} is not defined for {kind} labels"):
                check_metric(metric, kind)


@pytest.mark.parametrize("kind", LABELLED)
def test_the_named_columns_are_published_scores_last(kind: LabelKind):
    outputs = torch.tensor([[0.5, -2.0], [3.0, 1.0]])[:, : 2 if LABEL_KINDS[kind].has_classes else 1]
    scores = scores_of(outputs, kind)
    columns = prediction_columns(scores, kind, ())
    assert tuple(columns)[: len(LABEL_KINDS[kind].columns)] == LABEL_KINDS[kind].columns
    last = columns[LABEL_KINDS[kind].columns[-1]]
    published = np.array(last.to_pylist() if LABEL_KINDS[kind].has_classes else last, np.float32)
    assert np.array_equal(published.reshape(scores.shape), scores)


@pytest.mark.parametrize(
    ("names", "expected"), [(["ok", "fraud", "not sure"], ["not sure", "ok"]), (["ok"], ["2", "ok"]), ([], None)]
)
def test_a_predicted_class_is_named_beside_its_number(names: list[str], expected: list[str] | None):
    columns = prediction_columns(np.array([[0.1, 0.2, 0.7], [0.8, 0.2, 0.0]], np.float32), "single", names)
    assert columns["prediction"].tolist() == [2, 0]
    assert (columns["class"].to_pylist() if "class" in columns else None) == expected


@pytest.mark.parametrize("kind", ["single", "multi"])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("ok", "fraud"), ["ok", "fraud", "2"]),
        (("a", "b", "c", "d"), ["a", "b", "c"]),
        ((), ["0", "1", "2"]),
        (("a", "a"), ["0", "1", "2"]),
        (("2", "1"), ["0", "1", "2"]),
    ],
    ids=["fewer names", "more names", "numbers", "a name twice", "a number as name"],
)
def test_each_class_has_a_column_with_its_probability(kind: LabelKind, names: tuple[str, ...], expected: list[str]):
    scores = np.array([[0.1, 0.2, 0.7], [0.8, 0.2, 0.0]], np.float32)
    columns = prediction_columns(scores, kind, names)
    held = {name: each for name, each in columns.items() if name.startswith("probability_")}
    assert list(held) == [f"probability_{name}" for name in expected]
    assert np.array_equal(np.stack(list(held.values()), axis=1), scores)


def test_many_classes_have_their_probabilities_in_one_list_alone():
    assert not any(name.startswith("probability_") for name in prediction_columns(np.ones((2, 33)), "single", ()))


@pytest.mark.parametrize("kind", sorted({*LABELLED} - {"single"}))
def test_what_is_not_one_class_has_no_name(kind: LabelKind):
    assert "class" not in prediction_columns(np.zeros((3, 2), np.float32), kind, ["ok", "fraud"])


def test_a_partition_without_targets_has_columns_of_the_same_types():
    some, none = (prediction_columns(np.ones((n, 2), np.float32), "single", ["ok", "fraud"]) for n in (1, 0))
    assert pa.table(some).schema == pa.table(none).schema


@pytest.mark.parametrize(
    ("metric", "lower"), [("rmse", True), ("test.mae", True), ("valid.loss", True), ("test.roc_auc", False)]
)
def test_errors_are_better_low_and_scores_high(metric: str, lower: bool):
    assert lower_is_better(metric) is lower
