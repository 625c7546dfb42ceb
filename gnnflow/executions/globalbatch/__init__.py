"""A model over the whole graph as one batch, spread over ranks. Read `forward.py` first."""

from __future__ import annotations

from gnnflow.executions.globalbatch.active_sets import Gathered, active_rows, gathered
from gnnflow.executions.globalbatch.batch import RankBatch, RankLayer, rank_batch, takes_states
from gnnflow.executions.globalbatch.forward import forward, layer_outputs, with_mirrors
from gnnflow.executions.globalbatch.placed import PlacedTensors
from gnnflow.executions.globalbatch.placed_sets import PlacedEdges, PlacedLayer, placed_layers

__all__ = [
    "Gathered",
    "PlacedEdges",
    "PlacedLayer",
    "PlacedTensors",
    "RankBatch",
    "RankLayer",
    "active_rows",
    "forward",
    "gathered",
    "layer_outputs",
    "placed_layers",
    "rank_batch",
    "takes_states",
    "with_mirrors",
]
