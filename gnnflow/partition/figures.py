"""How good a partitioning is: what is cut, what has to be known twice, and how even partitions are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.mapreduce.rounds import TaskRecord

LOADS = ("nodes", "edges", "targets")
"""What is to be even: nodes, in-edges, and training targets; one that is a pair counts at its destination."""


def crossing(sources: Sequence[IntArray], book: PartitionBook, *, partition: int) -> dict[str, int]:
    """Return what lies elsewhere of the sources of a partition's in-edges, relation by relation.

    cut: edges whose source does; mirrors: how many nodes these sources are.
    """
    start, end = book.start(partition), book.start(partition) + book.size(partition)
    apart = np.concatenate([each[(each < start) | (each >= end)] for each in sources])
    return {"cut": len(apart), "mirrors": len(distinct(apart))}


def figures_of(loads: Array, records: Sequence[TaskRecord], *, key: str) -> dict[str, float | list[int]]:
    """Return the figures of a partitioning, rounded so that they read the same everywhere.

    loads: [P, 3] as in `LOADS`; the counts of each partition's record hold `crossing` below a key. replication: nodes
    and mirrors per node; edge_cut: the share of edges whose ends two partitions own; balance_*: the largest of a
    partition over the mean, 1 where there is nothing.
    """
    held = [record.counts[key] for record in records]
    nodes, edges, _ = loads.sum(0).tolist()
    cut, mirrors = (sum(each[name] for each in held) for name in ("cut", "mirrors"))
    even = {
        f"balance_{name}": round(float(column.max() / column.mean()), 6) if column.any() else 1.0
        for name, column in zip(LOADS, loads.T, strict=True)
    }
    return {
        "replication": round(float(1 + mirrors / max(nodes, 1)), 6),
        "edge_cut": round(float(cut / max(edges, 1)), 6),
        "edges_cut": cut,
        **even,
    }
