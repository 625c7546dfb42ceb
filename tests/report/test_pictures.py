from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_curve as reference_curve

from gnnflow.config.matrix import RunRow
from gnnflow.graph.run_facts import Decision
from gnnflow.graph.score_facts import ColumnDrop, ColumnFacts, ScoreFacts, ScoreGroup
from gnnflow.report import (
    EmbeddingSample,
    PredictionSample,
    StageRow,
    render_report,
)
from gnnflow.report.cases import find_cases
from gnnflow.report.comparison import ComparedRun, comparison_bars, rank_variants
from gnnflow.report.headline import metric_table, tiles
from gnnflow.report.pictures import (
    column_bars,
    degree_bars,
    embedding,
    embedding_map,
    gains_text,
    learning_curves,
    method_bars,
    prediction_pictures,
    stage_timeline,
    value_bars,
)
from gnnflow.report.pictures.embedding import project
from gnnflow.report.pictures.quality import roc_curve
from gnnflow.report.render import image_file
from tests.report.drawn import texts

FRAUD = ScoreFacts(
    "test",
    1000,
    "average_precision",
    (ScoreGroup(0, 3, 500, 0.5), ScoreGroup(4, 90, 500, 0.7)),
    positives=83,
    steps=((1, 1), (100, 61), (1000, 83)),
    gains=((10, 10.0), (100, 61.0), (1000, 83.0)),
    decided=((873, 44), (17, 66)),
    bins=((917, *[0] * 19), (*[0] * 19, 83)),
)


def test_curves_mark_the_best_epoch_with_its_values(make_inputs):
    loss, metric = learning_curves(make_inputs())
    assert "epoch 7: 0.314" in texts(loss)
    assert "epoch 7: 0.900" in texts(metric)
    assert "epoch" in texts(metric)
    assert "accuracy" in texts(metric)
    assert [swatch.label for swatch in loss.legend] == ["train", "valid"]
    assert metric.table.rows[6] == ["7", "0.286", "0.314", "0.900", "250 ms"]


def test_curves_choose_the_configured_metric(make_inputs):
    rows = [
        {"epoch": e, "train_loss": 1.0, "valid_loss": 1.0, "valid_accuracy": 0.5, "valid_micro_f1": 0.25}
        for e in (1, 2)
    ]
    _, metric = learning_curves(make_inputs(curves=rows, metric="micro_f1", best_epoch=2))
    assert metric.title == "Micro-F1 by epoch"
    assert "epoch 2: 0.250" in texts(metric)


def test_a_loss_that_was_never_a_number_is_said(make_inputs):
    (loss,) = learning_curves(make_inputs(curves=[{"epoch": 1, "train_loss": float("nan")}]))
    assert not loss.svg
    assert "no finite loss" in loss.missing


def test_speed_is_no_second_curve(make_inputs):
    rows = [{"epoch": epoch, "train_loss": 1.0, "valid_loss": 1.0, "samples_per_second": 9e3} for epoch in range(3)]
    pictures = learning_curves(make_inputs(curves=rows, metric="loss", best_epoch=2))
    assert [picture.key for picture in pictures] == ["loss"]


def test_a_learning_rate_that_changes_has_a_curve_and_a_constant_one_has_none(make_inputs):
    rows = [{"epoch": epoch, "train_loss": 1.0, "lr": 0.01} for epoch in range(4)]
    assert [picture.key for picture in learning_curves(make_inputs(curves=rows))] == ["loss"]
    rows = [{**row, "lr": 0.01 / (row["epoch"] + 1)} for row in rows]
    loss, rate = learning_curves(make_inputs(curves=rows))
    assert (loss.key, rate.title) == ("loss", "Learning rate by epoch")
    assert rate.caption == "The learning rate goes from 0.01 to 0.0025; it is at most 0.01."
    assert "learning rate" in texts(rate)


def test_intervals_stand_beside_their_metric_and_nowhere_else(make_inputs):
    metrics = {"test.accuracy": 0.8, "test.accuracy_low": 0.75, "test.accuracy_high": 0.84, "valid.accuracy": 0.9}
    inputs = make_inputs(metrics=metrics, baseline={"test.accuracy": 0.7}, metric="accuracy")
    assert tiles(inputs)[0].note == "95 % interval 0.750 to 0.840, valid 0.900"
    table = metric_table(inputs)
    assert [(row.name, row.cells) for row in table.rows] == [
        ("Accuracy", ("0.800 (0.750 to 0.840)", "0.900")),
    ]
    assert [(row.name, row.cells) for row in table.baselines] == [("Accuracy, without edges", ("0.700", ""))]
    assert table.others == ()
    page = render_report(inputs)
    assert "in brackets 95 % confidence intervals" in page
    assert "accuracy low" not in page.lower()


def test_long_training_keeps_its_best_epoch_in_the_drawing(make_inputs):
    rows = [{"epoch": e, "train_loss": 1.0 / e, "valid_loss": 0.25 if e == 1234 else 0.5} for e in range(1, 3001)]
    (loss,) = learning_curves(make_inputs(curves=rows, best_epoch=1234))
    assert "epoch 1234: 0.250" in texts(loss)


def test_the_model_stands_among_all_baselines_the_best_first(make_inputs):
    trees = {"trees": {"test.accuracy": 0.9}, "majority": {"test.accuracy": 0.3}}
    picture = method_bars(make_inputs(baselines=trees))
    shown = texts(picture)
    assert {"0.833", "0.600", "0.900", "0.300"} <= set(shown)
    assert picture.alt == (
        "Bars of test accuracy: trees on the columns 0.900, this model 0.833, without edges 0.600, the most frequent "
        "class 0.300."
    )
    errors = {"test.mae": 120.0}
    lower = method_bars(make_inputs(metrics=errors, baseline={"test.mae": 90.0}, metric="mae"))
    assert lower.alt == "Bars of test MAE: without edges 90.000, this model 120.000."
    assert "Lower is better" in lower.caption


def test_confusion_matrix_shows_every_count(make_inputs):
    picture, *_ = prediction_pictures(make_inputs())
    shown = texts(picture)
    assert {"10", "6", "4", "9", "1"} <= set(shown)
    assert "25 of 30 test targets are predicted correctly (83 %)" in picture.caption
    assert "Most often Rules is predicted as Networks: 4 times, 40 % of its targets." in picture.caption
    assert picture.table.rows[1] == ("Rules", "10", "1.000", "0.600")


def test_unlabelled_targets_do_not_count(make_inputs):
    sample = make_inputs().predictions
    labels = np.concatenate([sample.labels, np.full(5, -1)])
    scores = np.concatenate([sample.scores, np.full((5, 3), 1 / 3)])
    picture, *_ = prediction_pictures(make_inputs(predictions=PredictionSample(labels, scores)))
    assert "25 of 30" in picture.caption
    nobody = PredictionSample(labels[-5:], scores[-5:])
    assert "None of the test targets has a label" in prediction_pictures(make_inputs(predictions=nobody))[0].missing


@pytest.mark.parametrize(("kind", "words"), [("link", "an earlier version"), ("single", "No labelled target outside")])
def test_a_picture_that_is_missing_says_why(make_inputs, kind, words):
    assert words in prediction_pictures(make_inputs(label_kind=kind, predictions=None))[0].missing


def test_of_many_classes_the_most_frequent_confusions_are_shown(make_inputs):
    counts = np.diag(np.full(30, 50))
    counts[4, 7], counts[2, 1] = 9, 3
    scores = ScoreFacts("test", int(counts.sum()), "accuracy")
    picture, *_ = prediction_pictures(make_inputs(confusion=counts, scores=scores, class_names=()))
    assert {"4 as 7", "2 as 1", "9", "3"} <= set(texts(picture))
    assert "Most often 4 is predicted as 7: 9 times" in picture.caption
    assert picture.table.rows[4] == ("4", "59", "1.000", "0.847")


def test_a_planted_list_is_told_and_drawn(make_inputs):
    inputs = make_inputs(scores=FRAUD, class_names=("honest", "fraud"), decision=Decision("the highest F1", 0.4))
    assert gains_text(inputs) == (
        "The first 100 of 1,000 test targets by score contain 61 of the 83 of class fraud; in random order they would "
        "contain about 8."
    )
    confusion, precision, certainty, gains = prediction_pictures(inputs)
    assert "Of 110 test targets decided for class fraud, 66 have it (60 %)." in confusion.caption
    assert "Of the 83 that have it, 17 are missed (20 %)." in confusion.caption
    assert {"873", "44", "17", "66"} <= set(texts(confusion))
    assert "a precision of 0.083 everywhere" in precision.caption
    assert certainty.table.rows[-1] == ("0.95 to 1.00", "0", "83")
    assert gains.table.rows[1] == ("100", "61", "73 %", "61 %")
    worth = tiles(inputs)[2]
    assert (worth.figure, worth.note) == ("61 of 83", "of class fraud among the first 100 test targets by score")
    longer = make_inputs(scores=FRAUD, config={"task": {"decide": {"k": 1000}}})
    assert gains_text(longer).startswith("The first 1,000 of 1,000 test targets by score contain 83 of the 83")
    shared = dataclasses.replace(FRAUD, gains=((10, 6.5),))
    assert "contain about 6 of the 83" in gains_text(make_inputs(scores=shared))


def test_no_threshold_and_one_class_are_said_in_words(make_inputs):
    scores = dataclasses.replace(FRAUD, positives=0, steps=((1000, 0),), decided=())
    inputs = make_inputs(scores=scores, decision=Decision("the highest F1", None, "every target of valid has class 0"))
    confusion, precision, _, gains = prediction_pictures(inputs)
    assert confusion.missing == "There is no threshold: every target of valid has class 0."
    assert "need both" in precision.missing
    assert "No test target has class" in gains.missing


def test_links_show_their_ranks_and_what_a_list_finds(make_inputs):
    hits = tuple((k, 10 * k) for k in range(1, 102))
    groups = (ScoreGroup(0, 1, 505, 0.2), ScoreGroup(2, 9, 505, 0.5))
    scores = ScoreFacts("test", 1010, "mrr", groups, ranks=(10, 20, 40, 80, 160, 320, 380), hits=hits, candidates=101)
    inputs = make_inputs(label_kind="link", scores=scores)
    ranks, found = prediction_pictures(inputs)
    assert ranks.caption.startswith("10 of 1,010 test links (1.0 %) come first among 101 candidates")
    assert ranks.table.rows[-1][0] == "64–101"  # noqa: RUF001 - a range of numbers
    assert found.caption.startswith("100 of 1,010 links (9.9 %) are among the first 10 of 101 candidates")
    popular = degree_bars(inputs)
    assert popular.title == "MRR by popularity"
    assert "MRR is lowest, 0.200, for the 505 test links to nodes with 0 to 1 in-edges." in popular.caption
    assert tiles(inputs)[2].figure == "9.9 %"


def test_numbers_show_their_errors(make_inputs):
    errors = (5, *[0] * 4, *[9] * 10, *[0] * 5)
    scores = ScoreFacts("test", 95, "mae", errors=errors, largest_error=4.0)
    sample = PredictionSample(np.array([1.0, 2.0]), np.array([1.5, 2.5]))
    _, picture = prediction_pictures(make_inputs(label_kind="regression", predictions=sample, scores=scores))
    assert picture.caption.startswith("95 % of 95 test targets are within 2.000 of their label.")


def test_a_categorical_column_has_a_bar_for_each_value(make_inputs):
    groups = [ScoreGroup(0, 0, 400, 0.9, "country", "DE"), ScoreGroup(0, 0, 7, 0.4, "country", "has another value")]
    scores = dataclasses.replace(FRAUD, groups=(*FRAUD.groups, *groups))
    (picture,) = value_bars(make_inputs(scores=scores))
    assert {"DE", "0.900", "0.400 (7 targets)"} <= set(texts(picture))
    assert "is lowest, 0.900, where country is DE (400 test targets)" in picture.caption  # not where seven are
    assert len(degree_bars(make_inputs(scores=scores)).table.rows) == 2


def test_the_columns_that_matter_are_ordered_and_a_reason_stands_instead(make_inputs):
    drops = (ColumnDrop("balance", 0.25, 0.01), ColumnDrop("country", 0.0, 0.0))
    picture = column_bars(make_inputs(columns=ColumnFacts("average_precision", 400, 0.6, 3, drops, left_out=2)))
    assert {"balance", "0.250", "country", "0.000"} <= set(texts(picture))
    assert "among 400 valid targets and their neighbours" in picture.caption
    assert "2 more columns were not tried" in picture.caption
    why = "no target is in valid, where the importance of columns is measured"
    assert column_bars(make_inputs(columns=ColumnFacts(why=why))).missing == f"{why[0].upper()}{why[1:]}."


def test_cases_are_the_surest_right_and_wrong_ones(make_inputs):
    labels, positive = np.array([1, 0, 1, 0, 1]), np.array([0.9, 0.8, 0.1, 0.2, 0.6])
    ids = [f"account-{number}" for number in range(5)]
    sample = PredictionSample(labels, np.column_stack([1 - positive, positive]), "test", ids, np.arange(5) * 1000)
    inputs = make_inputs(predictions=sample, class_names=("no", "yes"), decision=Decision("the highest F1", 0.5))
    right, wrong = find_cases(inputs)
    assert right.head == ("node", "label", "decision", "probability of class yes", "in-edges")
    assert right.rows == [("account-0", "yes", "yes", "0.900", "0"), ("account-4", "yes", "yes", "0.600", "4,000")]
    assert [row[0] for row in wrong.rows] == ["account-2", "account-1"]
    numbers = PredictionSample(np.array([1.0, 5.0]), np.array([1.5, 2.0]), "test", ["a", "b"], np.array([1, 2]))
    closest, furthest = find_cases(make_inputs(label_kind="regression", predictions=numbers))
    assert closest.rows[0] == ("a", "1.000", "1.500", "0.500", "1")
    assert furthest.rows[0] == ("b", "5.000", "2.000", "-3.000", "2")


def test_roc_has_the_area_computed_by_hand(make_inputs):
    # Of the 2 x 2 pairs of a positive and a negative, 3 are ranked right.
    sample = PredictionSample(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    picture, *_ = prediction_pictures(make_inputs(predictions=sample))
    assert "AUC 0.750" in texts(picture)
    assert "4 sampled test targets, 50 % positive" in picture.caption


@pytest.mark.parametrize("columns", [1, 2])
def test_roc_reads_the_positive_class_from_the_last_column(make_inputs, columns):
    positive = np.array([0.1, 0.4, 0.35, 0.8])
    scores = np.stack([1 - positive, positive], axis=1)[:, 2 - columns :]
    picture, *_ = prediction_pictures(make_inputs(predictions=PredictionSample(np.array([0, 0, 1, 1]), scores)))
    assert "AUC 0.750" in texts(picture)


def test_several_labels_are_pooled_into_one_curve(make_inputs):
    sample = PredictionSample(np.array([[0, 0], [1, 1]]), np.array([[0.1, 0.4], [0.35, 0.8]]))
    picture, *_ = prediction_pictures(make_inputs(label_kind="multi", predictions=sample))
    assert "AUC 0.750" in texts(picture)
    assert "Micro-average" in picture.caption


def test_roc_of_one_kind_only_is_said_in_words(make_inputs):
    sample = PredictionSample(np.ones(5, int), np.linspace(0, 1, 5))
    assert "needs both" in prediction_pictures(make_inputs(predictions=sample))[0].missing


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=30))
def test_the_roc_curve_is_scikit_learn_s(targets):
    truth, scores = (np.array(each) for each in zip(*targets, strict=True))
    assume(truth.any() and not truth.all())
    corners = np.stack(roc_curve(truth, scores.astype(float)), 1)
    every = np.stack(reference_curve(truth, scores, drop_intermediate=False)[:2], 1)
    assert (np.abs(every[:, None] - corners).max(2).min(0) < 1e-12).all()
    areas = (np.trapezoid(each[:, 1], each[:, 0]) for each in (corners, every))
    assert np.diff(list(areas)) == pytest.approx(0, abs=1e-12)


def test_regression_shows_its_error_and_fit(make_inputs):
    sample = PredictionSample(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.5, 2.5, 2.5, 3.5]))
    picture, *_ = prediction_pictures(make_inputs(label_kind="regression", predictions=sample))
    assert "4 sampled test targets: mean absolute error 0.500, R² 0.800" in picture.caption
    assert "predicted value (label's unit)" in texts(picture)


def test_map_keeps_distinct_groups_apart():
    draw = np.random.default_rng(0)
    rows = np.concatenate([draw.normal(size=(40, 10)), draw.normal(size=(40, 10)) + 12]).astype(np.float32)
    projection = project(rows)
    places = projection.points
    assert places.shape == (80, 2)
    assert 0.8 < projection.share < 1
    centres = places[:40].mean(axis=0), places[40:].mean(axis=0)
    spread = max(places[:40].std(), places[40:].std())
    assert np.linalg.norm(centres[0] - centres[1]) > 3 * spread


def test_map_draws_a_sample_of_many_and_drops_what_is_not_finite(make_inputs, monkeypatch):
    monkeypatch.setattr(embedding, "MOST_POINTS", 25)
    sample = make_inputs().embeddings
    assert "25 nodes" in embedding_map(make_inputs()).caption
    broken = sample.rows.copy()
    broken[:30] = np.nan
    few = embedding_map(make_inputs(embeddings=EmbeddingSample(broken, sample.labels)))
    assert "12 nodes" in few.caption
    broken[:40] = np.inf
    assert "too few" in embedding_map(make_inputs(embeddings=EmbeddingSample(broken, sample.labels))).missing


@pytest.mark.parametrize("width", [1, 2])
def test_narrow_embeddings_still_have_a_map(make_inputs, width):
    sample = make_inputs().embeddings
    assert embedding_map(make_inputs(embeddings=EmbeddingSample(sample.rows[:, :width]))).svg


def test_a_map_is_advised_only_where_the_config_allows_one(make_inputs):
    assert "Set infer.embeddings: true" in embedding_map(make_inputs(embeddings=None)).missing
    assert "infer.embeddings" not in embedding_map(make_inputs(embeddings=None, task="edge")).missing


def test_collapsed_embeddings_are_said_in_words(make_inputs):
    same = EmbeddingSample(np.ones((50, 8), np.float32), np.zeros(50, int))
    assert "too few finite, different" in embedding_map(make_inputs(embeddings=same)).missing


def test_rare_classes_share_one_grey_on_the_map(make_inputs):
    sample = make_inputs().embeddings
    labels = np.arange(42) % 14
    picture = embedding_map(make_inputs(embeddings=EmbeddingSample(sample.rows, labels), class_names=()))
    assert [swatch.label for swatch in picture.legend] == ["other or none", *map(str, range(10))]


@pytest.mark.parametrize("name", ["$x^2$", 'id="a" 0.123456 #0d5e00 url(#b)', "中文", "a\nb\tc"])
def test_labels_reach_the_drawing_as_written(make_inputs, name):
    picture = stage_timeline(make_inputs(stages=[StageRow(name, 1.0)]))
    shown = [text.replace("&quot;", '"') for text in texts(picture)]
    assert any(" ".join(name.split()) in " ".join(text.split()) for text in [*shown, " ".join(shown)])


def test_bars_of_variants_show_means_spreads_and_each_seed():
    def run(kind: str, seed: int, score: float) -> ComparedRun:
        return ComparedRun(RunRow(f"{kind} {seed}", kind, {"kind": kind}, seed), "", {"valid.accuracy": score})

    runs = [run("gcn", seed, 0.7 + seed / 100) for seed in range(3)] + [run("sage", 0, 0.8)]
    picture = comparison_bars(rank_variants(runs, "valid.accuracy"), "valid.accuracy")
    assert picture.alt == "Bars: sage 0.800; gcn 0.710 ± 0.010."
    assert {"gcn", "sage", "0.800", "0.710 ± 0.010"} <= set(texts(picture))
    assert "one standard deviation to each side" in {swatch.label for swatch in picture.legend}
    assert comparison_bars(rank_variants(runs[-1:], "valid.accuracy"), "valid.accuracy").legend == ()


def test_a_picture_in_a_file_of_its_own_has_the_page_s_colours():
    runs = [ComparedRun(RunRow("a", "a", {"kind": "a > b"}, 0), "", {"valid.accuracy": 0.5})]
    drawn = image_file(comparison_bars(rank_variants(runs, "valid.accuracy"), "valid.accuracy").svg)
    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"  # otherwise no viewer shows it
    assert set(re.findall(r"var\((--\w+)", drawn)) <= set(re.findall(r"(--\w+):", drawn))
