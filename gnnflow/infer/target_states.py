"""States of layers whose edges read terms of their targets, as attention does: made in a round between two slices.

The owner of the sources knows their terms when a slice ends, and the owner of the targets knows theirs. The slice keeps
the sources' rows where they are, once for all who take states, and sends the targets' terms, which are narrow (a half
of a logit per head), to where the sources are. This round then makes the states and sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced_states import sent_state
from gnnflow.infer.need import sends_of
from gnnflow.infer.states import plans_of, rows_of, state_emit, takers_of
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.executions.term_arrays import SliceTerms
    from gnnflow.graph.arrays import IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox


def send_targets(
    index: int,
    inbox: Inbox,
    job: InferJob,
    model: Model,
    *,
    layer: int,
    relation: int,
    terms_of: Callable[[IntArray], SliceTerms],
) -> tuple[Emit, ...]:
    """Return target terms of layer `layer` in a relation, on their way to who makes states with them.

    terms_of: gives the terms of local rows, ascending.
    """
    need = job.need_layer(layer)
    if not job.reads_targets(layer, relation) or index not in job.exchange.askers[need].get(relation, ()):
        return ()
    sent = sent_state(model, layer - 1, relation, **job.edge_columns)
    assert sent is not None, "states were chosen in a layer that has none"
    wanted = inbox.read(job.channel("targets", need, relation), tasks=(index,))
    rows, owner = to_numpy(wanted["row"]), to_numpy(wanted["owner"])
    # of the layers that the need round serves, this one may take rows of some owners
    taken = plans_of(index, inbox, job, layer)[relation].as_states[owner]
    distinct_rows, places = np.unique(rows[taken], return_inverse=True)
    terms = terms_of(distinct_rows).target
    table = pa.table({"row": from_matrix(sent.reads.pack({name: terms[name] for name in sent.reads.names}))})
    return (Emit(job.channel("target", layer, relation), table, owner[taken], picked=places),)


def make_states(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Make the states of layer `layer` that read terms of their targets, and send them."""
    emits = []
    with job.computing(index) as model:
        for relation, sends in enumerate(sends_of(index, inbox, job, layer)):
            if not job.reads_targets(layer, relation):
                continue
            takers = takers_of(inbox, job, layer, relation, sends)
            if not takers:
                continue
            sent = sent_state(model, layer - 1, relation, **job.edge_columns)
            assert sent is not None, "states were chosen in a layer that has none"
            channel = job.channel("target", layer, relation)
            received = inbox.pieces(channel, tasks=[each.index for each in takers])
            targets = [sent.reads.unpack(to_matrix(piece["row"])) for piece in received]
            kept = inbox.read(job.channel("kept", layer, relation), tasks=(index,))
            packed, rows = to_matrix(kept["row"]), rows_of(takers)
            emits.append(
                state_emit(job, model, takers, targets, layer=layer, relation=relation, packed=packed, rows=rows)
            )
    return TaskOutput(emits=tuple(emits))
