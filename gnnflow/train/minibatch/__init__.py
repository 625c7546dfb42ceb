"""Mini-batch training on GraphFlat's shards, or on a graph store in memory: the only part of training that knows them.

`source.py` gives the loop its steps; `batches.py` plans them, `loader.py` prepares them ahead and `memory.py`
keeps what is used again. `in_memory.py` takes a graph in memory for shards. `pair_source.py` and `pair_loader.py` serve
targets that are pairs of nodes.
"""

from __future__ import annotations

from gnnflow.train.minibatch.in_memory import (
    check_memory,
    hold_graph,
    open_store_source,
    outputs_on_store,
    split_entries,
)
from gnnflow.train.minibatch.opening import open_task_source
from gnnflow.train.minibatch.pair_source import PairSource, open_pair_source, outputs_on_pairs
from gnnflow.train.minibatch.pairs_in_memory import open_store_pairs, outputs_on_stored_pairs
from gnnflow.train.minibatch.source import MiniBatchSource, open_source, outputs_on_shards

__all__ = [
    "MiniBatchSource",
    "PairSource",
    "check_memory",
    "hold_graph",
    "open_pair_source",
    "open_source",
    "open_store_pairs",
    "open_store_source",
    "open_task_source",
    "outputs_on_pairs",
    "outputs_on_shards",
    "outputs_on_store",
    "outputs_on_stored_pairs",
    "split_entries",
]
