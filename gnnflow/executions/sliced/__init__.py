"""A model cut into slices for GraphInfer. Read `slices.py` first."""

from __future__ import annotations

from gnnflow.executions.sliced.slices import (
    Gathered,
    KeptTerms,
    embedding_slice,
    encode_slice,
    finish_slice,
    gathered_runs,
    kept_terms,
    layer_slice,
    partial_slice,
    prediction_slice,
    reads_in_place,
    relations_slice,
    room_for,
    term_slice,
)
from gnnflow.executions.sliced.states import MergedStates, joined_states
from gnnflow.executions.sliced.term_arrays import SliceTerms

__all__ = [
    "Gathered",
    "KeptTerms",
    "MergedStates",
    "SliceTerms",
    "embedding_slice",
    "encode_slice",
    "finish_slice",
    "gathered_runs",
    "joined_states",
    "kept_terms",
    "layer_slice",
    "partial_slice",
    "prediction_slice",
    "reads_in_place",
    "relations_slice",
    "room_for",
    "term_slice",
]
