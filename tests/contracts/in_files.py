"""A case of the contract suite in files, cut into intervals and pieces, on one rank or on those of a ring.

On one rank rows lie by depth, and nodes with many edges are dealt to the intervals.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch

from gnnflow.executions import streamed
from gnnflow.executions.row_exchange import Exchange
from gnnflow.executions.streamed import GroupSizes, Ring
from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph
from gnnflow.train.streamed.numbering import by_id, by_type, even_sizes, numbered, numbered_by_type
from tests.contracts.among_ranks import own_rows
from tests.contracts.in_memory import rows_of


def filed(folder, case, number, exchange: Exchange | None = None, *, targets=None, typed=None, leaves=()) -> FileGraph:
    """Write a case's graph, its nodes in the order of `number`, in two runs; of a ring, this rank's part of it.

    folder: None for the machine's memory. targets: places in `number`, for which rows are numbered anew. typed: what a
    typed graph decides of a model; leaves: of its relations' edges.
    """
    graph = case.graph
    blocks = {id(block): rows_of(block, number)[0] for block in case.per_layer}
    numbers = list(blocks)
    features, nodes = graph.features.take(number), graph.nodes.take(number)
    bounds = [0, *accumulate(even_sizes(len(number), 1 if exchange is None else exchange.size))]
    depth = None
    if exchange is None and graph.adjacency.edges.leaves is None and targets is not None:
        depth = depth_of([blocks[id(block)] for block in case.per_layer], targets)
    relations = 1 if typed is None else typed.schema.num_relations
    numbering = _numbering(case, nodes, depth, bounds=bounds, typed=typed)
    made = FileGraph.empty(
        Scratch(folder and str(folder)),
        numbering,
        files=[numbers.index(id(block)) for block in case.per_layer],
        max_edges=(2, 7, 1000)[case.seed % 3],
        max_rows=(3, 0, 1, 5)[case.seed % 4],
        width=0 if typed else features.width,
        sparse=not typed and features.is_sparse,
        ring=None if exchange is None else Ring(exchange, numbering.sizes, copies=case.seed % 2 == 1),
        typed=typed,
        leaves=leaves,
        together=((GroupSizes(1 + case.seed % 2, 1 + case.seed % 3),) * relations,) * len(case.per_layer),
    )
    first, last = bounds[:2] if exchange is None else bounds[exchange.rank : exchange.rank + 2]
    cut = first + (last - first) // 3
    for begin, end in ((first, cut), (cut, last)):
        rows = np.arange(begin, end)
        held = [own_rows(blocks[id(block)], rows) for block in case.per_layer]
        made.add(begin, blocks=held, features=features.take(rows), nodes=nodes.take(rows))
    return made


def _numbering(case, nodes, depth, *, bounds, typed):
    """Return where nodes lie: by depth and degree where there is a depth, else by id."""
    size, per_layer = len(nodes), len(case.per_layer)
    intervals = min(size, 1 + case.seed % 3)
    types = np.zeros(size, np.int64) if nodes.types is None else nodes.types
    # as many of each type, or one fewer of every other one
    of_types = [max(1, intervals - number % 2) for number in range(typed.schema.num_types)] if typed else []
    if depth is None and typed:
        return by_type(types, of_types, bounds=bounds)
    if depth is None:
        return by_id([each for rank in np.diff(bounds).tolist() for each in even_sizes(rank, intervals)])
    degrees = {name: getattr(nodes, name).reshape(size, -1).sum(1) for name in ("in_degree", "out_degree")}
    if typed:
        return numbered_by_type(types, of_types, **degrees, depth=depth, num_levels=per_layer + 1)
    return numbered(intervals, **degrees, depth=depth, num_levels=per_layer + 1)


def depth_of(blocks, targets):
    """Return behind which layer, counted from 1, each node's row is last read, a layer after the other."""
    depth = np.full(blocks[0].num_targets, -1)
    depth[targets] = len(blocks)
    for layer, block in reversed(list(enumerate(blocks))):
        rows = np.tile(np.arange(block.num_targets), block.edges.num_relations)
        for place, target in enumerate(rows):
            if depth[target] > layer:
                read = block.edges.sources[slice(*block.edges.offsets[place : place + 2])]
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
        torch.cat([rows.read(each) for each in run.intervals]).view(-1, model.layers[index].out_width)
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
