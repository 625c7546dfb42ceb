"""Facts of scores: a report draws them, so they must say what scikit-learn says of all scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics as sk

from gnnflow.graph.run_facts import Decision
from gnnflow.graph.score_facts import BINS, MOST_STEPS, ScoreFacts
from gnnflow.train.decisions import Deciding
from gnnflow.train.describing import describe_scores
from gnnflow.train.outputs import Outputs


def described(logits: Any, labels: Any, **more: Any) -> ScoreFacts:
    """Return the facts of some scores of test."""
    outputs = Outputs(np.asarray(logits, np.float32), np.asarray(labels), np.arange(len(labels)))
    found = describe_scores(outputs, "test", **{"label_kind": "single", "metric": "accuracy", **more})
    assert found is not None
    return found


def two_classes(count: int, *, levels: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of two classes; levels: the number of distinct scores, 0 for all."""
    draw = np.random.default_rng(count)
    labels = (draw.random(count) < 0.1).astype(np.int64)
    margin = (labels + draw.normal(size=count)).astype(np.float32)
    if levels:
        margin = np.round(margin * levels / 8).astype(np.float32)
    return np.column_stack([np.zeros(count, np.float32), margin]), labels


@pytest.mark.parametrize(("count", "levels"), [(50, 0), (5000, 0), (5000, 12)])
def test_every_point_of_the_curve_is_scikit_learn_s(count: int, levels: int) -> None:
    logits, labels = two_classes(count, levels=levels)
    facts = described(logits, labels)
    flagged, hits = np.array(facts.steps).T
    precision, recall, _ = sk.precision_recall_curve(labels, logits[:, 1])
    every = np.column_stack([precision, recall])
    points = np.column_stack([hits / flagged, hits / facts.positives])
    assert (np.abs(every[:, None] - points).max(2).min(0) < 1e-12).all()
    assert len(facts.steps) <= MOST_STEPS
    assert facts.steps[-1] == (count, labels.sum())


def test_decisions_and_histograms_count_each_target_once() -> None:
    logits, labels = two_classes(5000)
    facts = described(logits, labels, deciding=Deciding.at(0.7))
    probability = 1 / (1 + np.exp(-logits[:, 1]))
    assert np.array_equal(facts.decided, sk.confusion_matrix(labels, probability >= 0.7))
    assert [sum(each) for each in facts.bins] == [5000 - facts.positives, facts.positives]
    assert np.array_equal(facts.bins[1], np.histogram(probability[labels == 1], BINS, (0, 1))[0])


def test_the_first_of_a_list_contain_the_planted_positives() -> None:
    labels = np.zeros(1000, np.int64)
    labels[[*range(61), *range(500, 522)]] = 1  # 61 of 83 are among the 100 likeliest
    logits = np.column_stack([np.zeros(1000), np.linspace(3, -3, 1000)])
    assert dict(described(logits, labels).gains)[100] == 61
    ties = np.column_stack([np.zeros(1000), np.r_[np.ones(200), np.zeros(800)]])
    assert dict(described(ties, labels).gains)[100] == 61 / 2  # as many as 100 of these 200 contain on average


@pytest.mark.parametrize("costs", [False, True])
def test_the_scores_of_every_class_are_scikit_learn_s(costs: bool) -> None:
    draw = np.random.default_rng(1)
    labels = draw.choice(5, size=3000, p=[0.6, 0.3, 0.08, 0.02, 0.0])  # class 4 has no targets
    logits = np.round(draw.normal(size=(3000, 5)) + 1.5 * np.eye(5)[labels], 1).astype(np.float32)
    share = softmax(logits.astype(np.float64), axis=1)
    matrix = 1 - np.eye(5)
    matrix[3] *= 20
    guess = (share @ matrix).argmin(1) if costs else share.argmax(1)
    chosen = tuple(map(tuple, matrix.tolist())) if costs else ()
    decision = Decision("", None, positive=None, costs=chosen, offsets=(0.0,) * 5)
    facts = described(logits, labels, deciding=Deciding(decision))
    assert [each.number for each in facts.classes] == [3, 2, 1, 0]
    expected = sk.precision_recall_fscore_support(labels, guess, labels=range(5), zero_division=0)
    for each in facts.classes:
        found = (each.precision, each.recall, each.f1, each.targets)
        assert found == pytest.approx([figures[each.number] for figures in expected], abs=1e-6)
        own = labels == each.number
        assert each.average_precision == pytest.approx(sk.average_precision_score(own, share[:, each.number]), abs=1e-6)
        precision, recall, _ = sk.precision_recall_curve(own, share[:, each.number])
        flagged, hits = np.array(each.steps).T
        points = np.column_stack([hits / flagged, hits / own.sum()])
        assert (np.abs(np.column_stack([precision, recall])[:, None] - points).max(2).min(0) < 1e-6).all()
    if costs:
        assert np.array_equal(facts.decided, sk.confusion_matrix(labels, guess, labels=range(5)))


def test_groups_count_the_rare_class_only_where_the_metric_stands_on_it() -> None:
    logits, labels = two_classes(500)
    assert described(logits, labels).rare is None
    assert described(logits, labels, metric="average_precision").rare == 1


def test_numbers_have_errors_and_links_have_ranks() -> None:
    draw = np.random.default_rng(0)
    labels = draw.normal(size=400).astype(np.float32)
    facts = described((labels + 1)[:, None], labels, label_kind="regression", metric="mae")
    assert sum(facts.errors) == 400
    assert facts.largest_error == pytest.approx(1)
    assert facts.errors[-1] == 400  # every prediction is one too high
    logits = np.zeros((8, 101), np.float32)
    logits[:, 1:] = -1
    logits[3, 1:6] = 1  # rank 6
    links = described(logits, np.zeros(8, np.int64), label_kind="link", metric="mrr")
    assert links.ranks[:3] == (7, 0, 1)
    assert dict(links.hits)[5] == 7
    assert dict(links.hits)[6] == 8


def test_a_split_without_labels_has_no_facts() -> None:
    outputs = Outputs(np.zeros((3, 2), np.float32), np.full(3, -1), np.arange(3))
    assert describe_scores(outputs, "test", label_kind="single", metric="accuracy") is None
