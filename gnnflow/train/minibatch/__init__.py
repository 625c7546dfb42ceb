"""Mini-batch training on GraphFlat's shards: the only part of training that knows shards and ranks.

`source.py` gives the loop its steps; `batches.py` plans them, `loader.py` prepares them ahead and `memory.py`
keeps what is used again. `pair_source.py` and `pair_loader.py` do so where targets are pairs of nodes.
"""

from __future__ import annotations

from gnnflow.train.minibatch.opening import open_task_source
from gnnflow.train.minibatch.pair_source import PairSource, open_pair_source, outputs_on_pairs
from gnnflow.train.minibatch.source import MiniBatchSource, open_source, outputs_on_shards

__all__ = [
    "MiniBatchSource",
    "PairSource",
    "open_pair_source",
    "open_source",
    "open_task_source",
    "outputs_on_pairs",
    "outputs_on_shards",
]
