"""One relation of one layer at the owner of sources: which terms it sends as rows, and which partial states instead.

Shapes: N local rows whose terms are at hand, S rows that one partition asked for, K packed width of source terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.executions.plan import plan_layer
from gnnflow.executions.sliced import partial_slice
from gnnflow.graph.arrays import distinct
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.infer.choice import PairCounts
from gnnflow.infer.row_form import to_column
from gnnflow.infer.states import choose_for
from gnnflow.mapreduce.exchange import Emit
from gnnflow.storage.columns import from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.executions.plan import RelationPlan, TermArrays
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.need import Sends
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class Taker:
    """A partition that takes this one's states in a relation. edges: from the rows that it asked for [S], ascending."""

    index: int
    edges: pa.Table
    rows: IntArray


@dataclass(frozen=True)
class PackedRows:
    """Source terms of local rows [N], ascending: packed [N, K]."""

    rows: IntArray
    packed: FloatArray


@dataclass(frozen=True)
class RelationTask:
    """Sends source terms of partition `index` in one relation of layer `layer` (from 1)."""

    index: int
    inbox: Inbox
    job: InferJob
    model: Model
    layer: int
    relation: int

    def channel(self, what: str) -> str:
        """Return the channel in which something of this layer and relation travels."""
        return self.job.channel(what, self.layer, self.relation)

    def asked_channel(self, what: str) -> str:
        """Return the channel of the need round in which this layer was asked for."""
        return self.job.channel(what, self.job.need_layer(self.layer), self.relation)

    @property
    def reads_targets(self) -> bool:
        """True if states are made from terms of their targets too."""
        return self.job.reads_targets(self.layer, self.relation)

    @property
    def askers(self) -> Sequence[int]:
        """The partitions that may take states of this one."""
        return self.job.exchange.askers.get(self.job.need_layer(self.layer), {}).get(self.relation, ())

    @cached_property
    def plan(self) -> RelationPlan:
        """The layouts of its packed terms and states, and the terms of targets that an edge reads."""
        return plan_layer(self.model, self.layer - 1, self.job.edge_columns).relations[self.relation]

    def takers(self, sends: Sends) -> list[Taker]:
        """Return who takes states, in ascending order. sends: the rows asked for, partition by partition."""
        need, takers = self.job.need_layer(self.layer), []
        for asker in self.askers:
            (edges,) = self.inbox.pieces(self.asked_channel("edges"), tasks=(asker,))
            asked = sends.rows[sends.destination == asker]
            first = to_numpy(edges["first"])
            # counts of this one asker: rows that it asked for, targets, edges
            one = PairCounts(*(np.array([number]) for number in (len(asked), int(first.sum()), len(first))))
            chosen = choose_for(self.job, need, self.relation, one)
            if chosen.as_states[self.job.served(need).index(self.layer), 0]:
                takers.append(Taker(asker, edges, asked))
        return takers

    def send_sources(self, terms: PackedRows, sends: Sends) -> tuple[Emit, ...]:
        """Return source terms, and states over them, on their way to who asked for them.

        terms: of rows that hold all that were asked for. sends: these, partition by partition. Where states read terms
        of targets, which are not here yet, the rows are kept for `target_states.make_states`.
        """
        takers = self.takers(sends)
        # whether each row that was asked for goes as a row
        by_rows = ~np.isin(sends.destination, [each.index for each in takers])
        # the rows asked for, partition by partition; each is copied for one partition at a time
        picked = np.searchsorted(terms.rows, sends.rows[by_rows])
        table = pa.table({"row": to_column(terms.packed, self.job.rows)})
        sent = Emit(self.channel("source"), table, sends.destination[by_rows], picked=picked)
        if not takers:
            return (sent,)
        if self.reads_targets:
            kept = np.searchsorted(terms.rows, rows_of(takers))
            return sent, Emit(self.channel("kept"), table, np.full(len(kept), self.index), picked=kept)
        return sent, self.send_states(terms, takers, [{}] * len(takers))

    def send_states(self, terms: PackedRows, takers: Sequence[Taker], targets: Sequence[TermArrays]) -> Emit:
        """Return states on their way to who takes them. targets: of each taker, the terms that its edges read."""
        index, layout = self.layer - 1, self.plan.state_layout
        source = self.plan.source.unpack(terms.packed)
        states, destination = [], []
        for taker, own in zip(takers, targets, strict=True):
            # the place of each row that the taker asked for among the rows at hand [S]
            sources = np.searchsorted(terms.rows, taker.rows)
            block = _block_of(taker.edges, sources=sources, num_sources=len(terms.rows))
            state = partial_slice(self.model, index, own=own, source=source, block=block, relation=self.relation)
            states.append(layout.pack(state))
            destination.append(np.full(block.num_targets, taker.index))
        table = pa.table({"state": from_matrix(np.concatenate(states))})
        return Emit(self.channel("state"), table, np.concatenate(destination))


def rows_of(takers: Sequence[Taker]) -> IntArray:
    """Return the rows that takers asked for, each once, ascending."""
    return distinct(np.concatenate([each.rows for each in takers]))


def _block_of(edges: pa.Table, *, sources: IntArray, num_sources: int) -> Block:
    """Return received edges as a block. sources: the row of each source that was asked for."""
    # whether each edge is the first of its target [E]
    first, names = to_numpy(edges["first"]), edges.column_names
    columns = InEdges(
        offsets=np.append(np.flatnonzero(first), len(first)),
        sources=sources[to_numpy(edges["source"])],
        weight=to_numpy(edges["weight"]) if "weight" in names else None,
        attributes=to_matrix(edges["attributes"]) if "attributes" in names else None,
    )
    return Block(columns, num_sources, edge_scale=to_numpy(edges["scale"]) if "scale" in names else None)
