"""Hybrid parallelism (GraphTheta, 2022): all ranks compute each batch of mini-batch or cluster-batch together.

A step is a global-batch step over the targets of a batch. `part.py` has a rank's part of the graph and makes its part
of a batch, `batches.py` and `clusters.py` choose the targets, `source.py` opens the source. Plans, steps and scoring
are the same as of data-parallel training on one rank.
"""

from __future__ import annotations

from gnnflow.train.hybrid.source import open_task_source

__all__ = ["open_task_source"]
