"""The order of ingest's rounds, and the values computed between them: dense id offsets, classes, column scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.facts import GraphFacts, RowCounts
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import edge_rounds, links, node_rounds
from gnnflow.ingest.labels import check_digits, split_class_counts_of
from gnnflow.ingest.moments import scales_of
from gnnflow.ingest.narrowing import forms_of
from gnnflow.ingest.owned_ids import CHANNEL as OWNED_IDS
from gnnflow.ingest.owned_ids import are_mapped
from gnnflow.ingest.records import Records, Rounded, count_splits, facts_of, node_row_counts, total
from gnnflow.ingest.splits import split_times
from gnnflow.ingest.statistics import CHANNEL, column_names, marked, merge_counts, statistics_of
from gnnflow.mapreduce.rounds import Round

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.scales import ColumnScale
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.tables import EdgeTable, NodeTable
    from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.sampling.pairs import SplitBounds
    from gnnflow.storage.writing import FileEntry

_ALONE = "A published model scores them as they are: gnnflow score."
_FEW_TIMES = "Rows of one time are in one split, and there are too few times. Set task.split to {kind: random}."
_FEW_CLASSES = 1000


@dataclass(frozen=True)
class IngestResult:
    """The committed files in order, the rows in and out, and the facts that later stages read.

    rounded: the columns of each table whose numbers lost digits. left_out: rows of edge tables that are no edges of the
    relation. held_out: the targets of each class in valid and in test, where there are not too many classes.
    """

    files: tuple[FileEntry, ...]
    rows: RowCounts
    facts: GraphFacts
    rounded: dict[str, dict[str, Rounded]]
    left_out: dict[str, int]
    held_out: dict[str, tuple[int, ...]]


def run_rounds(
    job: IngestJob, runner: RoundRunner, *, check_rows: Callable[[Mapping[str, RowCounts]], None]
) -> IngestResult:
    """Run ingest. Raises TableError for the first bad row under `fail`, and where training lacks targets.

    check_rows: raises where too many rows of a table were set aside, which may be why a split is empty.
    """
    parts, send = job.partitions * job.graph.num_types, job.destinations
    read = runner.run(
        Round("nodes_read", job.tables.nodes[-1].tasks.stop, send, partial(node_rounds.read_nodes, job=job))
    )
    job = replace(job, maps_ids=are_mapped(job, runner, num_rows=total(read, "rows_in")))
    sort = partial(node_rounds.sort_nodes, job=job)
    of_nodes = {"nodes": "nodes_read", "features": "nodes_read"}
    nodes = runner.run(Round("nodes_sort", parts, send, sort, of_nodes, keeps=bool(job.maps_ids)))
    if job.targets is None:
        rows = node_row_counts(job, read, nodes)
        check_rows(rows)
        _check_splits(nodes, job, rows[job.table_names.nodes[job.config.target_type]])
        _check_classes(nodes, job)
    # a part is the nodes of one type in one partition
    book = PartitionBook(offsets_of(np.array([record.counts["rows_out"] for record in nodes], np.int64)))
    edges = _edge_rounds(job, runner, book)
    held = [table.schema.parts for table in job.tables.nodes]
    scales = scales_of(job.table_names.nodes, nodes, parts=held, given=job.given_scales)
    forms = forms_of(job, nodes, scales)
    write = partial(node_rounds.write_nodes, job=job, book=book, scales=scales, forms=forms.rows)
    degrees = dict.fromkeys(("in_degree", "out_degree"), _builder(job))
    reads = {"nodes": "nodes_read", "features": "nodes_read", "node_order": "nodes_sort", **degrees}
    written = runner.run(Round("nodes_write", parts, send, write, reads))
    counts = {CHANNEL: "nodes_write"}
    merge = Round("nodes_statistics", job.partitions, send, merge_counts, counts, frozenset(counts))
    counted = statistics_of(runner.run(merge), _column_names(job))
    steps = Records(job, read, nodes, edges.read, edges.later, written)
    check_rows(steps.tables)
    if job.targets is not None:
        _check_edge_splits(edges.later[-1], job, steps.rows, targets=job.targets)
        _check_classes(edges.later[-1], job)
    check_digits((*read, *edges.read), steps.targets, job)
    times = split_times(job.tables.labelled.schema, edges.bounds)
    facts = facts_of(job, book, steps, columns=counted, scales=scales | edges.scales, split_times=times, forms=forms)
    left_out = {
        name: count
        for name, table in zip(job.table_names.edges, job.tables.edges, strict=True)
        if (count := total(edges.read[table.tasks.start : table.tasks.stop], "rows_left_out"))
    }
    held_out = {name: split_class_counts_of(name, steps.targets, job) for name in SPLITS[1:]}
    return IngestResult(steps.files, steps.rows, facts, steps.rounded, left_out, held_out)


def _builder(job: IngestJob) -> str:
    return "edges_build" if job.config.reverse_edges or job.targets else "edges_dst"


class _EdgeRounds(NamedTuple):
    """The records of the reading and of each later round, the scales of attributes, and the bounds of splits."""

    read: list[TaskRecord]
    later: list[list[TaskRecord]]
    scales: dict[str, ColumnScale]
    bounds: SplitBounds


def _edge_rounds(job: IngestJob, runner: RoundRunner, book: PartitionBook) -> _EdgeRounds:
    """Run the rounds of edges."""
    tables, send = job.partitions * len(job.tables.edges), job.destinations
    read = runner.run(
        Round("edges_read", job.tables.edges[-1].tasks.stop, send, partial(edge_rounds.read_edges, job=job))
    )
    by_rank = job.targets is not None and job.targets.drawn is not None
    sources: list[TaskRecord] = []
    reads = {"edges_by_dst": "edges_read", "node_ids": "nodes_sort", OWNED_IDS: "nodes_sort"}
    if not job.maps_ids:
        resolve = partial(links.send_ranks if by_rank else edge_rounds.resolve_sources, job=job, book=book)
        by_source = {"edges_by_src": "edges_read", "node_ids": "nodes_sort"}
        sources = runner.run(Round("edges_src", tables, send, resolve, by_source, frozenset({"edges_by_src"})))
        reads = {"edges_by_dst": "edges_src", "node_ids": "nodes_sort"}
    held = [table.schema.parts for table in job.tables.edges]
    scales = scales_of(job.table_names.edges, sources, parts=held, given=job.given_scales)
    split = partial(edge_rounds.resolve_destinations, job=job, book=book, scales=scales)
    bounds = links.find_bounds(sources, job, runner) if by_rank else ()
    if job.targets is not None:
        split = partial(links.split_edges, job=job, book=book, scales=scales, bounds=bounds)
    steps = [sources, runner.run(Round("edges_dst", tables, send, split, reads, frozenset(reads)))]
    relations = job.partitions * job.graph.num_relations
    if job.targets is not None:
        build = partial(links.build_links, job=job, book=book)
        reads = dict.fromkeys(("edges_both", "pairs", "held"), "edges_dst")
        steps.append(runner.run(Round("edges_build", relations, send, build, reads, frozenset(reads))))
    elif job.config.reverse_edges:
        build = partial(edge_rounds.build_with_reverses, job=job, book=book)
        reads = {"edges_both": "edges_dst"}
        steps.append(runner.run(Round("edges_build", relations, send, build, reads, frozenset(reads))))
    return _EdgeRounds(read, steps, scales, bounds)


def _set_aside(rows: RowCounts) -> str:
    return f"; {rows.rows_quarantined:,} rows were set aside" if rows.rows_quarantined else ""


def _check_splits(records: Sequence[TaskRecord], job: IngestJob, rows: RowCounts) -> None:
    labelled = job.tables.labelled
    if not job.trains or not labelled.schema.has_split or not labelled.schema.has_labels:
        return
    column, drawn = labelled.config.split_column, labelled.schema.drawn
    refuse_empty_splits(count_splits(records), column, drawn, where=labelled.uri, aside=_set_aside(rows))


def refuse_empty_splits(
    counts: Mapping[str, int], column: str, drawn: DrawnSplit | None, *, where: str, aside: str = ""
) -> None:
    """Raise TableError where no labelled node is in train or valid, for a training alone.

    column: of the splits where none are drawn. aside: half a sentence about lost rows.
    """
    for name in ("train", "valid"):
        if not counts[name]:
            found = f"column {column!r}: no row is in" if drawn is None else "no labelled node was drawn for"
            raise TableError(
                f"{found} split {name!r} ({_listed(counts)}{aside})",
                where=where,
                fix=_FEW_TIMES
                if drawn is not None and drawn.kind == "time"
                else f"Training needs train and valid rows with labels{': see task.split' if drawn else ''}. {_ALONE}",
            )


def _check_edge_splits(records: Sequence[TaskRecord], job: IngestJob, rows: RowCounts, *, targets: EdgeTargets) -> None:
    if job.trains and targets.are_split:
        where = job.tables.labelled.uri
        refuse_empty_edge_splits(count_splits(records), targets, where=where, aside=_set_aside(rows))


def refuse_empty_edge_splits(counts: Mapping[str, int], targets: EdgeTargets, *, where: str, aside: str = "") -> None:
    """Raise TableError where no target edge is in train or valid, for a training alone. aside: as for nodes."""
    alone = f" {_ALONE}" if targets.have_labels else ""
    for name in ("train", "valid"):
        if not counts[name]:
            raise TableError(
                f"no edge is in split {name!r} ({_listed(counts)}{aside})",
                where=where,
                fix=_FEW_TIMES
                if targets.by_time
                else f"Training needs train and valid edges{' with labels' if alone else ''}: see task.split.{alone}",
            )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _column_names(job: IngestJob) -> list[str]:
    """Return the names of the counted columns of all types."""
    return [
        marked(job.graph.name_of(kind), column)
        for kind, table in zip(job.graph.types, job.tables.nodes, strict=True)
        for column in column_names(table.schema)
    ]


def _check_classes(records: Sequence[TaskRecord], job: IngestJob) -> None:
    largest = max(record.counts.get("label_max", -1) for record in records)
    refuse_large_classes(job.tables.labelled, job.config, largest=largest, labelled=total(records, "labelled"))


def refuse_large_classes(table: NodeTable | EdgeTable, config: GraphConfig, *, largest: int, labelled: int) -> None:
    """Raise TableError for a class number above any sensible count of classes: a model has an output per class."""
    if not LABEL_KINDS[table.schema.label_kind].is_class or config.classes_given is not None:
        return
    limit = max(_FEW_CLASSES, labelled)
    if largest >= limit:
        raise TableError(
            f"column {table.config.label_column!r}: the largest class is {largest:,}, of {labelled:,} labelled rows",
            where=table.uri,
            fix="Number classes from 0 without gaps, or set graph.classes: distinct, which numbers the labels there "
            f"are. Above {limit:,} classes set graph.num_classes.",
        )
