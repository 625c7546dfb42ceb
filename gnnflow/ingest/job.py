"""The rounds of ingest in order, and what the plan learns between them: dense id offsets, classes, column scales."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.config.table_names import edge_tables_by_name, node_tables_by_name
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.row_counts import RowCounts
from gnnflow.ingest import edge_rounds, links, node_rounds
from gnnflow.ingest.label_counts import check_digits
from gnnflow.ingest.moments import scales_of
from gnnflow.ingest.records import Records, Rounded, count_splits, facts_of, node_row_counts, total
from gnnflow.ingest.statistics import CHANNEL, TYPE_MARK, column_names, merge_counts, statistics_of
from gnnflow.mapreduce.rounds import Round
from gnnflow.storage.columns import id_keys
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from gnnflow.config import GraphConfig
    from gnnflow.graph.arrays import IntArray
    from gnnflow.graph.scales import ColumnScale, Scales
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.ingest.tables import EdgeTable, NodeTable, Tables
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.storage.writing import FileEntry

_ALONE = "What is scored alone needs none: set graph.label to null."
_FEW_CLASSES = 1000


@dataclass(frozen=True)
class IngestJob:
    """What every ingest task knows: where to write, and the tables, whose chunks an error may have to name.

    scales: what columns are scaled by where that is not for the tables to say (`graph.scaled_as`).
    """

    artifact: str
    config: GraphConfig
    tables: Tables
    scales: Scales = field(default_factory=dict)

    @cached_property
    def graph(self) -> GraphSchema:
        """The graph's types and relations."""
        return self.config.schema

    @property
    def targets(self) -> EdgeTargets | None:
        """What is asked of the edge table where targets are edges; None where they are nodes."""
        return self.tables.targets

    @property
    def partitions(self) -> int:
        """How many partitions the store gets."""
        assert self.config.partitions is not None, "a resolved run has a number of partitions"
        return self.config.partitions

    @property
    def destinations(self) -> int:
        """How many tasks rows are sent to at most: those of the round that has most."""
        return self.partitions * max(self.graph.num_types, self.graph.num_relations)

    @property
    def table_names(self) -> tuple[list[str], list[str]]:
        """What the node tables and the edge tables are called in facts, in the order of `tables`."""
        return [*node_tables_by_name(self.config)], [*edge_tables_by_name(self.config)]

    @property
    def scaled_tables(self) -> list[tuple[str, str, int]]:
        """Name, place and number of columns of each table that has such to scale by `standard`."""
        found: list[tuple[str, str, int]] = []
        nodes, edges = self.table_names
        if self.config.normalize == "standard":
            found += [(name, t.uri, t.schema.feature_width) for name, t in zip(nodes, self.tables.nodes, strict=True)]
        if self.config.edge_normalize == "standard":
            found += [(name, t.uri, t.schema.attribute_width) for name, t in zip(edges, self.tables.edges, strict=True)]
        return [(name, uri, width) for name, uri, width in found if width]

    @cached_property
    def given_scales(self) -> Scales:
        """By what the tables are scaled that have columns to scale, where it is not for these to say."""
        return {name: self.scales[name] for name, _, _ in self.scaled_tables if name in self.scales}

    def node_table(self, task: int) -> tuple[int, NodeTable]:
        """Return the number of a type and its table, one of whose chunks a task reads."""
        return next((number, table) for number, table in enumerate(self.tables.nodes) if task in table.tasks)

    def edge_table(self, task: int) -> EdgeTable:
        """Return the edge table one of whose chunks a task reads."""
        return next(table for table in self.tables.edges if task in table.tasks)

    def first_column(self, node_type: int) -> int:
        """Return the number of a type's first counted column among those of all types."""
        return sum(len(column_names(table.schema)) for table in self.tables.nodes[:node_type])

    def home_of(self, ids: pa.Array) -> IntArray:
        """Return the partition that each id's node lives in."""
        return (id_keys(ids) % np.uint64(self.partitions)).astype(np.int64)

    def set_aside(self, name: str, rows: pa.Table) -> tuple[FileEntry, ...]:
        """Commit quarantined rows, if there are any."""
        return (commit_table(self.artifact, f"quarantine/{name}.parquet", rows),) if rows.num_rows else ()


@dataclass(frozen=True)
class IngestResult:
    """What ingest committed: its files in order, its rows in and out, and the facts later stages read.

    rounded: the columns of each table whose numbers lost digits.
    """

    files: tuple[FileEntry, ...]
    rows: RowCounts
    facts: GraphFacts
    rounded: dict[str, dict[str, Rounded]]


def run_rounds(
    job: IngestJob, runner: RoundRunner, *, check_rows: Callable[[Mapping[str, RowCounts]], None]
) -> IngestResult:
    """Run ingest. Raises TableError for the first bad row under `fail`, and for splits nothing can be trained on.

    check_rows: raises where too many rows of a table were set aside, which may be why a split has none.
    """
    parts, send = job.partitions * job.graph.num_types, job.destinations
    read = runner.run(
        Round("nodes_read", job.tables.nodes[-1].tasks.stop, send, partial(node_rounds.read_nodes, job=job))
    )
    sort = partial(node_rounds.sort_nodes, job=job)
    step = Round("nodes_sort", parts, send, sort, {"nodes": "nodes_read"}, frozenset({"nodes"}))
    nodes = runner.run(step)
    if job.targets is None:
        rows = node_row_counts(job, read, nodes)
        check_rows(rows)
        _check_splits(nodes, job, rows[job.table_names[0][job.config.target_type]])
        _check_classes(nodes, job)
    counts = {CHANNEL: "nodes_sort"}
    merge = Round("nodes_statistics", job.partitions, send, merge_counts, counts, frozenset(counts))
    counted = statistics_of(runner.run(merge), _column_names(job))
    # its parts are the nodes of each type in each partition
    book = PartitionBook(offsets_of(np.array([record.counts["rows_out"] for record in nodes], np.int64)))
    edge_read, edges, edge_scales = _edge_rounds(job, runner, book)
    scales = scales_of(job.table_names[0], nodes, given=job.given_scales)
    written = runner.run(
        Round(
            "nodes_write",
            parts,
            send,
            partial(node_rounds.write_nodes, job=job, book=book, scales=scales),
            {"node_rows": "nodes_sort", "in_degree": _builder(job), "out_degree": _builder(job)},
        )
    )
    steps = Records(job, read, nodes, edge_read, edges, written)
    check_rows(steps.tables)
    if job.targets is not None:
        _check_edge_splits(edges[-1], job, steps.rows, targets=job.targets)
        _check_classes(edges[-1], job)
    check_digits((*read, *edge_read), steps.targets, job)
    facts = facts_of(job, book, steps, columns=counted, scales=scales | edge_scales)
    return IngestResult(steps.files, steps.rows, facts, steps.rounded)


def _builder(job: IngestJob) -> str:
    return "edges_build" if job.config.reverse_edges or job.targets else "edges_dst"


def _edge_rounds(
    job: IngestJob, runner: RoundRunner, book: PartitionBook
) -> tuple[list[TaskRecord], list[list[TaskRecord]], dict[str, ColumnScale]]:
    """Return the records of the reading and of each round after it, and by what attributes are scaled."""
    tables, send = job.partitions * len(job.tables.edges), job.destinations
    read = runner.run(
        Round("edges_read", job.tables.edges[-1].tasks.stop, send, partial(edge_rounds.read_edges, job=job))
    )
    by_time = job.targets is not None and job.targets.by_time
    resolve = partial(links.sample_times if by_time else edge_rounds.resolve_sources, job=job, book=book)
    reads = {"edges_by_src": "edges_read", "node_rows": "nodes_sort"}
    sources = runner.run(Round("edges_src", tables, send, resolve, reads, frozenset({"edges_by_src"})))
    scales = scales_of(job.table_names[1], sources, given=job.given_scales)
    split = partial(edge_rounds.resolve_destinations, job=job, book=book, scales=scales)
    if job.targets is not None:
        bounds = _bounds(job, runner) if by_time else None
        split = partial(links.split_edges, job=job, book=book, scales=scales, bounds=bounds)
    reads = {"edges_by_dst": "edges_src", "node_rows": "nodes_sort"}
    steps = [sources, runner.run(Round("edges_dst", tables, send, split, reads, frozenset({"edges_by_dst"})))]
    relations = job.partitions * job.graph.num_relations
    if job.targets is not None:
        build = partial(links.build_links, job=job, book=book)
        reads = dict.fromkeys(("edges_both", "pairs", "held"), "edges_dst")
        steps.append(runner.run(Round("edges_build", relations, send, build, reads, frozenset(reads))))
    elif job.config.reverse_edges:
        build = partial(edge_rounds.build_both_ways, job=job, book=book)
        reads = {"edges_both": "edges_dst"}
        steps.append(runner.run(Round("edges_build", relations, send, build, reads, frozenset(reads))))
    return read, steps, scales


def _bounds(job: IngestJob, runner: RoundRunner) -> links.TimeBounds:
    """Return from which times on edges are in valid, and in test."""
    step = Round("times", 1, 1, partial(links.bound_times, job=job), {"times": "edges_src"}, frozenset({"times"}))
    (record,) = runner.run(step)
    valid, test = record.counts["bounds"]
    return valid, test


def _set_aside(rows: RowCounts) -> str:
    return f"; {rows.rows_quarantined:,} rows were set aside" if rows.rows_quarantined else ""


def _check_splits(records: Sequence[TaskRecord], job: IngestJob, rows: RowCounts) -> None:
    labelled = job.tables.labelled
    if not labelled.schema.has_split or not labelled.schema.has_labels:
        return
    counts, is_drawn = count_splits(records), labelled.schema.drawn is not None
    for name in ("train", "valid"):
        if not counts[name]:
            found = "no labelled node was drawn for" if is_drawn else f"column {job.config.split!r}: no row is in"
            raise TableError(
                f"{found} split {name!r} (counts: {counts}{_set_aside(rows)})",
                where=labelled.uri,
                fix=f"Training needs train and valid rows with labels{': see task.split' if is_drawn else ''}. "
                + _ALONE,
            )


def _check_edge_splits(records: Sequence[TaskRecord], job: IngestJob, rows: RowCounts, *, targets: EdgeTargets) -> None:
    if not targets.are_split:
        return
    counts = count_splits(records)
    alone = f" {_ALONE}" if targets.have_labels else ""
    for name in ("train", "valid"):
        if not counts[name]:
            raise TableError(
                f"no edge is in split {name!r} (counts: {counts}{_set_aside(rows)})",
                where=job.tables.labelled.uri,
                fix=f"Training needs train and valid edges{' with labels' if alone else ''}: see task.split.{alone}",
            )


def _column_names(job: IngestJob) -> list[str]:
    """Return the names of the counted columns of all types, each with its type's where there are several."""
    named = zip(job.graph.types, job.tables.nodes, strict=True)
    return [
        f"{kind}{TYPE_MARK}{column}" if job.graph.is_typed else column
        for kind, table in named
        for column in column_names(table.schema)
    ]


def _check_classes(records: Sequence[TaskRecord], job: IngestJob) -> None:
    """Raise TableError for a class number that no count of rows explains: a model has one output per class."""
    if not LABEL_KINDS[job.tables.labelled.schema.label_kind].is_class or job.config.classes_given is not None:
        return
    largest = max(record.counts.get("label_max", -1) for record in records)
    limit = max(_FEW_CLASSES, total(records, "labelled"))
    if largest >= limit:
        raise TableError(
            f"column {job.config.label_column!r}: the largest class is {largest:,}, "
            f"of {total(records, 'labelled'):,} labelled rows",
            where=job.tables.labelled.uri,
            fix=f"Number classes from 0 without gaps. Above {limit:,} set graph.num_classes.",
        )
