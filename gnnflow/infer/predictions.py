"""Predictions of targets: scores by the kind of label, the columns that hold them, and their files.

Shapes: n targets, C outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from gnnflow.graph.class_decisions import decided_classes
from gnnflow.graph.labels import (
    CLASS_COLUMN,
    DECISION_COLUMN,
    LABEL_KINDS,
    MOST_PROBABILITY_COLUMNS,
    PROBABILITY,
    names_of_classes,
)
from gnnflow.storage.columns import from_matrix
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.run_facts import Decision
    from gnnflow.storage.writing import FileEntry

_THRESHOLD = 0.5  # a label is predicted where it is likelier than not


def scores_of(logits: torch.Tensor, label_kind: LabelKind) -> FloatArray:
    """Return what is published for raw outputs [n, C]: probabilities, or the values themselves for regression."""
    scores: FloatArray = _PUBLISHED[label_kind].scores(logits).numpy()
    return scores


def prediction_columns(
    scores: FloatArray, label_kind: LabelKind, class_names: Sequence[str], decision: Decision | None = None
) -> dict[str, Any]:
    """Return the columns of a predictions file for scores [n, C], named as LABEL_KINDS says.

    One more column has the names of predicted classes, and the number where only other classes have names. Of few
    classes each has a column with its probability, too.
    decision: its column says whether the probability of a class reaches the threshold, and is null where there is
    none; or it has the decided class, by its name where classes have names.
    """
    traits = LABEL_KINDS[label_kind]
    columns = dict(zip(traits.columns, _PUBLISHED[label_kind].columns(scores), strict=True))
    if traits.is_class and class_names:
        columns[CLASS_COLUMN] = _named(columns[traits.columns[0]], class_names, scores.shape[1])
    if decision is not None:
        columns[DECISION_COLUMN] = _decided(scores, decision, class_names)
    if traits.has_classes:
        columns |= _probabilities(scores, class_names)
    return columns


def _probabilities(scores: FloatArray, class_names: Sequence[str]) -> dict[str, Any]:
    """Return a column for each class; none where there are so many that a list is handier."""
    if scores.shape[1] > MOST_PROBABILITY_COLUMNS:
        return {}
    every = names_of_classes(class_names, scores.shape[1])
    # a table's metadata may repeat a name, which columns cannot; many engines ignore the case of columns, too
    if len({name.casefold() for name in every}) < len(every):
        every = names_of_classes((), scores.shape[1])
    return {f"{PROBABILITY}{name}": np.ascontiguousarray(scores[:, place]) for place, name in enumerate(every)}


def _decided(scores: FloatArray, decision: Decision, class_names: Sequence[str]) -> pa.Array:
    if decision.positive is None:
        classes = decided_classes(scores, decision)
        return _named(classes, class_names, scores.shape[1]) if class_names else pa.array(classes)
    if decision.threshold is None:
        return pa.nulls(len(scores), pa.bool_())
    return pa.array(scores[:, decision.positive] >= np.float32(decision.threshold))


def _named(classes: IntArray, class_names: Sequence[str], count: int) -> pa.Array:
    """Return the names of some classes, of so many in all."""
    return pa.array(names_of_classes(class_names, count), pa.string()).take(pa.array(classes))


def count_broken(computed: FloatArray, ids: Sequence[pa.Array]) -> dict[str, Any]:
    """Return how many rows of computed numbers [n, C] are not finite, and the ids of the first; empty where all are."""
    broken = np.flatnonzero(~np.isfinite(computed).all(axis=1))
    if not len(broken):
        return {}
    example = " to ".join(str(each[int(broken[0])]) for each in ids)
    return {"rows": len(computed), "not_finite": len(broken), "example": example}


def commit_predictions(index: int, table: pa.Table, artifact: str) -> FileEntry:
    """Commit the predictions of a partition."""
    return commit_table(artifact, f"predictions/part-{index:05d}.parquet", table)


def _likeliest_class(scores: FloatArray) -> tuple[Any, ...]:
    # argmax of no rows would raise: it has no axis of length one to reduce
    prediction = scores.argmax(1) if len(scores) else np.zeros(0, np.int64)
    return prediction, from_matrix(scores)


def _likely_labels(scores: FloatArray) -> tuple[Any, ...]:
    return from_matrix((scores >= _THRESHOLD).astype(np.int8)), from_matrix(scores)


@dataclass(frozen=True)
class _Published:
    """The predictions of a label kind: scores [n, C] of raw outputs, and the columns for them."""

    scores: Callable[[torch.Tensor], torch.Tensor]
    columns: Callable[[FloatArray], tuple[Any, ...]]


_PUBLISHED: dict[LabelKind, _Published] = {
    "single": _Published(lambda logits: torch.softmax(logits, dim=1), _likeliest_class),
    "multi": _Published(torch.sigmoid, _likely_labels),
    "regression": _Published(lambda logits: logits, lambda scores: (scores[:, 0],)),
    "link": _Published(lambda logits: logits, lambda scores: (from_matrix(scores),)),
}
