"""States of layers whose edges read terms of their targets, as attention does: made in a round between two slices.

The owner of the sources knows their terms when a slice ends, and the owner of the targets knows theirs. The slice keeps
the sources' rows where they are, once for all who take states, and sends the targets' terms, which are narrow (a half
of a logit per head), to where the sources are. This round then makes the states and sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.infer.need import sends_of
from gnnflow.infer.relation_task import PackedRows, RelationTask, rows_of
from gnnflow.infer.row_form import from_column
from gnnflow.infer.states import plans_of
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.executions.sliced import SliceTerms
    from gnnflow.graph.arrays import IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Inbox


def send_targets(task: RelationTask, terms_of: Callable[[IntArray], SliceTerms]) -> tuple[Emit, ...]:
    """Return target terms on their way to who makes states with them.

    terms_of: gives the terms of local rows, ascending.
    """
    if not task.reads_targets or task.index not in task.askers:
        return ()
    wanted = task.inbox.read(task.asked_channel("targets"), tasks=(task.index,))
    rows, owner = to_numpy(wanted["row"]), to_numpy(wanted["owner"])
    # of the layers that the need round serves, this one may take rows of some owners
    taken = plans_of(task.index, task.inbox, task.job, task.layer)[task.relation].as_states[owner]
    # rows of the targets whose terms are sent, each once, and the row of each send among them
    distinct_rows, places = np.unique(rows[taken], return_inverse=True)
    terms, reads = terms_of(distinct_rows).target, task.plan.read
    table = pa.table({"row": from_matrix(reads.pack({name: terms[name] for name in reads.names}))})
    return (Emit(task.channel("target"), table, owner[taken], picked=places),)


def make_states(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Make the states of layer `layer` that read terms of their targets, and send them."""
    emits = []
    with job.computing(index) as model:
        for relation, sends in enumerate(sends_of(index, inbox, job, layer)):
            task = RelationTask(index, inbox, job, model, layer, relation)
            takers = task.takers(sends) if task.reads_targets else []
            if not takers:
                continue
            reads, tasks = task.plan.read, [each.index for each in takers]
            received = inbox.pieces(task.channel("target"), tasks=tasks)
            targets = [reads.unpack(to_matrix(piece["row"])) for piece in received]
            kept = inbox.read(task.channel("kept"), tasks=(index,))
            terms = PackedRows(rows_of(takers), from_column(kept["row"], job.rows))
            emits.append(task.send_states(terms, takers, targets))
    return TaskOutput(emits=tuple(emits))
