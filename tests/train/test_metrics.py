"""Metrics: right where defined, absent with a reason where not."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.calibration import calibration_curve

from gnnflow.graph.labels import choose_metric
from gnnflow.train.metrics import metrics_of

if TYPE_CHECKING:
    from gnnflow.graph.labels import LabelKind


def one_hot(classes: list[int], width: int) -> np.ndarray:
    return np.eye(width, dtype=np.float32)[classes] * 4


def test_single_label_by_hand() -> None:
    labels = np.array([0, 1, 2, 2, -1])
    found = metrics_of(one_hot([0, 1, 1, 2, 0], 3), labels, label_kind="single")
    assert found.values["accuracy"] == pytest.approx(3 / 4)
    assert found.values["micro_f1"] == pytest.approx(3 / 4)
    assert found.values["macro_f1"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert found.confusion is not None
    assert found.confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert found.notes == ()


def test_binary_area_uses_the_difference_of_logits() -> None:
    logits = np.array([[0, 1], [5, 5.5], [0, 2], [9, 9.2]], np.float32)
    found = metrics_of(logits, np.array([0, 0, 1, 1]), label_kind="single")
    assert found.values["roc_auc"] == pytest.approx(0.5)


def test_multi_class_area_is_one_against_the_rest() -> None:
    perfect = metrics_of(one_hot([0, 1, 2, 0], 3), np.array([0, 1, 2, 0]), label_kind="single")
    assert perfect.values["roc_auc"] == 1.0


SAME = np.array([[1.0, -1.0], [2.0, -0.5]], np.float32)


@pytest.mark.parametrize(
    ("kind", "logits", "labels", "found"),
    [
        ("single", SAME, [0, 1], "class 0"),
        ("single", SAME, [0, 0], ""),
        ("single", SAME, [0, -1], ""),
        ("single", SAME[:, ::-1] * [[1], [-1]], [0, 1], ""),
        ("multi", SAME, [[1.0, 0.0], [0.0, 1.0]], "labels 0"),
        ("multi", -abs(SAME), [[1.0, 0.0], [0.0, 1.0]], "no label"),
        ("multi", SAME * [[1], [-1]], [[1.0, 0.0], [0.0, 1.0]], ""),
        ("regression", np.full((2, 1), 2.5), [1.0, 2.0], "2.5"),
        ("regression", np.full((2, 1), 2.5), [2.0, 2.0], ""),
        ("regression", SAME[:, :1], [1.0, 2.0], ""),
        ("link", np.zeros((2, 3)), [0, 0], "one score"),
        ("link", SAME, [0, 0], ""),
    ],
)
def test_one_prediction_for_labels_that_differ_is_named(
    kind: LabelKind, logits: Any, labels: list[Any], found: str
) -> None:
    numbers = np.array(labels, np.int64 if kind in ("single", "link") else np.float32)
    assert metrics_of(np.asarray(logits, np.float32), numbers, label_kind=kind).constant == found
    named = metrics_of(np.asarray(logits, np.float32), numbers, label_kind=kind, class_names=("ok", "ring"))
    assert named.constant == found.replace("class 0", "class ok").replace("labels 0", "labels ok")


def test_one_class_leaves_the_area_out_with_a_reason() -> None:
    found = metrics_of(one_hot([0, 1], 2), np.array([1, 1]), label_kind="single")
    assert "roc_auc" not in found.values
    assert "average_precision" not in found.values
    assert found.notes == (
        "roc_auc is undefined: the labels hold one class only",
        "average_precision is undefined: the labels hold one class only",
    )
    assert found.values["accuracy"] == 0.5


def test_a_missing_class_is_named() -> None:
    found = metrics_of(one_hot([0, 1, 0], 3), np.array([0, 1, 0]), label_kind="single")
    assert found.values["roc_auc"] == 1.0
    assert found.notes == (
        "roc_auc leaves out 1 class without both kinds of target: 2",
        "average_precision leaves out 1 class without both kinds of target: 2",
    )
    named = metrics_of(
        one_hot([0, 1, 0], 3), np.array([0, 1, 0]), label_kind="single", class_names=("ok", "mule", "ring")
    )
    assert named.notes[0] == "roc_auc leaves out 1 class without both kinds of target: ring"


def test_areas_are_of_the_class_that_is_named() -> None:
    """As scikit-learn has them for one class against the others; other metrics are of all classes still."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    logits = (rng.normal(size=(300, 3)) + np.eye(3)[labels]).astype(np.float32)
    usual = metrics_of(logits, labels, label_kind="single").values
    for width, named in ((3, 2), (2, 0)):
        truth, own = np.minimum(labels, width - 1), logits[:, :width]
        found = metrics_of(own, truth, label_kind="single", positive=named, intervals=True)
        share = np.exp(own)[:, named] / np.exp(own).sum(axis=1)
        for name, score in (("average_precision", sk.average_precision_score), ("roc_auc", sk.roc_auc_score)):
            assert found.values[name] == pytest.approx(score(truth == named, share))
            low, high = found.intervals[name]
            assert low < found.values[name] < high
        if width == 3:
            assert {name: found.values[name] for name in ("accuracy", "macro_f1", "brier")}.items() < usual.items()
    none = metrics_of(logits, labels % 2, label_kind="single", positive=2, class_names=("ok", "mule", "ring"))
    assert "average_precision is undefined: no target is of class ring" in none.notes


def test_auto_is_average_precision_of_a_named_class_where_valid_defines_it() -> None:
    assert choose_metric("auto", "single", train=(5, 5, 5), valid=(3, 3, 3), named=2) == "average_precision"
    assert choose_metric("auto", "single", train=(5, 5, 5), valid=(3, 3, 0), named=2) == "accuracy"
    assert choose_metric("auto", "single", train=(5, 5, 5), valid=(3, 3, 3)) == "accuracy"
    assert choose_metric("macro_f1", "single", named=2) == "macro_f1"


def test_no_labels_define_nothing() -> None:
    found = metrics_of(one_hot([0, 1], 2), np.array([-1, -1]), label_kind="single")
    assert found.values == {}
    assert len(found.notes) == 7
    assert found.confusion is None


def test_multi_label_by_hand() -> None:
    labels = np.array([[1, 0], [1, 1], [0, 0]], np.float32)
    logits = np.array([[2, -1], [1, -1], [-3, 1]], np.float32)
    found = metrics_of(logits, labels, label_kind="multi")
    assert found.values["accuracy"] == pytest.approx(1 / 3)
    assert found.values["micro_f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert found.values["macro_f1"] == pytest.approx(0.5)
    assert found.values["roc_auc"] == pytest.approx((1.0 + 0.25) / 2)
    assert 0 < found.values["roc_auc_micro"] < 1
    assert found.confusion is not None
    assert found.confusion.shape == (2, 2, 2)


def test_multi_label_without_positives_is_undefined() -> None:
    found = metrics_of(np.full((3, 2), -1, np.float32), np.zeros((3, 2), np.float32), label_kind="multi")
    assert found.values == {"accuracy": 1.0}
    assert "macro_f1 is undefined: no label is positive and none is predicted" in found.notes


def test_regression_skips_targets_without_a_value() -> None:
    logits = np.array([[1], [2], [7]], np.float32)
    found = metrics_of(logits, np.array([2, 4, np.nan], np.float32), label_kind="regression")
    assert found.values["mae"] == pytest.approx(1.5)
    assert found.values["rmse"] == pytest.approx(np.sqrt(2.5))


def test_names_limit_the_work() -> None:
    found = metrics_of(one_hot([0, 1], 2), np.array([0, 1]), label_kind="single", names=["accuracy"])
    assert found.values == {"accuracy": 1.0}
    assert found.confusion is None


def test_flat_names() -> None:
    found = metrics_of(one_hot([0, 1], 2), np.array([0, 1]), label_kind="single", names=["accuracy"])
    assert found.named("test") == {"test.accuracy": 1.0}


def reference_error(probability: np.ndarray, truth: np.ndarray) -> float:
    """Return the calibration error from scikit-learn's curve, whose bins are weighed by their targets."""
    share, expected = calibration_curve(truth, probability, n_bins=10)
    counts = np.bincount(np.searchsorted(np.linspace(0, 1, 11)[1:-1], probability), minlength=10)
    return float((abs(share - expected) * counts[counts > 0]).sum() / len(truth))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("num_classes", [2, 5])
def test_metrics_of_classes_are_those_of_scikit_learn(seed: int, num_classes: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, 60)
    # a few values only, so that many are equal; not every class is predicted
    logits = rng.integers(-2, 3, (60, num_classes)).astype(np.float32) - np.eye(num_classes, dtype=np.float32)[0] * 9
    found, guess = metrics_of(logits, labels, label_kind="single"), logits.argmax(axis=1)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = shifted / shifted.sum(axis=1, keepdims=True)
    scores = logits[:, 1] - logits[:, 0] if num_classes == 2 else shares
    assert found.values == pytest.approx(
        {
            "accuracy": sk.accuracy_score(labels, guess),
            "micro_f1": sk.f1_score(labels, guess, average="micro"),
            "macro_f1": sk.f1_score(labels, guess, average="macro"),
            "roc_auc": sk.roc_auc_score(labels, scores, multi_class="ovr"),
            "average_precision": sk.average_precision_score(labels, scores, average="macro"),
            "brier": sk.brier_score_loss(labels, shares[:, 1] if num_classes == 2 else shares),
            "calibration_error": reference_error(
                shares[:, 1] if num_classes == 2 else shares.max(axis=1),
                labels == 1 if num_classes == 2 else guess == labels,
            ),
        }
    )
    assert found.confusion is not None
    assert found.confusion.tolist() == sk.confusion_matrix(labels, guess, labels=np.arange(num_classes)).tolist()


@pytest.mark.parametrize("seed", range(8))
def test_metrics_of_several_labels_are_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = (rng.random((50, 6)) < [0.5, 0.5, 0.2, 0.9, 0.1, 0]).astype(np.float32)  # the last class never occurs
    logits = rng.integers(-3, 2, (50, 6)).astype(np.float32)
    logits[:, 5] = -1
    found, truth, guess = metrics_of(logits, labels, label_kind="multi"), labels > 0, logits > 0
    assert found.values == pytest.approx(
        {
            "accuracy": sk.accuracy_score(truth, guess),
            "micro_f1": sk.f1_score(truth, guess, average="micro"),
            "macro_f1": sk.f1_score(truth, guess, average="macro", zero_division=np.nan),
            "roc_auc": sk.roc_auc_score(truth[:, :5], logits[:, :5]),
            "roc_auc_micro": sk.roc_auc_score(truth, logits, average="micro"),
            "average_precision": sk.average_precision_score(truth[:, :5], logits[:, :5]),
        }
    )
    assert found.confusion is not None
    assert found.confusion.tolist() == sk.multilabel_confusion_matrix(truth, guess).tolist()


def test_metrics_of_numbers_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.normal(size=90).astype(np.float32), rng.normal(size=(90, 1)).astype(np.float32)
    found = metrics_of(logits, labels, label_kind="regression").values
    assert found["mae"] == pytest.approx(sk.mean_absolute_error(labels, logits[:, 0]))
    assert found["rmse"] == pytest.approx(sk.root_mean_squared_error(labels, logits[:, 0]))


@pytest.mark.slow
def test_training_does_not_import_scikit_learn() -> None:
    code = "import sys, gnnflow.train.trainer; sys.exit('sklearn' in sys.modules or 'scipy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_metrics_take_little_more_than_the_outputs_again(kind) -> None:
    """Under a budget they have the memory that the loss had: that of three times the outputs, and of the labels."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((20_000, 40)).astype(np.float32)
    labels = {"single": rng.integers(0, 40, len(logits)), "multi": (rng.random(logits.shape) < 0.1).astype(np.float32)}
    tracemalloc.start()
    try:
        metrics_of(logits, labels[kind], label_kind=kind)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * logits.nbytes
