"""The source of a job's steps: the one place in training that asks what targets are, and what batches are cut from."""

from __future__ import annotations

from gnnflow.config import MiniBatchConfig
from gnnflow.train.job import TrainJob
from gnnflow.train.minibatch.in_memory import open_store_source
from gnnflow.train.minibatch.pair_source import open_pair_source
from gnnflow.train.minibatch.pairs_in_memory import open_store_pairs
from gnnflow.train.minibatch.source import open_source
from gnnflow.train.source import Source


def open_task_source(job: TrainJob, *, edges: bool = True) -> Source:
    """Return the job's shards, or its graph in memory, as a source of what its task has as targets."""
    if isinstance(job.train, MiniBatchConfig) and job.train.source == "store":
        return open_store_source(job, edges=edges) if job.task.kind == "node" else open_store_pairs(job, edges=edges)
    return open_source(job, edges=edges) if job.task.kind == "node" else open_pair_source(job, edges=edges)
