"""Global-batch training: the whole graph in every step, a run of its partitions on each rank.

`graph.py` reads a rank's part of the graph store and `pairs.py` its pairs, `source.py` makes steps and outputs of them,
`scoring.py` scores chosen targets in one process. What is computed and exchanged is `gnnflow.executions.globalbatch`.
"""

from __future__ import annotations

from gnnflow.train.globalbatch.scoring import logits_of
from gnnflow.train.globalbatch.source import GlobalBatchSource, open_source

__all__ = ["GlobalBatchSource", "logits_of", "open_source"]
