"""Figures of months made by hand, without a model: what they decide, and what of them can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gnnflow.config.decide_section import CostDecision
from gnnflow.graph.run_facts import Decision
from gnnflow.stages import score_figures
from gnnflow.stages.score_drift import ScoreDrift, Shift, drift_between, drift_from
from gnnflow.stages.score_figures import Figures, Model, figures_of
from gnnflow.stages.trained_targets import TRAIN, VALID, TrainedTargets
from gnnflow.train.decisions import Deciding
from gnnflow.train.measured import measured_of

NAMES = ("ok", "mule", "ring")
AT = Decision("a precision of 0.5 or more", 0.25, positive=1)
COSTS = ((0.0, 1.0, 1.0), (50.0, 0.0, 1.0), (50.0, 1.0, 0.0))

Month = Callable[..., Figures]


@pytest.fixture
def month(monkeypatch: pytest.MonkeyPatch) -> Month:
    """Return a function to the figures of so many predictions."""

    def make(rows: int, model: Model, *, seed: int = 0, labels: Any = None, decisions: Any = None) -> Figures:
        rng = np.random.default_rng(seed)
        probabilities = rng.dirichlet(np.ones(len(model.names)), rows).astype(np.float32)
        if labels is None:
            labels = np.array(model.names)[rng.integers(len(model.names), size=rows)]
        scores = pa.FixedSizeListArray.from_arrays(pa.array(probabilities.ravel()), len(model.names))
        columns = {"id": np.arange(rows), "label": pa.array(labels, pa.string()), "split": ["none"] * rows}
        if decisions is not None:
            columns["decision"] = decisions(probabilities)
        table = pa.table({**columns, "probabilities": scores})
        monkeypatch.setattr(score_figures, "prediction_files", lambda _: [""])
        monkeypatch.setattr(score_figures, "read_artifact_table", lambda *_: table)
        return figures_of("", model)

    return make


def test_the_size_of_the_decided_list_is_told_with_its_rule(month: Month) -> None:
    """Of predicted classes alone nobody could say how many cases a month brings."""
    model = Model("single", NAMES, "accuracy", Deciding(AT))
    found = month(400, model, decisions=lambda held: pa.array(held[:, 1] >= 0.25))
    count = found.decided["mule"]
    assert 0 < count < 400
    line = f"decided: {count} of 400 targets; class mule is decided from a probability of 0.25 on, chosen on valid for"
    assert f"{line} a precision of 0.5 or more" in list(found.lines())
    before = month(400, model, seed=1, decisions=lambda held: pa.array(held[:, 1] >= 0.5))
    drift = drift_between(found, before, against="before")
    assert drift.decided == {"mule": (before.decided["mule"] / 400, count / 400)}
    assert f"  decided mule {count / 400:.2%}, {before.decided['mule'] / 400:.2%} before" in list(drift.lines())
    assert ScoreDrift.read(drift.as_document()) == drift
    assert Figures.read(found.as_document()) == found


def test_decisions_of_several_classes_are_counted_and_predictions_are_not_told_twice(month: Month) -> None:
    costly = Decision("the least expected cost", None, positive=None, costs=COSTS, offsets=(0.0,) * 3)
    found = month(
        90, Model("single", NAMES, "accuracy", Deciding(costly)), decisions=lambda _: ["ring"] * 60 + ["ok"] * 30
    )
    assert "decided: ring 60, ok 30 of 90 targets; the class of least expected cost is decided, by" in "\n".join(
        found.lines()
    )
    likeliest = Decision("the likeliest class", None, positive=None)
    found = month(90, Model("single", NAMES, "accuracy", Deciding(likeliest)), decisions=lambda _: ["ok"] * 90)
    assert not any(line.startswith("decided") for line in found.lines())
    none = Decision("the highest F1", None, "no target is in valid", positive=1)
    found = month(90, Model("single", NAMES, "accuracy", Deciding(none)), decisions=lambda _: pa.nulls(90, pa.bool_()))
    assert "decided: no threshold: no target is in valid" in list(found.lines())


def test_targets_that_chose_the_model_are_judged_only_where_no_others_have_labels(month: Month) -> None:
    """Valid chose the epoch and the threshold: pooled with test its scores make every later month look worse."""
    for known, labelled, note in (
        (60, 140, "30 labels are not counted, since their"),
        (200, 100, "all judged targets"),
    ):
        splits = np.where(np.arange(known) % 2, TRAIN, VALID)
        trained = TrainedTargets({"id": pa.array(np.arange(known))}, splits)
        found = month(200, Model("single", NAMES, "accuracy", trained=trained))
        assert found.labelled == labelled
        assert any(each.startswith(note) and "of the split valid of training" in each for each in found.notes)


def test_an_edge_is_known_by_its_ends_and_its_values() -> None:
    """The next payment between accounts of which the model learned one is a target like any other."""
    ids = {"src": pa.array(["a", "a", "b", "a"]), "dst": pa.array(["b", "c", "a", "b"])}
    keys = np.array([1, 2, 3, 1], np.uint64)
    trained = TrainedTargets(ids, np.array([VALID, TRAIN, VALID, TRAIN]), keys)
    later = pa.table({"src": ["a", "a", "a", "b", "a", "z"], "dst": ["b", "b", "c", "a", "a", "b"]})
    found = trained.splits_of(later, np.array([1, 9, 2, 3, 1, 1], np.uint64))
    assert found.tolist() == [TRAIN, -1, TRAIN, VALID, -1, -1]
    assert TrainedTargets(ids, np.array([VALID, TRAIN, VALID, TRAIN])).splits_of(later).tolist() == [
        *(TRAIN, TRAIN, TRAIN, VALID),
        *(-1, -1),
    ]


def test_the_first_k_of_another_number_of_targets_are_not_compared(month: Month) -> None:
    model = Model("single", NAMES, "precision_at_20", Deciding(AT, top=20))
    small, large, alike = (month(rows, model, seed=rows) for rows in (200, 400, 401))
    drift = drift_between(large, small, against="before")
    kept = {each.name: each.why_not for each in drift.changes}
    why = "among 400 targets now and 200 before"
    assert kept["score.precision_at_20"] == kept["score.recall_at_20"] == why
    assert kept["score.precision"] == kept["score.accuracy"] == ""
    assert f"before, {why}, so the two cannot be compared" in drift.verdict(large.headline)
    assert not any(each.why_not for each in drift_between(alike, large, against="before").changes)


def test_decisions_of_another_class_or_at_other_costs_are_not_compared(month: Month) -> None:
    """The next version may decide for another class; its shorter list would look like a month with fewer cases."""

    def decided(decide: CostDecision, rule: str, positive: int | None, **costs: Any) -> Figures:
        decision = Decision(rule, None if positive is None else 0.25, positive=positive, **costs)
        deciding = Deciding.of(decide, decision, names=NAMES)
        column = (lambda _: ["ring"] * 300) if positive is None else lambda held: pa.array(held[:, positive] >= 0.25)
        return month(300, Model("single", NAMES, "f1", deciding), decisions=column)

    def of_one(name: str, miss: float) -> Figures:
        return decided(CostDecision(miss=miss, positive=name), f"the lowest cost (miss {miss:g})", NAMES.index(name))

    ring, mule, dear = of_one("ring", 20), of_one("mule", 20), of_one("ring", 30)
    matrix = decided(CostDecision(costs={"ring": 50}), "the least expected cost", None, costs=COSTS, offsets=(0.0,) * 3)
    why = {
        (id(now), id(before)): {each.name.removeprefix("score."): each.why_not for each in drift.changes}
        for now, before in ((ring, mule), (dear, ring), (matrix, ring))
        for drift in [drift_between(now, before, against="before")]
        if drift.decided_why_not and not drift.decided and drift.decided_why_not in "\n".join(drift.lines())
    }
    other_class, other_costs, other_rule = why.values()
    for name in ("precision", "recall", "f1", "precision_at_100", "recall_at_100"):
        assert other_class[name] == "of class ring now and of class mule before"
    assert not other_class["accuracy"]
    ring_costs = "a miss of class ring costs {} and a false alarm 1"
    assert other_costs["cost"] == f"where {ring_costs.format(30)} now and where {ring_costs.format(20)} before"
    assert other_costs["f1"].startswith("decided for class ring by the lowest cost (miss 30) now and decided for")
    assert not other_costs["recall_at_100"]
    assert other_rule["cost"].startswith("where mistakes cost ring 50; else 1 now and")
    assert not any(each.why_not for each in drift_between(ring, of_one("ring", 20), against="before").changes)
    older = replace(ring, measured={}, decided_by="")
    kept = {each.name: each.why_not for each in drift_between(ring, older, against="before").changes}
    assert "not recorded before" in kept["score.cost"]
    assert "not recorded before" in kept["score.f1"]
    assert not kept["score.accuracy"]


def test_both_forms_of_the_same_costs_are_the_same_costs() -> None:
    """A team that rewrites its config must not lose the comparison."""
    names = ("ok", "ring")

    def cost(number: int, **keys: Any) -> str:
        decision = Decision("", 0.5, positive=number)
        return measured_of(Deciding.of(CostDecision(**keys), decision, names=names), names)["cost"]

    assert cost(1, miss=20) == cost(1, costs={"ring": 20}) == "where mistakes cost ring 20; else 1"
    assert cost(0, miss=1, false_alarm=20, positive="ok") == cost(1, miss=20)
    assert cost(1, miss=20, false_alarm=2) == "where mistakes cost ok 2; ring 20; else 1"


def test_metrics_of_targets_that_chose_the_model_are_no_reference(month: Month) -> None:
    """They are too good, so that every later month would be told to have got worse, and a guard would stop it."""
    trained = TrainedTargets({"id": pa.array(np.arange(200))}, np.full(200, VALID))
    model = Model("single", NAMES, "accuracy")
    chose, now, before = month(200, replace(model, trained=trained)), month(200, model), month(200, model, seed=1)
    assert (chose.chose_model, now.chose_model) == (True, False)
    drift = drift_from(now, [(chose, "November"), (before, "October")])
    assert drift is not None
    assert (drift.against, drift.metrics_against) == ("November", "October")
    for first, second, why in (
        (now, chose, "of targets that chose the model then"),
        (chose, now, "of targets that chose the model"),
    ):
        alone = drift_from(first, [(second, "November")])
        assert alone is not None
        assert {each.why_not for each in alone.changes} == {why}


def test_metrics_are_compared_with_the_last_month_that_has_them(month: Month) -> None:
    model = Model("single", NAMES, "accuracy")
    now, before, first = (month(300, model, seed=seed) for seed in range(3))
    unlabelled = month(300, model, seed=3, labels=[None] * 300)
    assert drift_from(now, []) is None
    plain = drift_from(now, [(before, "November"), (first, "October")])
    assert plain == drift_between(now, before, against="November")
    late = drift_from(now, [(unlabelled, "November"), (before, "October"), (first, "September")])
    assert late is not None
    assert (late.against, late.metrics_against) == ("November", "October")
    assert late.changes == drift_between(now, before, against="").changes
    assert late.indices == drift_between(now, unlabelled, against="").indices
    assert next(iter(late.lines())) == "metrics compared with October:"
    # a month without labels is compared with the last one, and no further one is read
    assert drift_from(unlabelled, iter([(before, "November")])) == drift_between(unlabelled, before, against="November")


def test_three_targets_are_too_few_to_say_that_nothing_shifted(month: Month) -> None:
    assert Shift(0.01, 0.02).verdict == "did not shift"
    assert Shift(9.0, 8.0).verdict == "shifted"
    few = drift_between(
        month(3, Model("single", NAMES, "accuracy")), month(4, Model("single", NAMES, "accuracy")), against=""
    )
    assert {shift.verdict for _, shift in few.scores} == {"too few to say"}
    assert "too few rows to say of highest probability, predicted classes" in few.verdict("score.accuracy")


def test_embeddings_are_said_to_have_no_metric_and_not_to_have_missed_one() -> None:
    assert ScoreDrift("before").verdict("") == "No distribution was compared"
