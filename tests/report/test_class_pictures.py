"""The report of more than two classes: what a reader sees of each class, of decisions with costs and of a rare one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gnnflow.config.decide_section import CostDecision
from gnnflow.graph.run_facts import Decision
from gnnflow.graph.score_facts import ScoreFacts, ScoreGroup
from gnnflow.report.formats import percent_text
from gnnflow.report.headline import tiles
from gnnflow.report.hints import find_hints
from gnnflow.report.pictures import degree_bars, prediction_pictures
from gnnflow.report.render import render_report
from gnnflow.train.decisions import Deciding, choose_decision
from gnnflow.train.describing import describe_scores
from gnnflow.train.outputs import Outputs
from tests.report.test_page import Page, words

NAMES = ("fine", "late", "ring", "mule", "lost", "odd", "new")
TARGETS = (600, 200, 12, 90, 60, 50, 40)


def planted() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(NAMES)), TARGETS)
    return (draw.normal(size=(len(labels), len(NAMES))) + 2 * np.eye(len(NAMES))[labels]).astype(np.float32), labels


def facts_by(decision: Decision | None) -> tuple[ScoreFacts, np.ndarray]:
    """Return the facts of planted scores, and the counts by label and likeliest class."""
    logits, labels = planted()
    outputs = Outputs(logits, labels, np.arange(len(labels)))
    deciding = None if decision is None else Deciding(decision)
    found = describe_scores(outputs, "test", label_kind="single", metric="accuracy", deciding=deciding)
    assert found is not None
    counts = np.zeros((len(NAMES), len(NAMES)), np.int64)
    np.add.at(counts, (labels, logits.argmax(1)), 1)
    return found, counts


def test_every_class_has_a_row_and_the_rarest_are_drawn(make_inputs):
    decision = Decision("the likeliest class", None, positive=None)
    scores, counts = facts_by(decision)
    inputs = make_inputs(
        scores=scores, confusion=counts, class_names=NAMES, decision=decision, predictions=None, embeddings=None
    )
    confusion, curves, certainty = prediction_pictures(inputs)
    assert f"{counts.trace():,} of 1,052 test targets are predicted correctly" in confusion.caption
    assert "Drawn are the 5 rarest of 7 classes" in curves.caption
    assert [each.label for each in curves.legend] == ["ring", "new", "odd", "lost", "mule"]
    assert certainty.key == "certainty"
    text = words(Page(render_report(inputs)).text)
    assert "Each class against the others, the rarest first, by the decision of test targets" in text
    assert "class targets precision recall F1 average precision ring 12 " in text
    assert "No test target is decided as" not in text
    assert "Fewer than 30 test targets have class ring: another test split may score very differently." in text


def test_decisions_with_costs_show_what_they_cost_and_what_the_likeliest_class_would(make_inputs):
    decision = choose_decision(CostDecision(costs={"ring": 50}), *planted(), names=NAMES)
    scores, counts = facts_by(decision)
    inputs = make_inputs(scores=scores, confusion=counts, class_names=NAMES, decision=decision)
    paid = [(np.array(decision.costs) * each).sum() / 1052 for each in (np.array(scores.decided), counts)]
    assert paid[0] < paid[1]
    tile = tiles(inputs)[2]
    assert tile.figure == f"{paid[0]:.3f}"
    assert tile.note == f"per test target; the likeliest class would cost {paid[1]:.3f}"
    confusion, *_ = prediction_pictures(inputs)
    assert "is decided as" in confusion.caption
    assert "test targets are decided correctly" in confusion.caption
    right = percent_text(counts.trace() / 1052)  # of accuracy, which another count stands beside
    assert f"A decision costs {paid[0]:.3f} on average. The likeliest class, which accuracy counts" in confusion.caption
    assert confusion.caption.endswith(f"and be correct for {right}. A row's shades add up to one.")
    assert "cost more" not in "".join(hint.title for hint in find_hints(inputs))
    # the same decisions where it is dear to decide for ring, of which they know nothing
    costs = 1.0 - np.eye(len(NAMES))
    costs[:2, 2] = 50
    other = dataclasses.replace(decision, costs=tuple(map(tuple, costs)))
    (hint,) = (each for each in find_hints(dataclasses.replace(inputs, decision=other)) if "cost more" in each.title)
    assert hint.title == "Decisions cost more than the likeliest class"
    assert "without task.decide the likeliest class is decided" in hint.text


@pytest.mark.parametrize("number", [2, 1])  # the rarest class, and one that is not among the five rarest
def test_a_named_class_has_a_list_and_decisions_of_its_own(make_inputs, number):
    decision = Decision("the highest F1", 0.5, positive=number)
    scores, counts = facts_by(decision)
    inputs = make_inputs(scores=scores, confusion=counts, class_names=NAMES, decision=decision)
    pictures = {each.key: each for each in prediction_pictures(inputs)}
    assert list(pictures) == ["quality", "precision", "decision", "gains", "certainty"]
    name, count = NAMES[number], TARGETS[number]
    assert f"test targets decided for class {name}" in pictures["decision"].caption
    assert f"of the {count} of class {name}" in pictures["gains"].caption
    assert tiles(inputs)[2].figure.endswith(f" of {count}")
    rarest = "the 5 rarest of 7 classes" + (", each" if number == 2 else " and late, each")
    assert f"Drawn are {rarest} against the others" in pictures["precision"].caption


@pytest.mark.parametrize("rare", [None, 2])
def test_a_bar_on_too_few_targets_says_on_how_many(make_inputs, rare):
    groups = (ScoreGroup(0, 1, 500, 0.1, of_rare=3), ScoreGroup(2, 9, 500, 0.6, of_rare=80))
    if rare is None:
        groups = tuple(dataclasses.replace(each, of_rare=None) for each in groups)
    scores, _ = facts_by(None)
    inputs = make_inputs(scores=dataclasses.replace(scores, groups=groups, rare=rare), class_names=NAMES)
    picture = degree_bars(inputs)
    if rare is None:
        assert "lowest, 0.100" in picture.caption
        assert "too few" not in picture.caption
        return
    assert "0.100 (3 of class ring)" in picture.svg
    assert "lowest, 0.600" in picture.caption  # nothing is claimed about the group of three
    assert "Grey bars stand on fewer than 30 targets of class ring, too few to tell groups apart." in picture.caption
    assert picture.table is not None
    assert picture.table.head == ("in-edges", "targets", "of class ring", "accuracy")
    assert picture.table.rows[0] == ("0 to 1", "500", "3", "0.100")
