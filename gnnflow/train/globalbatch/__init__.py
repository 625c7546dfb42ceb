"""Global-batch training: the whole graph in every step, a run of its partitions on each rank.

`graph.py` reads a rank's part of the graph store, `source.py` makes steps and outputs of it, `pair_source.py` where
targets are pairs, `scoring.py` scores chosen targets in one process. What is computed and exchanged is
`gnnflow.executions.globalbatch`.
"""

from __future__ import annotations

from gnnflow.train.globalbatch.opening import open_task_source
from gnnflow.train.globalbatch.pair_source import GlobalPairSource, open_pair_source
from gnnflow.train.globalbatch.scoring import logits_of
from gnnflow.train.globalbatch.source import GlobalBatchSource, open_source

__all__ = [
    "GlobalBatchSource",
    "GlobalPairSource",
    "logits_of",
    "open_pair_source",
    "open_source",
    "open_task_source",
]
