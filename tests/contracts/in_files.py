"""A case of the contract suite in files, cut into intervals and pieces, on one rank or on those of a ring."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch

from gnnflow.executions import streamed
from gnnflow.executions.ring import Ring
from gnnflow.executions.row_exchange import Exchange
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph, even_sizes
from tests.contracts.among_ranks import own_rows
from tests.contracts.in_memory import rows_of


def filed(folder, case, number, exchange: Exchange | None = None) -> FileGraph:
    """Write a case's graph, its nodes in the order of `number`, in two runs; of a ring, this rank's part of it.

    folder: None for the machine's memory.
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
    features, nodes = graph.features.take(number), graph.nodes.take(number)
    made = FileGraph.empty(
        Scratch(folder and str(folder)),
        sizes,
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


def targets_of(graph: FileGraph, targets):
    """Return which of some nodes' rows are of a rank."""
    firsts = np.array([0, *accumulate(graph.sizes)])
    first, last = firsts[[graph.ring.own.start, graph.ring.own.stop]]
    return targets[(targets >= first) & (targets < last)]


def outputs_of(model, graph: FileGraph, targets):
    """Return logits and embedding of some of a rank's nodes, with gradients of the logits where they are wanted."""
    if torch.is_grad_enabled():
        logits = streamed.forward(model, graph, targets)
        return logits, logits
    run = streamed.StreamedRun(model, graph, targets, keeps=False)
    logits = run.logits()
    outputs = [
        torch.cat([rows.read(each) for each in run.intervals]).view(-1, model.layer(index).out_width)
        for index, rows in enumerate(run.outputs)
    ]
    own = targets - run.firsts[run.intervals.start]
    return logits, model.embedding([rows[own] for rows in outputs])
