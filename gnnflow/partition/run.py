"""The order of the rounds of `partition`: plan, move nodes, number them, send new ids, move edges, sort.

The plan is one task; the module of each kind describes its memory. All other tasks hold one partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.mapreduce.rounds import Round
from gnnflow.partition import rounds
from gnnflow.partition.planning import LOADS, figures_of
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.facts import GraphFacts
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskOutput, TaskRecord
    from gnnflow.partition.planning import PartitionJob
    from gnnflow.storage.writing import FileEntry

BALANCE = "balance.json"
"""The figures of the partitioning, below the artifact."""


@dataclass(frozen=True)
class PartitionResult:
    """The files and the facts of the new store, and the figures of `balance.json`."""

    files: tuple[FileEntry, ...]
    facts: GraphFacts
    figures: dict[str, Any]


def run_rounds(job: PartitionJob, runner: RoundRunner, *, facts: GraphFacts) -> PartitionResult:
    """Write the new store. facts: all facts of the old store."""
    parts = job.store.num_partitions

    def step(
        name: str, function: Callable[[int, Inbox], TaskOutput], reads: dict[str, str], *, last: tuple[str, ...] = ()
    ) -> Round:
        return Round(name, 1 if name == "plan" else parts, parts, function, reads, frozenset(last))

    planned = runner.run(step("plan", partial(rounds.plan, job=job), {}))[0]
    moved = runner.run(step("nodes_move", partial(rounds.move_nodes, job=job), {"homes": "plan"}, last=("homes",)))
    # nodes of each new partition, type and cluster [P, T, C]
    sizes = np.sum([record.counts["sizes"] for record in moved], axis=0)
    book = PartitionBook(offsets_of(sizes.sum(2).ravel()), job.store.book.num_types)
    rows = tuple(f"nodes_{number}" for number in range(book.num_types))
    number_nodes = partial(rounds.number_nodes, job=job, book=book)
    nodes = runner.run(step("nodes_write", number_nodes, dict.fromkeys(rows, "nodes_move"), last=rows))
    reads = {"numbered": "nodes_write", "asked": "nodes_move"}
    runner.run(step("answer", partial(rounds.answer, job=job), reads, last=("asked",)))
    reads = {"numbered": "nodes_write", "known": "answer"}
    runner.run(step("edges_move", partial(rounds.move_edges, job=job, book=book), reads, last=tuple(reads)))
    lists = tuple(f"edges_{number}" for number in range(len(rounds.lists_of(job))))
    sort_edges = partial(rounds.sort_edges, job=job, book=book)
    edges = runner.run(step("edges_write", sort_edges, dict.fromkeys(lists, "edges_move"), last=lists))
    figures = _figures(planned, moved, edges)
    balance = write_json(join(job.artifact, BALANCE), {**planned.counts["settings"], **figures})
    files = (balance, *(entry for record in (*nodes, *edges) for entry in record.files))
    clusters = tuple(offsets_of(sizes.ravel()).tolist()) if job.planner.clusters else ()
    changed = replace(facts, offsets=tuple(book.offsets.tolist()), clusters=clusters, placement=job.placement)
    return PartitionResult(files, changed, figures)


def _figures(planned: TaskRecord, moved: list[TaskRecord], edges: list[TaskRecord]) -> dict[str, Any]:
    """Return the figures of the partitioning: of the plan, the new store and the old store."""
    loads = np.sum([record.counts["loads"] for record in moved], axis=0)
    if "computed" in edges[0].counts["after"]:
        loads[:, LOADS.index("edges")] = [record.counts["after"]["computed"] for record in edges]
    before = np.array([record.counts["loads_before"] for record in moved])
    return {
        **planned.counts["figures"],
        **figures_of(loads, edges, key="after"),
        **dict(zip(LOADS, loads.astype(np.int64).T.tolist(), strict=True)),
        "before": figures_of(before, moved, key="before"),
    }
