"""Hybrid parallelism (GraphTheta, 2022): each batch of mini-batch or cluster-batch is computed by all ranks together.

A step is a global-batch step over the targets of a batch: `part.py` has a rank's part of the graph and makes what it
computes for some targets, `batches.py` and `clusters.py` say which targets these are, `opening.py` opens the source.
Data-parallel training on one rank has the same plans, steps and scoring.
"""

from __future__ import annotations

from gnnflow.train.hybrid.opening import open_task_source

__all__ = ["open_task_source"]
