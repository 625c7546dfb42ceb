"""A score beside the best of its baselines, in words, and what makes it say less than it seems to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gnnflow.graph.run_facts import Decision, LinkFacts, TrainFacts
from gnnflow.graph.score_facts import ScoreFacts
from gnnflow.report.headline import metric_table, tiles, verdict
from gnnflow.report.hints import find_hints
from gnnflow.report.judging import Judgement, baselines_in, cautions, headline_key, judge
from gnnflow.report.render import render_report

KEY = "test.accuracy"


def scored(value: float, half: float | None = None, key: str = KEY) -> dict[str, float]:
    return {key: value} | ({} if half is None else {f"{key}_low": value - half, f"{key}_high": value + half})


def judged(model: dict[str, float], key: str = KEY, **baselines: dict[str, float]) -> Judgement:
    found = judge(model, baselines, key)
    assert found is not None
    return found


def chance(noise: float) -> str:
    return f"where a difference of up to {noise:.3f} may be chance"


@pytest.mark.parametrize(
    ("model", "trees", "outcome"),
    [(0.82, 0.8, "better"), (0.81, 0.8, "no better"), (0.79, 0.8, "no better"), (0.78, 0.8, "worse")],
)
def test_scores_differ_beyond_the_noise_of_both(model: float, trees: float, outcome: str) -> None:
    # .009 and .012 make .015
    found = judged(scored(model, 0.009), majority=scored(0.5), trees=scored(trees, 0.012))
    assert (found.outcome, found.baseline) == (outcome, "trees")
    assert found.noise == pytest.approx(0.015)
    assert found.text == f"{outcome} than trees on the columns: {model:.3f} beside 0.800, {chance(0.015)}"


def test_a_lower_error_is_better_and_the_majority_of_numbers_is_their_mean() -> None:
    key = "test.mae"
    found = judged(scored(1.0, 0.1, key), key, majority=scored(2.0, 0.1, key), trees=scored(3.0, 0.1, key))
    assert found.text == f"better than the mean: 1.000 beside 2.000, {chance(0.141)}"


def test_a_score_without_an_interval_is_as_wide_as_the_other_and_two_have_no_noise() -> None:
    assert judged(scored(0.9, 0.03), trees=scored(0.86)).outcome == "no better"
    found = judged(scored(0.9), trees=scored(0.89))
    assert (found.noise, found.outcome) == (None, "better")
    assert judge(scored(0.9), {"trees": scored(0.5, key="valid.accuracy")}, KEY) is None
    assert judge({}, {}, None) is None


def test_the_noise_of_a_pair_counts_before_the_intervals_of_both() -> None:
    trees = {**scored(0.8, 0.05), f"{KEY}_noise": 0.01}
    assert (
        judged(scored(0.82, 0.05), trees=trees).text
        == f"better than trees on the columns: 0.820 beside 0.800, {chance(0.010)}"
    )


def test_baselines_are_read_from_a_runs_metrics() -> None:
    metrics = {KEY: 0.9, "baseline.test.accuracy": 0.8, "baseline.trees.test.accuracy": 0.7, "train.seconds": 1.0}
    assert baselines_in(metrics) == {"": {KEY: 0.8}, "trees": {KEY: 0.7}}
    assert headline_key(metrics, "roc_auc") == KEY


def facts(**changes: Any) -> TrainFacts:
    held: dict[str, Any] = {"metrics": {}, "best_epoch": 1, "history": (), "confusion": {}, **changes}
    return TrainFacts(**held)


@pytest.mark.parametrize(
    ("changes", "count", "words"),
    [
        ({"constant": "the model predicts class 0 for every test target"}, 500, "The model predicts class 0"),
        ({"confusion": {"test": [[400, 100], [0, 0]]}}, 500, "All targets of the test split have one class."),
        ({"confusion": {"test": [[400, 71], [9, 20]]}}, 500, "Only 29 targets of the test split have class yes:"),
        ({}, 99, "The test split has 99 targets, too few to tell models apart."),
        ({}, 1, "The test split has 1 target, too few to tell models apart."),
        ({"link_facts": LinkFacts("test", 500, 100, 4000, 0.0, filtered=False)}, 500, "among 100 sampled candidates"),
    ],
)
def test_what_makes_a_score_say_less_is_said(changes: dict[str, Any], count: int, words: str) -> None:
    (caution,) = cautions(
        facts(**changes), KEY, label_kind="single", split_counts={"test": count}, class_names=("no", "\u202eyes")
    )
    assert words in caution
    assert caution.endswith(".")


def test_one_prediction_beside_a_threshold_that_finds_targets_does_not_contradict_it() -> None:
    """Finds "the model predicts class 0 for every target" above a list of the targets that the threshold finds."""
    found = facts(
        constant="the model predicts class 0 for every test target",
        decision=Decision("f1", 0.25),
        scores=ScoreFacts("test", 500, KEY, decided=((440, 20), (10, 30))),
        confusion={"test": [[460, 0], [40, 0]]},
    )
    (caution,) = cautions(found, KEY, label_kind="single", split_counts={"test": 500}, class_names=["no", "yes"])
    assert caution.endswith("The column decision has both: class yes from a probability of 0.25 on, 50 of 500 targets.")
    few = replace(found, constant="", confusion={"test": [[480, 0], [20, 0]]})
    (caution,) = cautions(few, KEY, label_kind="single", split_counts={"test": 500}, class_names=["no", "yes"])
    assert caution.startswith("Only 20 targets of the test split have class yes:")


def test_a_plain_score_needs_no_caution() -> None:
    plain = facts(
        confusion={"test": [[400, 0], [50, 50]]}, link_facts=LinkFacts("test", 9, 100, 100, 0.0, filtered=False)
    )
    assert cautions(plain, KEY, label_kind="single", split_counts={"test": 500}) == ()
    assert cautions(plain, None, label_kind="single", split_counts={}) == ()


def test_the_report_leads_with_the_best_baseline_and_says_what_to_do(make_inputs: Any) -> None:
    inputs = make_inputs(baselines={"trees": scored(0.84, 0.02)}, cautions=["All targets have <one> class."])
    assert f"0.833, no better than trees on the columns (0.840, {chance(0.028)})." in verdict(inputs)
    tile = tiles(inputs)[1]
    assert (tile.label, tile.figure, tile.mood) == ("Best baseline", "0.840", "plain")
    assert tile.note.endswith("a difference of up to 0.028 may be chance")
    assert [row.name for row in metric_table(inputs).baselines][-1] == "Accuracy, trees on the columns"
    (hint,) = find_hints(inputs)
    assert (hint.kind, hint.title) == ("warning", "The model is no better than trees on the columns")
    assert '<p class="caution">All targets have &lt;one&gt; class.</p>' in render_report(inputs)
