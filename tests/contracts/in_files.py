"""A case of the contract suite in files, cut into intervals and pieces."""

from __future__ import annotations

import numpy as np

from gnnflow.train.streamed.files import Scratch
from gnnflow.train.streamed.graph import FileGraph, even_sizes
from tests.contracts.among_ranks import own_rows
from tests.contracts.in_memory import rows_of


def filed(folder, case, number) -> FileGraph:
    """Write a case's graph, its nodes in the order of `number`, in two runs."""
    graph, size = case.graph, len(number)
    blocks = {id(block): rows_of(block, number)[0] for block in case.per_layer}
    numbers = list(blocks)
    has_leaves = graph.adjacency.edges.leaves is not None
    intervals = 1 if has_leaves else min(size, 1 + case.seed % 3)
    features, nodes = graph.features.take(number), graph.nodes.take(number)
    made = FileGraph.empty(
        Scratch(str(folder)),
        even_sizes(size, intervals),
        files=[numbers.index(id(block)) for block in case.per_layer],
        max_edges=(2, 7, 1000)[case.seed % 3],
        width=features.width,
        sparse=features.is_sparse,
    )
    cut = size // 3
    for first, last in ((0, cut), (cut, size)):
        rows = np.arange(first, last)
        held = [own_rows(blocks[id(block)], rows) for block in case.per_layer]
        made.add(first, blocks=held, features=features.take(rows), nodes=nodes.take(rows))
    return made
