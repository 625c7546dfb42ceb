"""The rounds of ingest in order, and what the plan learns between them: dense id offsets, classes, column scales."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import ColumnCounts, FeatureFacts, GraphFacts, RowCounts
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import links, rounds
from gnnflow.ingest.moments import Moments, Scale, scale_of
from gnnflow.ingest.statistics import CHANNEL, merge_counts, statistics_of
from gnnflow.mapreduce.rounds import Round
from gnnflow.storage.columns import id_keys
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.ingest.schema import SourceSchema
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.storage.filesystem import FileEntry
    from gnnflow.storage.user_tables import Chunk

_FEW_CLASSES = 1000


@dataclass(frozen=True)
class IngestJob:
    """What every ingest task knows: where to write, how to read, and the chunks an error may have to name."""

    artifact: str
    config: GraphConfig
    schema: SourceSchema
    nodes: tuple[Chunk, ...]
    edges: tuple[Chunk, ...]

    @property
    def targets(self) -> EdgeTargets | None:
        """What is asked of the edge table where targets are edges; None where they are nodes."""
        return self.schema.targets

    @property
    def partitions(self) -> int:
        """How many partitions the store gets."""
        assert self.config.partitions is not None, "a resolved run has a number of partitions"
        return self.config.partitions

    def home_of(self, ids: pa.Array) -> IntArray:
        """Return the partition that each id's node lives in."""
        return (id_keys(ids) % np.uint64(self.partitions)).astype(np.int64)

    def set_aside(self, name: str, rows: pa.Table) -> tuple[FileEntry, ...]:
        """Commit quarantined rows, if there are any."""
        return (commit_table(self.artifact, f"quarantine/{name}.parquet", rows),) if rows.num_rows else ()


@dataclass(frozen=True)
class IngestResult:
    """What ingest committed: its files in order, its rows in and out, and the facts later stages read."""

    files: tuple[FileEntry, ...]
    rows: RowCounts
    facts: GraphFacts


def run_rounds(job: IngestJob, runner: RoundRunner) -> IngestResult:
    """Run ingest. Raises TableError for the first bad row under `fail`, and for splits nothing can be trained on."""
    partitions = job.partitions
    read = runner.run(Round("nodes_read", len(job.nodes), partitions, partial(rounds.read_nodes, job=job)))
    sort = partial(rounds.sort_nodes, job=job)
    step = Round("nodes_sort", partitions, partitions, sort, {"nodes": "nodes_read"}, frozenset({"nodes"}))
    nodes = runner.run(step)
    if job.targets is None:
        _check_splits(nodes, job)
        _check_classes(nodes, job)
    counts = {CHANNEL: "nodes_sort"}
    merge = Round("nodes_statistics", partitions, partitions, merge_counts, counts, frozenset(counts))
    counted = statistics_of(runner.run(merge), job.schema)
    book = PartitionBook(offsets_of(np.array([record.counts["rows_out"] for record in nodes], np.int64)))
    edge_read, edges = _edge_rounds(job, runner, book)
    written = runner.run(
        Round(
            "nodes_write",
            partitions,
            partitions,
            partial(rounds.write_nodes, job=job, book=book, scale=_scale(nodes, job)),
            {"node_rows": "nodes_sort", "in_degree": _builder(job), "out_degree": _builder(job)},
        )
    )
    steps = _Records(read, nodes, edge_read, edges, written)
    if job.targets is not None:
        _check_edge_splits(edges[-1], job)
        _check_classes(edges[-1], job)
    return IngestResult(steps.files, steps.rows, _facts(job, book, steps, columns=counted))


def _builder(job: IngestJob) -> str:
    return "edges_build" if job.config.reverse_edges or job.targets else "edges_dst"


def _edge_rounds(
    job: IngestJob, runner: RoundRunner, book: PartitionBook
) -> tuple[list[TaskRecord], list[list[TaskRecord]]]:
    partitions = job.partitions
    read = runner.run(Round("edges_read", len(job.edges), partitions, partial(rounds.read_edges, job=job)))
    by_time = job.targets is not None and job.targets.task.split.kind == "time"
    resolve = partial(links.sample_times if by_time else rounds.resolve_sources, job=job, book=book)
    reads = {"edges_by_src": "edges_read", "node_rows": "nodes_sort"}
    sources = runner.run(Round("edges_src", partitions, partitions, resolve, reads, frozenset({"edges_by_src"})))
    split = partial(rounds.resolve_destinations, job=job, book=book)
    if job.targets is not None:
        split = partial(links.split_edges, job=job, book=book, bounds=_bounds(job, runner) if by_time else None)
    reads = {"edges_by_dst": "edges_src", "node_rows": "nodes_sort"}
    steps = [sources, runner.run(Round("edges_dst", partitions, partitions, split, reads, frozenset({"edges_by_dst"})))]
    if job.targets is not None:
        build = partial(links.build_links, job=job, book=book)
        reads = dict.fromkeys(("edges_both", "pairs", "held"), "edges_dst")
        steps.append(runner.run(Round("edges_build", partitions, partitions, build, reads, frozenset(reads))))
    elif job.config.reverse_edges:
        build = partial(rounds.build_both_ways, job=job, book=book)
        reads = {"edges_both": "edges_dst"}
        steps.append(runner.run(Round("edges_build", partitions, partitions, build, reads, frozenset(reads))))
    return read, steps


def _bounds(job: IngestJob, runner: RoundRunner) -> links.TimeBounds:
    """Return from which times on edges are in valid, and in test."""
    step = Round("times", 1, 1, partial(links.bound_times, job=job), {"times": "edges_src"}, frozenset({"times"}))
    (record,) = runner.run(step)
    valid, test = record.counts["bounds"]
    return valid, test


def _check_splits(records: Sequence[TaskRecord], job: IngestJob) -> None:
    if not job.schema.has_split or not job.schema.has_labels:
        return
    counts = _splits(records)
    for name in ("train", "valid"):
        if not counts[name]:
            raise TableError(
                f"column {job.config.split!r}: no row is in split {name!r} (counts: {counts})",
                where=str(job.config.nodes),
                fix="Training needs train and valid rows with labels.",
            )


def _check_edge_splits(records: Sequence[TaskRecord], job: IngestJob) -> None:
    counts = _splits(records)
    for name in ("train", "valid"):
        if not counts[name]:
            raise TableError(
                f"no edge is in split {name!r} (counts: {counts})",
                where=str(job.config.edges),
                fix="Training needs train and valid edges: see task.split.",
            )


def _splits(records: Sequence[TaskRecord]) -> dict[str, int]:
    total = np.sum([record.counts["splits"] for record in records], axis=0)
    return dict(zip(("none", *SPLITS), (int(count) for count in total), strict=True))


def _scale(records: Sequence[TaskRecord], job: IngestJob) -> Scale | None:
    if job.config.normalize != "standard" or not any(record.counts["rows_out"] for record in records):
        return None
    return scale_of([Moments(**record.counts["moments"]) for record in records])


def _check_classes(records: Sequence[TaskRecord], job: IngestJob) -> None:
    """Raise TableError for a class number that no count of rows explains: a model has one output per class."""
    if not LABEL_KINDS[job.schema.label_kind].is_class or job.config.num_classes is not None:
        return
    largest = max(record.counts["label_max"] for record in records)
    limit = max(_FEW_CLASSES, _total(records, "labelled"))
    if largest >= limit:
        raise TableError(
            f"column {job.config.label!r}: the largest class is {largest:,}, "
            f"of {_total(records, 'labelled'):,} labelled rows",
            where=str(job.config.nodes if job.targets is None else job.config.edges),
            fix=f"Number classes from 0 without gaps. Above {limit:,} set graph.num_classes.",
        )


def _num_classes(records: Sequence[TaskRecord], job: IngestJob) -> int:
    if not LABEL_KINDS[job.schema.label_kind].is_class:
        return job.schema.label_width
    largest = max(record.counts["label_max"] for record in records)
    return job.config.num_classes or max(largest + 1, 2)


@dataclass(frozen=True)
class _Records:
    """The records of every round, in the order in which the rounds ran. edges: one list per round after the reading."""

    node_read: Sequence[TaskRecord]
    nodes: Sequence[TaskRecord]
    edge_read: Sequence[TaskRecord]
    edges: Sequence[Sequence[TaskRecord]]
    written: Sequence[TaskRecord]

    @property
    def node_rows(self) -> RowCounts:
        """The node table's rows."""
        quarantined = _total([*self.node_read, *self.nodes], "rows_quarantined")
        return _conserved("node", _total(self.node_read, "rows_in"), _total(self.nodes, "rows_out"), quarantined)

    @property
    def edge_rows(self) -> RowCounts:
        """The edge table's rows; edges added in reverse are not counted."""
        steps = [*self.edge_read, *(record for step in self.edges for record in step)]
        rows_out = _total(self.edges[1], "rows_out")  # where both ends are known
        return _conserved("edge", _total(self.edge_read, "rows_in"), rows_out, _total(steps, "rows_quarantined"))

    def targets(self, job: IngestJob) -> Sequence[TaskRecord]:
        """Return the records that count targets, their splits and labels."""
        return self.nodes if job.targets is None else self.edges[-1]

    @property
    def rows(self) -> RowCounts:
        """The rows of both tables."""
        nodes, edges = self.node_rows, self.edge_rows
        return RowCounts(
            nodes.rows_in + edges.rows_in,
            nodes.rows_out + edges.rows_out,
            nodes.rows_quarantined + edges.rows_quarantined,
        )

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file the rounds committed."""
        rounds = (self.node_read, self.nodes, self.edge_read, *self.edges, self.written)
        return tuple(entry for step in rounds for record in step for entry in record.files)


def _facts(job: IngestJob, book: PartitionBook, steps: _Records, *, columns: tuple[ColumnCounts, ...]) -> GraphFacts:
    schema = job.schema
    bins = zip_longest(*(record.counts["degree_bins"] for record in steps.written), fillvalue=0)
    has_value = schema.sparse_has_value or (schema.sparse is not None and job.config.normalize == "row")
    return GraphFacts(
        num_nodes=book.num_nodes,
        num_edges=_total(steps.edges[-1], "edges"),
        offsets=tuple(book.offsets.tolist()),
        id_type=schema.id_type,
        features=FeatureFacts("sparse" if schema.sparse else "dense", schema.feature_width, has_value),
        attribute_width=schema.attribute_width,
        has_weight=schema.has_weight,
        label_kind=schema.label_kind,
        num_classes=_num_classes(steps.targets(job), job),
        class_names=schema.class_names,
        labelled=_total(steps.targets(job), "labelled"),
        splits=_splits(steps.targets(job)),
        degree_bins=tuple(sum(column) for column in bins),
        max_in_degree=max(record.counts["max_in_degree"] for record in steps.written),
        tables={"nodes": steps.node_rows, "edges": steps.edge_rows},
        columns=columns,
        copies_left_out=_total(steps.edges[-1], "copies_left_out"),
        targets="nodes" if job.targets is None else "edges",
        has_time=schema.has_time,
    )


def _total(records: Sequence[TaskRecord], key: str) -> int:
    return sum(int(record.counts.get(key, 0)) for record in records)


def _conserved(what: str, rows_in: int, rows_out: int, quarantined: int) -> RowCounts:
    assert rows_in == rows_out + quarantined, f"{what} rows were lost: {rows_in} != {rows_out} + {quarantined}"
    return RowCounts(rows_in, rows_out, quarantined)
