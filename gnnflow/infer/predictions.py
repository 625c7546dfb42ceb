"""What is published for a target: its score by the kind of label, and the columns that hold it.

Shapes: n targets, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gnnflow.storage.columns import from_matrix

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray
    from gnnflow.graph.labels import LabelKind

_THRESHOLD = 0.5  # a label is predicted where it is likelier than not


def scores_of(logits: torch.Tensor, label_kind: LabelKind) -> FloatArray:
    """Return what is published for raw outputs [n, C]: probabilities, or the values themselves for regression."""
    if label_kind == "single":
        logits = torch.softmax(logits, dim=1)
    elif label_kind == "multi":
        logits = torch.sigmoid(logits)
    scores: FloatArray = logits.numpy()
    return scores


def prediction_columns(scores: FloatArray, label_kind: LabelKind) -> dict[str, Any]:
    """Return the columns of a predictions file for scores [n, C]."""
    if label_kind == "regression":
        return {"value": scores[:, 0]}
    if label_kind == "multi":
        return {
            "prediction": from_matrix((scores >= _THRESHOLD).astype(np.int8)),
            "probabilities": from_matrix(scores),
        }
    # argmax of no rows would raise: it has no axis of length one to reduce
    prediction = scores.argmax(1) if len(scores) else np.zeros(0, np.int64)
    return {"prediction": prediction, "probabilities": from_matrix(scores)}
