"""The source of a job's steps: where global-batch training asks what targets are, and where the graph lies."""

from __future__ import annotations

from gnnflow.config.train_section import is_streamed
from gnnflow.executions.row_exchange import Exchange
from gnnflow.train.globalbatch.pair_source import open_pair_source
from gnnflow.train.globalbatch.source import open_source
from gnnflow.train.job import TrainJob
from gnnflow.train.source import Source


def open_task_source(job: TrainJob, *, edges: bool = True, exchange: Exchange | None = None) -> Source:
    """Return this rank's part of a job as a source of what its task has as targets: an `OpenJointSource`.

    Where train.memory sets a budget, that part in files.
    """
    if is_streamed(job.train):
        from gnnflow.train.streamed import open_streamed

        return open_streamed(job, edges=edges, exchange=exchange)
    opened = open_source if job.task.kind == "node" else open_pair_source
    return opened(job, edges=edges, exchange=exchange)
