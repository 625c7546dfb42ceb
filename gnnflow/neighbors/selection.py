"""The last rounds of every selection except direct in-neighbours: they write relations, files and degrees.

The last round of a kind delivers each relation's instances at the owner of their roots (`deliver`): it writes a file of
them, and sends every leaf's owner the number of its instances. One more round (`finish`) writes the degrees.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, IntArray, degree_bins, is_first
from gnnflow.graph.facts import RelationFacts
from gnnflow.graph.schema import GraphSchema, Relation
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import DEGREE_COLUMNS, degree_column, degrees_file, edges_file
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.neighbors.graph import Instances
    from gnnflow.storage.graph_store import GraphStore
    from gnnflow.storage.writing import FileEntry

_ROW_GROUP = 1 << 20
_LEVEL_OF_LEAVES = 9  # of zstd: lists with equal beginnings take two thirds of the space at the default level
_COUNTED_AT_ONCE = 8  # nodes of the graph per leaf, up to which one array of all nodes counts leaves


@dataclass(frozen=True)
class Selection:
    """The job of a selection, known to every task. relations: those it writes, in the order of their names."""

    artifact: str
    store: GraphStore
    relations: tuple[Relation, ...]
    seed: int

    def of(self, relations: Iterable[Relation]) -> Self:
        """Return the job with these relations, in the order of their names."""
        return replace(self, relations=tuple(sorted(relations, key=str)))

    @cached_property
    def schema(self) -> GraphSchema:
        """The types of the store and the relations of the selection."""
        return GraphSchema.of(self.store.schema.types, self.relations)

    def number(self, relation: Relation) -> int:
        """Return a relation's number in the schema."""
        return self.schema.relations.index(relation)


@dataclass(frozen=True)
class SelectionResult:
    """The committed files, the number of instances of all relations, and the facts of each relation."""

    files: tuple[FileEntry, ...]
    num_edges: int
    relations: tuple[RelationFacts, ...]


class Delivered(NamedTuple):
    """The last round of a relation's selection: its name, and the records of its tasks."""

    round_name: str
    records: Sequence[TaskRecord]


class Occurrences(NamedTuple):
    """Distinct nodes, ascending, and how often each of them occurs."""

    nodes: IntArray
    counts: IntArray


def target_types(schema: GraphSchema) -> tuple[int, ...]:
    """Return the numbers of the types that some relation leads to, ascending."""
    return tuple(sorted(set(schema.target_types)))


def deliver(index: int, job: Selection, found: dict[int, Instances]) -> TaskOutput:
    """Write a partition's instances of some relations, by number, and send counts to all leaves' owners.

    The round of `finish` reads them.
    """
    emits: list[Emit] = []
    files, counts = [], {}
    for number, instances in sorted(found.items()):
        name = edges_file(index, job.schema, relation=number)
        level = None if instances.num_leaves == 1 else _LEVEL_OF_LEAVES
        commit = partial(commit_table, row_group_size=_ROW_GROUP, level=level)
        with ThreadPoolExecutor(1, thread_name_prefix="gnnflow-write") as writer:  # Parquet takes longer than counting
            written = writer.submit(commit, job.artifact, name, instances.table())
            emits += _send_degrees(index, job, number, instances)
        files.append(written.result())
        counts[str(number)] = {
            "instances": len(instances.roots),
            "leaves": instances.num_leaves,
            "attributes": instances.attribute_width,
            "weight": instances.weight is not None,
        }
    return TaskOutput(emits=tuple(emits), files=tuple(files), counts={"delivered": counts})


def finish(job: Selection, runner: RoundRunner, delivered: Mapping[int, Delivered]) -> SelectionResult:
    """Write the degrees, and return the result. delivered: by the number of the relation."""
    parts = job.store.num_partitions
    reads = {f"{what}_{number}": each.round_name for number, each in delivered.items() for what in ("roots", "leaves")}
    last = runner.run(Round("degrees", parts, parts, partial(write_degrees, job=job), reads, frozenset(reads)))
    facts = tuple(_facts(job, number, delivered[number].records, last) for number in sorted(delivered))
    # a round delivers files of one relation or of several; their names put them in order
    written = {entry.name: entry for each in delivered.values() for record in each.records for entry in record.files}
    files = tuple(written[name] for name in sorted(written)) + tuple(entry for record in last for entry in record.files)
    return SelectionResult(files, sum(each.num_edges for each in facts), facts)


def write_degrees(index: int, inbox: Inbox, *, job: Selection) -> TaskOutput:
    """Write the degrees of a partition's nodes in the selection's relations, a file per type."""
    book, schema = job.store.book, job.schema
    size = book.size(index)
    # degrees of all nodes of the partition [N, R]
    degrees: dict[str, Any] = {name: np.zeros((size, schema.num_relations), np.int64) for name in DEGREE_COLUMNS}
    degrees["in_weight"] = degrees["in_weight"].astype(np.float32)
    for number in range(schema.num_relations):
        told = inbox.read(f"roots_{number}", tasks=[index])
        roots = to_numpy(told["row"])
        degrees["in_degree"][roots, number] = to_numpy(told["in_degree"])
        degrees["in_weight"][roots, number] = to_numpy(told["in_weight"])
        for sent in inbox.pieces(f"leaves_{number}"):
            # a piece has each node once
            degrees["out_degree"][to_numpy(sent["node"]) - book.start(index), number] += to_numpy(sent["count"])
    files = []
    for node_type in range(schema.num_types):
        rows = book.rows(index, node_type)
        of_type = {name: held[rows] for name, held in degrees.items()}
        columns = {name: degree_column(held, schema) for name, held in of_type.items()}
        files.append(commit_table(job.artifact, degrees_file(index, schema, node_type=node_type), pa.table(columns)))
    # nodes by in-degree in each relation, in bins of powers of two
    bins = {}
    for number, target in enumerate(schema.target_types):
        in_degree = degrees["in_degree"][book.rows(index, target), number]
        bins[str(number)] = [degree_bins(in_degree), int(in_degree.max(initial=0))]
    return TaskOutput(files=tuple(files), counts={"bins": bins})


def _send_degrees(index: int, job: Selection, number: int, instances: Instances) -> tuple[Emit, Emit]:
    """Send the degrees of roots to their partition, and the count of each leaf to its owner."""
    book = job.store.book
    roots, starts, in_degree = _runs(instances.roots)
    # sum of the weights of each root's instances [n]
    weight: Array = in_degree
    if instances.weight is not None and len(starts):
        weight = np.add.reduceat(instances.weight, starts, dtype=np.float64)
    told = pa.table({"row": roots - book.start(index), "in_degree": in_degree, "in_weight": weight.astype(np.float32)})
    leaves, counts = occurrences(instances.leaves.ravel(), num_nodes=book.num_nodes)
    return (
        Emit(f"roots_{number}", told, np.full(len(roots), index)),
        Emit(f"leaves_{number}", pa.table({"node": leaves, "count": counts}), book.owner(leaves)),
    )


class _Runs(NamedTuple):
    """The distinct values of an ascending array, and the first position and the number of each."""

    values: IntArray
    starts: IntArray
    lengths: IntArray


def _runs(ordered: IntArray) -> _Runs:
    starts = np.flatnonzero(is_first(ordered))
    return _Runs(ordered[starts], starts, np.diff(starts, append=len(ordered)))


def occurrences(nodes: IntArray, *, num_nodes: int) -> Occurrences:
    """Return the distinct nodes and the count of each."""
    if num_nodes <= _COUNTED_AT_ONCE * len(nodes):
        counts = np.bincount(nodes, minlength=num_nodes)
        found = np.flatnonzero(counts)
        return Occurrences(found, counts[found])
    runs = _runs(np.sort(nodes))
    return Occurrences(runs.values, runs.lengths)


def _facts(job: Selection, number: int, delivered: Sequence[TaskRecord], last: Sequence[TaskRecord]) -> RelationFacts:
    found = [record.counts["delivered"][str(number)] for record in delivered]
    bins = [record.counts["bins"][str(number)] for record in last]
    return RelationFacts(
        name=str(job.schema.relations[number]),
        num_edges=sum(each["instances"] for each in found),
        attribute_width=found[0]["attributes"],
        has_weight=found[0]["weight"],
        degree_bins=tuple(map(sum, zip_longest(*(each for each, _ in bins), fillvalue=0))),
        max_in_degree=max(most for _, most in bins),
        leaves=found[0]["leaves"],
    )
