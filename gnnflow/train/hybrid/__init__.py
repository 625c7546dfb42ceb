"""Hybrid parallelism (GraphTheta, 2022): each batch of mini-batch or cluster-batch is computed by all ranks together.

A step is that of global-batch whose targets are a batch's: `part.py` has a rank's part of the graph and makes what it
computes for some targets, `batches.py` and `clusters.py` say which targets these are, `opening.py` opens the source.
Plans, steps and scoring are those of data-parallel training on one rank.
"""

from __future__ import annotations

from gnnflow.train.hybrid.opening import open_task_source

__all__ = ["open_task_source"]
