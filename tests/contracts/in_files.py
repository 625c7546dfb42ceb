"""A case of the contract suite in files, cut into intervals and pieces, on one rank or on those of a ring.

On one rank rows lie by depth, and nodes with many edges are dealt to the intervals.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch

from gnnflow.executions import streamed
from gnnflow.executions.ring import Ring
from gnnflow.executions.row_exchange import Exchange
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, even_sizes, numbered
from tests.contracts.among_ranks import own_rows
from tests.contracts.in_memory import rows_of


def filed(folder, case, number, exchange: Exchange | None = None, *, targets=None) -> FileGraph:
    """Write a case's graph, its nodes in the order of `number`, in two runs; of a ring, this rank's part of it.

    folder: None for the machine's memory. targets: places in `number`, for which rows are numbered anew.
    """
    graph, size = case.graph, len(number)
    blocks = {id(block): rows_of(block, number)[0] for block in case.per_layer}
    numbers = list(blocks)
    has_leaves = graph.adjacency.edges.leaves is not None
    intervals = 1 if has_leaves else min(size, 1 + case.seed % 3)
    sizes, ring, first, last = even_sizes(size, intervals), None, 0, size
    if exchange is not None:
        of_rank = even_sizes(size, exchange.size)
        sizes = tuple(each for rank in of_rank for each in even_sizes(rank, intervals))
        ring = Ring(exchange, sizes, copies=case.seed % 2 == 1)
        first = sum(of_rank[: exchange.rank])
        last = first + of_rank[exchange.rank]
    numbering = by_id(sizes)
    if exchange is None and not has_leaves and targets is not None:
        depth = depth_of([blocks[id(block)] for block in case.per_layer], targets)
        degrees = (graph.nodes.in_degree[number], graph.nodes.out_degree[number])
        numbering = numbered(
            intervals, in_degree=degrees[0], out_degree=degrees[1], depth=depth, num_levels=len(case.per_layer) + 1
        )
    features, nodes = graph.features.take(number), graph.nodes.take(number)
    made = FileGraph.empty(
        Scratch(folder and str(folder)),
        numbering,
        files=[numbers.index(id(block)) for block in case.per_layer],
        max_edges=(2, 7, 1000)[case.seed % 3],
        width=features.width,
        sparse=features.is_sparse,
        ring=ring,
    )
    cut = first + (last - first) // 3
    for begin, end in ((first, cut), (cut, last)):
        rows = np.arange(begin, end)
        held = [own_rows(blocks[id(block)], rows) for block in case.per_layer]
        made.add(begin, blocks=held, features=features.take(rows), nodes=nodes.take(rows))
    return made


def depth_of(blocks, targets):
    """Return behind which layer, counted from 1, each node's row is last read, a layer after the other."""
    depth = np.full(blocks[0].num_targets, -1)
    depth[targets] = len(blocks)
    for layer, block in reversed(list(enumerate(blocks))):
        for target in np.flatnonzero(depth > layer):
            read = block.edges.sources[slice(*block.edges.offsets[target : target + 2])]
            depth[read] = np.maximum(depth[read], layer)
    return depth


def targets_of(graph: FileGraph, targets):
    """Return which of some nodes' rows are of a rank."""
    firsts = np.array([0, *accumulate(graph.sizes)])
    first, last = firsts[[graph.ring.own.start, graph.ring.own.stop]]
    return targets[(targets >= first) & (targets < last)]


class _AllRows(streamed.StreamedRun):
    """A pass that keeps the rows after every layer."""

    def reads_rows(self, index):
        """Return True."""
        return True


def outputs_of(model, graph: FileGraph, targets):
    """Return logits and embedding of some of a rank's rows, with gradients of the logits where they are wanted."""
    if torch.is_grad_enabled():
        logits = streamed.forward(model, graph, targets)
        return logits, logits
    run = _AllRows(model, graph, targets, keeps=False)
    logits = run.logits()
    outputs = [
        torch.cat([rows.read(each) for each in run.intervals]).view(-1, model.layer(index).out_width)
        for index, rows in run.outputs.items()
    ]
    interval = np.searchsorted(run.firsts, targets, side="right") - 1
    held = []
    for level, rows in enumerate(outputs, 1):
        active = np.array(graph.active(level))[run.intervals]
        # where each target lies among the active rows of the rank's intervals
        begin = np.cumsum(active) - active
        held.append(rows[begin[interval - run.intervals.start] + targets - np.array(run.firsts)[interval]])
    return logits, model.embedding(held)
