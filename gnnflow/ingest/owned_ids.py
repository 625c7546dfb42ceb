"""Tables of the ids of nodes, which tasks on one machine map: the task of an edge's destination then finds its source.

Edges are sent once instead of twice where the ids of sources are integers in tables of nodes, all tasks can open each
other's files, and the tables of ids take at most half of a worker's memory. Edges with attributes, and targets that are
divided by rank, visit their sources to be counted. So do all edges where bad rows are set aside: the files of such rows
must not depend on the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.mapreduce.mapped import Kept
from gnnflow.mapreduce.way import way_in
from gnnflow.native import core, find_owned, place_owned
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    import pyarrow as pa

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.tables import EdgeTable
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner

CHANNEL = "owned_ids"
_SLOTS = "slots"
_NODE_BYTES = 48  # of a node in a table, at most
_SHARES = 2
_MOST_PARTITIONS = 256  # each is an open file of every task


def are_mapped(job: IngestJob, runner: RoundRunner, *, num_rows: int) -> bool:
    """Return whether tasks map the ids of nodes. num_rows: of all node tables."""
    if job.maps_ids is not None:
        return job.maps_ids
    by_rank = job.targets is not None and job.targets.drawn is not None
    if core() is None or by_rank or job.config.on_bad_rows != "fail" or not all(map(_may_map, job.tables.edges)):
        return False
    if job.partitions > _MOST_PARTITIONS:
        return False
    if any(job.tables.nodes[table.source].ends for table in job.tables.edges):  # nobody counted them yet
        return False
    mapped_bytes = num_rows * _NODE_BYTES
    return mapped_bytes * _SHARES <= job.memory and way_in(runner, mapped_bytes=mapped_bytes, asked=None).mapped


def _may_map(table: EdgeTable) -> bool:
    """Return whether the edges of a table need no round at their sources, which counts their attributes."""
    return table.schema.src_type == "int64" and not table.schema.attributes


def kept_ids(ids: pa.Array) -> Kept:
    """Return the table of a part's ids, to be kept."""
    slots = place_owned(to_numpy(ids))
    assert slots is not None, "ids are mapped where there is a native core"
    return Kept(CHANNEL, {_SLOTS: slots})


class OwnedIds(NamedTuple):
    """The ids of a type's nodes: the table of each partition, and its first dense id [P]."""

    slots: list[IntArray]
    begins: IntArray

    @classmethod
    def of(cls, node_type: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> OwnedIds:
        """Map the tables of a type."""
        parts = range(node_type, job.partitions * job.graph.num_types, job.graph.num_types)
        slots = [inbox.map(CHANNEL, part, [_SLOTS])[_SLOTS] for part in parts]
        return cls(slots, np.array([book.start(part) for part in parts], np.int64))

    def find(self, wanted: IntArray, keys: KeyArray) -> IntArray:
        """Return the dense id of each wanted id [E], -1 where no node has it. keys [E]: of the wanted ids."""
        return find_owned(self.slots, self.begins, wanted, keys)
