"""Mini-batch training on GraphFlat's shards, or on a graph store in memory: the only part of training that knows them.

`opening.py` opens a source for a job; `source.py` gives the loop its steps. `batches.py` plans them, `loader.py` makes
them, `nodes.py` and `pairs.py` build what it sends, and `memory.py` keeps what is used again.
`in_memory.py` takes a graph in memory for shards.
"""

from __future__ import annotations

from gnnflow.train.minibatch.in_memory import check_memory, hold_graph
from gnnflow.train.minibatch.opening import (
    open_source,
    open_store_source,
    open_task_source,
    outputs_on_shards,
    outputs_on_store,
    shard_reader,
)
from gnnflow.train.minibatch.source import MiniBatchSource

__all__ = [
    "MiniBatchSource",
    "check_memory",
    "hold_graph",
    "open_source",
    "open_store_source",
    "open_task_source",
    "outputs_on_shards",
    "outputs_on_store",
    "shard_reader",
]
