"""The rows that a layer reads as their owners sent them: files, fetched while the task reads and orders its edges."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.sliced import Gathered, kept_terms
from gnnflow.infer.arrival import OwnRows, PartRows
from gnnflow.infer.reads import layer_reads
from gnnflow.infer.row_form import from_column
from gnnflow.infer.sending import carried_layers
from gnnflow.mapreduce.exchange import fetching
from gnnflow.storage.columns import to_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.executions.plan import TermArrays
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.arrival import Arrival, TaskPlace
    from gnnflow.infer.reads import LayerReads

_PIECES_AHEAD = 2
"""How many pieces are fetched, or wait fetched, while one is merged: memory holds no more of them."""


@contextmanager
def exchanged(at: TaskPlace, arrivals: Sequence[Arrival]) -> Iterator[ExchangedRows]:
    """Begin to fetch what was sent to a layer, and yield it. arrivals: in the order of their relations."""
    wanted = [(f"own_{at.layer}", at.index)]
    for arrival in arrivals:
        rows, states = (at.job.channel(what, at.layer, arrival.relation) for what in ("source", "state"))
        first = np.flatnonzero(arrival.at_once)
        wanted += [(rows, task) for each in (first, arrival.by_rows) for task in each.tolist()]
        wanted += [(states, task) for task in arrival.by_states.tolist()]
    by_pieces = any(arrival.by_pieces for arrival in arrivals)
    ahead = _PIECES_AHEAD if by_pieces else at.job.exchange.ahead(len(wanted))
    with fetching(at.inbox, wanted, ahead=ahead) as pieces:
        yield ExchangedRows(at, pieces)


@dataclass(frozen=True)
class ExchangedRows:
    """Takes the rows of layer `layer` from fetched pieces: its own, then relation by relation as `SourceRows` says."""

    at: TaskPlace
    pieces: Iterator[pa.Table]

    def reads(self, rows: IntArray) -> tuple[LayerReads, ...]:
        """Return what the layer reads."""
        return layer_reads(self.at.index, self.at.job, layer=self.at.layer, rows=rows)

    def own(self) -> OwnRows:
        """Return what was kept of the targets."""
        own, at = next(self.pieces), self.at
        numbers = carried_layers(at.model, at.layer, at.job)
        carried = {number: to_matrix(own[f"output_{number}"]) for number in numbers}
        if not at.job.keeps_terms:
            return OwnRows(None, to_matrix(own["h"]), carried)
        stays = kept_terms(at.model, at.layer - 1)
        # A layer without target terms keeps none: Arrow has no column of width zero.
        kept = stays.layout.unpack(to_matrix(own["target"])) if stays.layout.names else {}
        return OwnRows(stays.whole(self.at.plans[0].source.unpack(to_matrix(own["source"])), kept), None, carried)

    def at_once(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int = 0) -> TermArrays:
        """Return source terms [room + T + n]. Each piece is copied to its place while the next is fetched."""
        layout = self.at.plans[arrival.relation].source
        rows = layout.pack(own)
        # where the first piece's rows begin, behind the room and the targets' own rows
        begin = room + len(rows)
        packed = np.empty((begin + int(reads.num_asked[arrival.at_once].sum()), layout.width), np.float32)
        packed[room:begin] = rows
        for _ in range(int(arrival.at_once.sum())):
            for chunk in next(self.pieces)["row"].chunks:
                packed[begin : begin + len(chunk)] = from_column(chunk, self.at.job.rows)
                begin += len(chunk)
        assert begin == len(packed), "as many rows come as were asked for"
        return layout.unpack(packed)

    def whole(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int) -> Gathered:
        """Return all in-edges as one block, of copied terms."""
        return Gathered(self.at_once(arrival, reads, own, room=room), reads.whole, room=room)

    def joined(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> None:
        """Return None: parts come one after the other."""

    def parts(self, arrival: Arrival, reads: LayerReads, *, every: bool) -> Iterator[PartRows]:
        """Yield the rows of each partition of `by_rows`, as they were asked for."""
        layout = self.at.plans[arrival.relation].source
        for owner in arrival.by_rows.tolist():
            block, targets = reads.of_owner(owner, every=every)
            rows = from_column(next(self.pieces)["row"], self.at.job.rows)
            yield PartRows(layout.unpack(rows), block, targets)

    def states(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> Iterator[TermArrays]:
        """Yield the states of each partition of `by_states`."""
        for _ in arrival.by_states.tolist():
            state: FloatArray = to_matrix(next(self.pieces)["state"])
            yield self.at.plans[arrival.relation].state_layout.unpack(state)
