"""The rounds of ingest in order, and what the plan learns between them: dense id offsets, classes, column scales."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.block import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import rounds
from gnnflow.ingest.statistics import CHANNEL, merge_counts, statistics_of
from gnnflow.mapreduce.rounds import Round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.ingest.rounds import IngestTask
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.storage.filesystem import FileEntry


@dataclass(frozen=True)
class IngestResult:
    """What ingest committed: its files in order, conservation counts, and the facts later stages read."""

    files: tuple[FileEntry, ...]
    rows_in: int
    rows_out: int
    rows_quarantined: int
    details: dict[str, Any]


def run_rounds(task: IngestTask, runner: RoundRunner) -> IngestResult:
    """Run ingest. Raises TableError for the first bad row under `fail`, and for splits nothing can be trained on."""
    partitions = task.config.partitions
    read = runner.run(Round("nodes_read", len(task.nodes), partitions, partial(rounds.read_nodes, task=task)))
    step = Round("nodes_sort", partitions, partitions, partial(rounds.sort_nodes, task=task), {"nodes": "nodes_read"})
    nodes = runner.run(step)
    _check_splits(nodes, task)
    merge = Round("nodes_statistics", partitions, partitions, merge_counts, {CHANNEL: "nodes_sort"})
    counted = statistics_of(runner.run(merge), task.schema)
    book = PartitionBook(offsets_of(np.array([record.counts["rows_out"] for record in nodes], np.int64)))
    edge_read, edges = _edge_rounds(task, runner, book)
    written = runner.run(
        Round(
            "nodes_write",
            partitions,
            partitions,
            partial(rounds.write_nodes, task=task, book=book, scale=_scale(nodes, task)),
            {"node_rows": "nodes_sort", "in_degree": _builder(task), "out_degree": _builder(task)},
        )
    )
    result = _result(task, book, node_steps=(read, nodes), edge_steps=(edge_read, *edges), written=written)
    return replace(result, details={**result.details, "statistics": counted})


def _builder(task: IngestTask) -> str:
    return "edges_build" if task.config.reverse_edges else "edges_dst"


def _edge_rounds(
    task: IngestTask, runner: RoundRunner, book: PartitionBook
) -> tuple[list[TaskRecord], list[list[TaskRecord]]]:
    partitions = task.config.partitions
    read = runner.run(Round("edges_read", len(task.edges), partitions, partial(rounds.read_edges, task=task)))
    steps = [
        Round(
            "edges_src",
            partitions,
            partitions,
            partial(rounds.resolve_sources, task=task, book=book),
            {"edges_by_src": "edges_read", "node_rows": "nodes_sort"},
        ),
        Round(
            "edges_dst",
            partitions,
            partitions,
            partial(rounds.resolve_destinations, task=task, book=book),
            {"edges_by_dst": "edges_src", "node_rows": "nodes_sort"},
        ),
    ]
    if task.config.reverse_edges:
        build = partial(rounds.build_both_ways, task=task, book=book)
        steps.append(Round("edges_build", partitions, partitions, build, {"edges_both": "edges_dst"}))
    return read, [runner.run(step) for step in steps]


def _check_splits(records: Sequence[TaskRecord], task: IngestTask) -> None:
    if not task.schema.has_split or task.schema.task == "none":
        return
    counts = _splits(records)
    for name in ("train", "valid"):
        if not counts[name]:
            raise TableError(
                f"column {task.config.split!r}: no row is in split {name!r} (counts: {counts})",
                where=str(task.config.nodes),
                fix="Training needs train and valid rows with labels.",
            )


def _splits(records: Sequence[TaskRecord]) -> dict[str, int]:
    total = np.sum([record.counts["splits"] for record in records], axis=0)
    return dict(zip(("none", *SPLITS), (int(count) for count in total), strict=True))


def _scale(records: Sequence[TaskRecord], task: IngestTask) -> tuple[list[float], list[float]] | None:
    if task.config.normalize != "standard":
        return None
    rows = sum(record.counts["rows_out"] for record in records)
    mean = np.sum([record.counts["sum"] for record in records], axis=0) / rows
    variance = np.sum([record.counts["sum_of_squares"] for record in records], axis=0) / rows - mean**2
    deviation = np.sqrt(np.maximum(variance, 0))
    return mean.tolist(), np.where(deviation > 0, deviation, 1).tolist()


def _num_classes(records: Sequence[TaskRecord], task: IngestTask) -> int:
    if task.schema.task != "single":
        return task.schema.label_width
    largest = max(record.counts["label_max"] for record in records)
    return task.config.num_classes or max(largest + 1, 2)


def _result(
    task: IngestTask,
    book: PartitionBook,
    *,
    node_steps: Sequence[Sequence[TaskRecord]],
    edge_steps: Sequence[Sequence[TaskRecord]],
    written: Sequence[TaskRecord],
) -> IngestResult:
    node_read, nodes = node_steps
    edge_read, edges = edge_steps[0], edge_steps[1:]
    every = [*(record for step in (*node_steps, *edge_steps) for record in step), *written]
    quarantined = _total([*node_read, *nodes], "rows_quarantined"), _total(every, "rows_quarantined")
    counts = {
        "nodes": _conserved("node", _total(node_read, "rows_in"), book.num_nodes, quarantined[0]),
        "edges": _conserved(
            "edge", _total(edge_read, "rows_in"), _total(edges[1], "rows_out"), quarantined[1] - quarantined[0]
        ),
    }
    bins = [sum(column) for column in zip_longest(*(r.counts["degree_bins"] for r in written), fillvalue=0)]
    details = {
        "num_nodes": book.num_nodes,
        "num_edges": _total(edges[-1], "edges"),
        "partitions": book.num_partitions,
        "offsets": book.offsets.tolist(),
        "id_type": task.schema.id_type,
        "feature": {
            "kind": "sparse" if task.schema.sparse else "dense",
            "width": task.schema.feature_width,
            "has_value": task.schema.sparse_has_value
            or (task.schema.sparse is not None and task.config.normalize == "row"),
        },
        "attribute_width": task.schema.attribute_width,
        "has_weight": task.schema.has_weight,
        "task": task.schema.task,
        "num_classes": _num_classes(nodes, task),
        "labelled": _total(nodes, "labelled"),
        "splits": _splits(nodes),
        "degree_bins": bins,
        "max_in_degree": max(record.counts["max_in_degree"] for record in written),
        "counts": counts,
        "schema": asdict(task.schema),
    }
    return IngestResult(
        files=tuple(entry for record in every for entry in record.files),
        rows_in=sum(part["rows_in"] for part in counts.values()),
        rows_out=sum(part["rows_out"] for part in counts.values()),
        rows_quarantined=sum(part["rows_quarantined"] for part in counts.values()),
        details=details,
    )


def _total(records: Sequence[TaskRecord], key: str) -> int:
    return sum(int(record.counts.get(key, 0)) for record in records)


def _conserved(what: str, rows_in: int, rows_out: int, quarantined: int) -> dict[str, int]:
    assert rows_in == rows_out + quarantined, f"{what} rows were lost: {rows_in} != {rows_out} + {quarantined}"
    return {"rows_in": rows_in, "rows_out": rows_out, "rows_quarantined": quarantined}
