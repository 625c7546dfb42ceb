"""A neighbour selection: each node has one neighbour, itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.neighbors.graph import Instances
from gnnflow.neighbors.selection import Delivered, Selection, SelectionResult, deliver, finish

if TYPE_CHECKING:
    from gnnflow.config.neighbors_section import ToyNeighbors
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner


def run_rounds(job: Selection, section: ToyNeighbors, runner: RoundRunner) -> SelectionResult:
    """Select in one round."""
    job, parts = job.of(section.relations(job.store.schema)), job.store.num_partitions
    records = runner.run(Round("toy", parts, parts, partial(select, job=job)))
    return finish(job, runner, dict.fromkeys(range(len(job.relations)), Delivered("toy", records)))


def select(index: int, _: Inbox, *, job: Selection) -> TaskOutput:
    """Write each node of a partition as its own neighbour."""
    book, start = job.store.book, job.store.book.start(index)
    found = {}
    for number, relation in enumerate(job.relations):
        rows = book.rows(index, job.schema.types.index(relation.target))
        nodes = np.arange(start + rows.start, start + rows.stop)
        found[number] = Instances(nodes, nodes)
    return deliver(index, job, found)
