"""A model cut into slices for GraphInfer. Read `slices.py` first, then `relations.py`, a layer of a typed graph."""

from __future__ import annotations

from gnnflow.executions.sliced.relations import relation_order, relation_terms, relations_slice
from gnnflow.executions.sliced.runs import gathered_runs, room_for
from gnnflow.executions.sliced.slices import (
    Gathered,
    embedding_slice,
    encode_slice,
    finish_slice,
    layer_slice,
    maps_values_first,
    partial_slice,
    prediction_slice,
    source_layout,
    term_layouts,
    term_slice,
)
from gnnflow.executions.sliced.states import MergedStates, SentState, sent_state
from gnnflow.executions.sliced.term_arrays import SliceTerms, TermArrays

__all__ = [
    "Gathered",
    "MergedStates",
    "SentState",
    "SliceTerms",
    "TermArrays",
    "embedding_slice",
    "encode_slice",
    "finish_slice",
    "gathered_runs",
    "layer_slice",
    "maps_values_first",
    "partial_slice",
    "prediction_slice",
    "relation_order",
    "relation_terms",
    "relations_slice",
    "room_for",
    "sent_state",
    "source_layout",
    "term_layouts",
    "term_slice",
]
