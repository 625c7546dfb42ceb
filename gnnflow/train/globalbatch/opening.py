"""The source of a job's steps: where global-batch training asks what targets are."""

from __future__ import annotations

from gnnflow.executions.row_exchange import Exchange
from gnnflow.train.globalbatch.pair_source import open_pair_source
from gnnflow.train.globalbatch.source import open_source
from gnnflow.train.job import TrainJob
from gnnflow.train.source import Source


def open_task_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> Source:
    """Return this rank's part of a job as a source of what its task has as targets: an `OpenJointSource`."""
    opened = open_source if job.task.kind == "node" else open_pair_source
    return opened(job, edges=edges, exchange=exchange)
