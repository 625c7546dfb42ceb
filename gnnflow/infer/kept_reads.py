"""In-edges that a need round reads and numbers once, and keeps for the slices of its partition to map.

Slices map it as it lies: the in-edges of each relation with sources as dense ids, and which rows they ask of which
owner. Owners map the latter too, to know which rows are read. Dense ids have 4 bytes where the graph allows it. Names
of arrays begin with their relation.

Shapes: T targets, E edges, S sources asked for, P partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gnnflow.graph.edges import InEdges
from gnnflow.infer.reads import Grouped, LayerReads, PieceEdges
from gnnflow.mapreduce.mapped import Kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Inbox

_COLUMNS = ("offsets", "sources", "weight", "attributes", "next_arrival", "time", "leaves")
_GROUPED = ("positions", "bounds", "first")


class KeptReads(NamedTuple):
    """The arrays that a need round keeps of a partition. edges: its in-edges; asked: the rows it asks of owners."""

    edges: Kept
    asked: Kept


def kept_reads(reads: Sequence[LayerReads], need_layer: int, *, by_pieces: Sequence[bool]) -> KeptReads:
    """Return what a need round keeps of a partition's reads. by_pieces: whether a layer reads a relation in pieces."""
    edges: dict[str, Array] = {}
    asked: dict[str, Array] = {}
    for number, (of, cut) in enumerate(zip(reads, by_pieces, strict=True)):
        found = {name: getattr(of.edges, name) for name in _COLUMNS}
        found |= {"rows": of.rows, "sources": of.edges.sources.astype(of.id_type)}
        if cut and of.job.joins:
            found |= {f"pieces_{name}": array for name, array in of.in_pieces._asdict().items()}
        if of.is_grouped:
            found |= {f"by_owner_{name}": getattr(of.by_owner, name) for name in _GROUPED}
        edges |= {f"{number}.{name}": array for name, array in found.items() if array is not None}
        asked |= {f"{number}.asked": of.asked.astype(of.id_type), f"{number}.begin": of.offsets}
    return KeptReads(Kept(f"edges_{need_layer}", edges), Kept(f"asked_{need_layer}", asked))


def read_kept(index: int, inbox: Inbox, job: InferJob, *, layer: int) -> tuple[LayerReads, ...]:
    """Return a layer's reads in each relation, as its need round kept them."""
    need = job.need_layer(layer)
    edges, asked = inbox.map(f"edges_{need}", index), inbox.map(f"asked_{need}", index)
    found = []
    for number in range(job.neighbors.store.schema.num_relations):
        own = {name: edges.get(f"{number}.{name}") for name in _COLUMNS}
        pieces = [edges.get(f"{number}.pieces_{name}") for name in PieceEdges._fields]
        grouped = [edges.get(f"{number}.by_owner_{name}") for name in _GROUPED]
        found.append(
            LayerReads(
                index,
                job,
                number,
                edges[f"{number}.rows"],
                InEdges(**own),  # type: ignore[arg-type]
                asked[f"{number}.asked"],
                asked[f"{number}.begin"],
                None if grouped[0] is None else Grouped(*grouped),  # type: ignore[arg-type]
                None if pieces[1] is None else PieceEdges(*pieces),  # type: ignore[arg-type]
            )
        )
    return tuple(found)


def asked_of(index: int, inbox: Inbox, job: InferJob, *, layer: int, relation: int) -> list[IntArray]:
    """Return the local rows that each partition asks of this one for a layer in a relation, ascending."""
    start, channel, found = job.neighbors.store.book.start(index), f"asked_{job.need_layer(layer)}", []
    for task in range(job.neighbors.store.num_partitions):
        arrays = inbox.map(channel, task, (f"{relation}.asked", f"{relation}.begin"))
        begin = arrays[f"{relation}.begin"]
        found.append(arrays[f"{relation}.asked"][begin[index] : begin[index + 1]] - start)
    return found
