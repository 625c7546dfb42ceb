"""A model over a graph larger than memory. Read `run.py` first: the phases of a layer and what they hold."""

from __future__ import annotations

from gnnflow.executions.streamed.adding import (
    SLOPE,
    add_block,
    add_gradients,
    attended,
    gated,
    reads_values,
    target_gradients,
)
from gnnflow.executions.streamed.backward import forward
from gnnflow.executions.streamed.edges_back import EdgesBack
from gnnflow.executions.streamed.first_terms import FirstTerms, reads_features
from gnnflow.executions.streamed.graph import EVERY, GroupSizes, Held, Piece, read_ahead, sources_of
from gnnflow.executions.streamed.layers import sources_in, streaming_obstacle
from gnnflow.executions.streamed.order import MOST_AT_ONCE, Passing, groups_of, zeros
from gnnflow.executions.streamed.relay import passing_terms
from gnnflow.executions.streamed.ring import Ring
from gnnflow.executions.streamed.rooms import Key, LayerRelations
from gnnflow.executions.streamed.run import StreamedRun

__all__ = [
    "EVERY",
    "MOST_AT_ONCE",
    "SLOPE",
    "EdgesBack",
    "FirstTerms",
    "GroupSizes",
    "Held",
    "Key",
    "LayerRelations",
    "Passing",
    "Piece",
    "Ring",
    "StreamedRun",
    "add_block",
    "add_gradients",
    "attended",
    "forward",
    "gated",
    "groups_of",
    "passing_terms",
    "read_ahead",
    "reads_features",
    "reads_values",
    "sources_in",
    "sources_of",
    "streaming_obstacle",
    "target_gradients",
    "zeros",
]
