"""Mini-batch training on GraphFlat's shards: the only part of training that knows shards and ranks.

`source.py` gives the loop its steps; `batches.py` plans them, `loader.py` prepares them ahead and `memory.py`
keeps what is used again.
"""

from __future__ import annotations

from gnnflow.train.minibatch.source import MiniBatchSource, open_source, outputs_on_shards

__all__ = ["MiniBatchSource", "open_source", "outputs_on_shards"]
