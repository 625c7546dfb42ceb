"""What every task of `partition` knows, and its rounds in order: plan, move nodes, number them, tell, move edges, sort.

The plan is one task, which holds the ends of all edges and a few numbers a node, no features: 16 bytes an edge, and
four times that while they are sorted. All other tasks hold a partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.book import PartitionBook
from gnnflow.mapreduce.rounds import Round
from gnnflow.partition import rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.graph.facts import GraphFacts
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner, TaskOutput
    from gnnflow.partition.costs import CostModel
    from gnnflow.partition.instances import DirectInstances, PathInstances
    from gnnflow.storage.filesystem import FileEntry
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class PartitionJob:
    """What every task knows. costs: of the relations that instances are counted in."""

    artifact: str
    store: GraphStore
    costs: CostModel
    threshold: float
    instances: DirectInstances | PathInstances
    seed: int


@dataclass(frozen=True)
class PartitionResult:
    """The files of the new store, what there is to know of it, and its balance and cut as in `balance.json`."""

    files: tuple[FileEntry, ...]
    facts: GraphFacts
    figures: dict[str, float]


def run_rounds(job: PartitionJob, runner: RoundRunner, *, facts: GraphFacts) -> PartitionResult:
    """Write the store anew. facts: those of the store that is read, whole."""
    parts = job.store.num_partitions

    def step(
        name: str, function: Callable[[int, Inbox], TaskOutput], reads: dict[str, str], *, last: tuple[str, ...] = ()
    ) -> Round:
        return Round(name, 1 if name == "plan" else parts, parts, function, reads, frozenset(last))

    planned = runner.run(step("plan", partial(rounds.plan, job=job), {}))[0]
    moved = runner.run(step("nodes_move", partial(rounds.move_nodes, job=job), {"homes": "plan"}, last=("homes",)))
    # nodes that each new partition gets of each type [P, T]
    sizes = np.sum([record.counts["sizes"] for record in moved], axis=0)
    book = PartitionBook(offsets_of(sizes.ravel()), job.store.book.num_types)
    rows = tuple(f"nodes_{number}" for number in range(book.num_types))
    number_nodes = partial(rounds.number_nodes, job=job, book=book)
    nodes = runner.run(step("nodes_write", number_nodes, dict.fromkeys(rows, "nodes_move"), last=rows))
    reads = {"numbered": "nodes_write", "asked": "nodes_move"}
    runner.run(step("answer", partial(rounds.answer, job=job), reads, last=("asked",)))
    reads = {"numbered": "nodes_write", "known": "answer"}
    runner.run(step("edges_move", partial(rounds.move_edges, job=job, book=book), reads, last=tuple(reads)))
    lists = tuple(f"edges_{number}" for number in range(job.store.schema.num_relations))
    sort_edges = partial(rounds.sort_edges, job=job, book=book)
    edges = runner.run(step("edges_write", sort_edges, dict.fromkeys(lists, "edges_move"), last=lists))
    files = tuple(entry for record in (planned, *nodes, *edges) for entry in record.files)
    return PartitionResult(files, replace(facts, offsets=tuple(book.offsets.tolist())), planned.counts)
