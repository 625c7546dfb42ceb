"""The rows that a layer reads where their owners left them: mapped arrays of all nodes.

A task writes the source terms of its rows once per relation, whoever reads them, to an array per term, in which the row
of a node is its dense id. Kernels read rows where they lie: for one block, and for sums and softmax over merged parts
in one pass over edges in pieces (`reads.py`). Rows are copied behind the targets' own for a layer that reads more than
its edges name. States that another partition would send are made here, from its rows and the edges from them. So all is
added up in the order of `exchanged.py`.

Shapes: T targets, N nodes, n rows of the owners that come first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnflow.executions.sliced import (
    Gathered,
    joined_states,
    kept_terms,
    partial_slice,
    reads_in_place,
    term_slice,
)
from gnnflow.infer.arrival import OwnRows, PartRows
from gnnflow.infer.kept_reads import read_kept
from gnnflow.infer.need import rows_of_layer
from gnnflow.infer.sending import carried_layers
from gnnflow.kernels import Pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.executions.plan import TermArrays
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.arrival import Arrival, TaskPlace
    from gnnflow.infer.reads import LayerReads


@dataclass(frozen=True)
class MappedRows:
    """Maps the rows that a layer of a partition reads; they are unmapped where they are last used."""

    at: TaskPlace

    def reads(self, rows: IntArray) -> tuple[LayerReads, ...]:
        """Return what the layer reads, as the need round kept it."""
        return read_kept(self.at.index, self.at.inbox, self.at.job, layer=self.at.layer)

    def own(self) -> OwnRows:
        """Return what was kept of the targets."""
        at = self.at
        own = at.inbox.map(f"own_{at.layer}", at.index)
        carried = {number: own[f"output_{number}"] for number in carried_layers(at.model, at.layer, at.job)}
        if not at.job.keeps_terms:
            return OwnRows(None, own["h"], carried)
        rows, start = rows_of_layer(at.index, at.inbox, at.job, at.layer), at.job.neighbors.store.book.start(at.index)
        # the targets' rows, a run of the array where all of the partition are targets
        places = (
            rows + start if len(rows) < at.job.neighbors.store.book.size(at.index) else slice(start, start + len(rows))
        )
        terms = {name: of_all[places] for name, of_all in self._rows(0).items()}
        stays = kept_terms(at.model, at.layer - 1)
        kept = {name: own[f"target_{name}"] for name in stays.layout.names}
        return OwnRows(stays.whole(terms, kept), None, carried)

    def at_once(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int = 0) -> TermArrays:
        """Return source terms [room + T + n], each owner's copied behind the last one's; no copy of own rows alone."""
        begin = room + len(own["value"])
        if not arrival.at_once.any() and not room:
            return own
        total = begin + int(reads.num_asked[arrival.at_once].sum())
        terms = {name: np.empty((total, *rows.shape[1:]), np.float32) for name, rows in own.items()}
        for name, rows in own.items():
            terms[name][room:begin] = rows
        asked = reads.asked[np.repeat(arrival.at_once, reads.num_asked)]
        for name, rows in self._rows(arrival.relation).items():
            # whole rows, in a copy that checks no bounds
            np.take(rows, asked, axis=0, out=terms[name][begin:], mode="clip")
        return terms

    def whole(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int) -> Gathered:
        """Return all in-edges as one block, with all nodes as sources where the layer reads these in place."""
        at = self.at
        if at.job.keeps_terms and reads_in_place(at.model, at.layer - 1, reads.in_place):
            return Gathered(self._rows(arrival.relation), reads.in_place)
        return Gathered(self.at_once(arrival, reads, own, room=room), reads.whole, room=room)

    def joined(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> TermArrays | None:
        """Return the states of all T targets, in one pass over their edges in pieces; None where no kernel joins."""
        if reads.pieces is None or len(arrival.by_states):
            return None
        block = reads.block_of_pieces(reads.pieces)
        pieces = Pieces(*map(torch.from_numpy, (reads.pieces.bounds, reads.pieces.begins)))
        source = self._rows(arrival.relation)
        return joined_states(self.at.model, self.at.layer - 1, own=own, source=source, block=block, pieces=pieces)

    def parts(self, arrival: Arrival, reads: LayerReads, *, every: bool) -> Iterator[PartRows]:
        """Yield all rows that each partition of `by_rows` keeps, with the edges from them."""
        for owner in arrival.by_rows.tolist():
            yield self._part(owner, arrival, reads, every=every)

    def states(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> Iterator[TermArrays]:
        """Yield the states over the edges from each partition of `by_states`, as their owners would make them."""
        read = self._read_by_edges(arrival, reads, own)
        for owner in arrival.by_states.tolist():
            terms, block, targets = self._part(owner, arrival, reads)
            # a sample's scale is applied where states are merged
            yield partial_slice(
                self.at.model,
                self.at.layer - 1,
                own=read.at(reads.rows[targets]),
                source=terms,
                block=replace(block, sample_scale=None),
                relation=arrival.relation,
            )

    def _read_by_edges(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> _TargetTerms:
        """Return the terms of targets that edges read, of all targets that states lead to.

        They are computed for just these rows, as is the case where they are sent to who makes the states.
        """
        names, owners = self.at.plans[arrival.relation].read.names, arrival.by_states.tolist()
        if not names or not owners:
            return _TargetTerms(reads.rows, {})
        if self.at.job.keeps_terms:
            return _TargetTerms(reads.rows, {name: own[name] for name in names})
        rows = np.unique(np.concatenate([reads.rows[reads.targets_of(owner)] for owner in owners]))
        every = rows_of_layer(self.at.index, self.at.inbox, self.at.job, self.at.layer)
        h = self.at.inbox.map(f"own_{self.at.layer}", self.at.index, ("h",))["h"][np.searchsorted(every, rows)]
        nodes = self.at.job.neighbors.store.degrees(self.at.index).take(rows)
        terms = term_slice(self.at.model, self.at.layer - 1, arrival.relation, h=h, nodes=nodes).target
        return _TargetTerms(rows, {name: terms[name] for name in names})

    def _part(self, owner: int, arrival: Arrival, reads: LayerReads, *, every: bool = False) -> PartRows:
        block, targets = reads.of_owner(owner, every=every)
        terms, asked = self._rows(arrival.relation), reads.asked[reads.offsets[owner] : reads.offsets[owner + 1]]
        if self.at.model.device.type != "cpu":  # a card gets only rows that are read
            return PartRows({name: rows[asked] for name, rows in terms.items()}, block, targets)
        edges = replace(block.edges, sources=asked[block.edges.sources])
        return PartRows(terms, replace(block, edges=edges, num_sources=len(terms["value"])), targets)

    def _rows(self, relation: int) -> dict[str, FloatArray]:
        """Return the source terms [N, ...] of all nodes."""
        channel = self.at.job.channel("source", self.at.layer, relation)
        return self.at.inbox.map(channel, None, self.at.plans[relation].source.names)


@dataclass(frozen=True)
class _TargetTerms:
    """Terms of local rows of targets, ascending."""

    rows: IntArray
    terms: TermArrays

    def at(self, rows: IntArray) -> dict[str, FloatArray]:
        """Return the terms of some of the rows."""
        places = np.searchsorted(self.rows, rows) if self.terms else rows
        return {name: each[places] for name, each in self.terms.items()}
