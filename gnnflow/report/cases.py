"""Some right and some wrong predictions, by id: what a person can look up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.graph.class_decisions import decided_classes
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.report.formats import count_text, score_text
from gnnflow.report.inputs import Array, ReportInputs

_COUNT = 5
_TWO_CLASSES = 2


@dataclass(frozen=True)
class Cases:
    """A table of targets. rule: how they were chosen, in words."""

    title: str
    rule: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def find_cases(inputs: ReportInputs) -> tuple[Cases, ...]:
    """Return five right and five wrong predictions of the sampled targets; empty where targets have no ids."""
    sample = inputs.predictions
    if sample is None or sample.ids is None or not len(sample.labels):
        return ()
    if inputs.label_kind == "regression":
        return _numbers(inputs)
    if LABEL_KINDS[inputs.label_kind].is_class and np.ndim(sample.scores) == _TWO_CLASSES:
        return _classes(inputs)
    return ()


def _classes(inputs: ReportInputs) -> tuple[Cases, ...]:
    sample, decision = inputs.predictions, inputs.decision
    assert sample is not None
    labels, scores = np.asarray(sample.labels), np.asarray(sample.scores)
    if decision is not None and decision.positive is not None and decision.threshold is not None:
        return _of_one_class(inputs, labels, scores, positive=decision.positive, threshold=decision.threshold)
    has_costs = decision is not None and bool(decision.costs)
    guesses = decided_classes(scores, decision) if decision is not None and has_costs else scores.argmax(1)
    certain = scores[np.arange(len(scores)), guesses]
    rows = [
        (inputs.class_name(int(label)), inputs.class_name(int(guess)), score_text(float(score)))
        for label, guess, score in zip(labels, guesses, certain, strict=True)
    ]
    known = labels >= 0
    return _right_and_wrong(
        inputs,
        (known & (labels == guesses), known & (labels != guesses)),
        certain,
        head=("label", "decision" if has_costs else "predicted", "its probability"),
        rows=rows,
    )


def _of_one_class(
    inputs: ReportInputs, labels: Array, scores: Array, *, positive: int, threshold: float
) -> tuple[Cases, ...]:
    """Return right and wrong decisions for a class."""
    own, one = scores[:, positive], inputs.class_name(positive)
    decided, truth = own >= np.float32(threshold), labels == positive
    other = inputs.class_name(1 - positive) if scores.shape[1] == _TWO_CLASSES else f"not {one}"
    # distance from the threshold, as a share of the way to certainty
    certain = np.where(decided, (own - threshold) / max(1 - threshold, 1e-9), 1 - own / max(threshold, 1e-9))
    rows = [
        (inputs.class_name(int(label)), one if flag else other, score_text(float(score)))
        for label, flag, score in zip(labels, decided, own, strict=True)
    ]
    known = labels >= 0
    right, wrong = known & (truth == decided), known & (truth != decided)
    if (right & decided).any():
        right = right & decided
    head = ("label", "decision", f"probability of class {one}")
    return _right_and_wrong(inputs, (right, wrong), certain, head=head, rows=rows)


def _right_and_wrong(
    inputs: ReportInputs,
    chosen: tuple[Array, Array],
    certain: Array,
    *,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> tuple[Cases, ...]:
    right, wrong = (_surest(each, certain) for each in chosen)
    return (
        _table(inputs, ("Right", "the surest ones"), right, head=head, rows=rows),
        _table(inputs, ("Wrong", "the surest ones"), wrong, head=head, rows=rows),
    )


def _numbers(inputs: ReportInputs) -> tuple[Cases, ...]:
    sample = inputs.predictions
    assert sample is not None
    labels, scores = np.ravel(sample.labels).astype(float), np.ravel(sample.scores).astype(float)
    errors = np.abs(scores - labels)
    known = np.isfinite(errors)
    rows = [
        (score_text(label), score_text(score), score_text(score - label))
        for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
    ]
    head = ("label", "predicted", "error")
    return (
        _table(inputs, ("Closest", "the smallest errors"), _surest(known, -errors), head=head, rows=rows),
        _table(inputs, ("Furthest", "the largest errors"), _surest(known, errors), head=head, rows=rows),
    )


def _surest(chosen: Array, certain: Array) -> Array:
    places = np.flatnonzero(chosen)
    return places[np.argsort(-certain[places], kind="stable")[:_COUNT]]


def _table(
    inputs: ReportInputs, words: tuple[str, str], places: Array, *, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Cases:
    """Return the table of the targets at some places. words: its title and how targets were chosen."""
    sample = inputs.predictions
    assert sample is not None
    assert sample.ids is not None
    assert sample.in_degrees is not None
    shown = [(sample.ids[place], *rows[place], count_text(sample.in_degrees[place])) for place in places.tolist()]
    title, rule = words
    known = inputs.scores.targets if inputs.scores is not None and inputs.scores.split == sample.split else 0
    sampled = "" if known == len(sample.ids) else "sampled "
    told = f"{rule} of {count_text(len(sample.ids))} {sampled}{sample.split} targets"
    return Cases(title, told, (f"{inputs.graph.target or 'node'}", *head, "in-edges"), shown)
