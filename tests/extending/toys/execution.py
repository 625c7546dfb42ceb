"""An execution: the whole graph in memory, each layer's in-edges in two parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gnnflow.executions.base import BlockPart, maps_first, terms_of
from gnnflow.executions.reference import WholeGraph
from gnnflow.executions.relations import RelationPass, run_passes
from gnnflow.executions.tensors import block_tensors, feature_tensors, node_context
from gnnflow.graph.batch import Block
from gnnflow.layers import EdgeContext, Layer, Model, Terms
from gnnflow.layers.terms import TypeRows


@dataclass(frozen=True)
class Halves:
    """Delivers every second edge of a block, then the others."""

    block: Block

    @property
    def num_targets(self) -> int:
        """Number of targets."""
        return self.block.num_targets

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.block.num_edges

    @property
    def edge(self) -> EdgeContext:
        """The block's edge columns."""
        return block_tensors(self.block).edge

    def parts(self, layer: Layer, terms: Terms) -> Iterator[BlockPart]:
        """Yield the two parts."""
        edges = self.block.edges
        for first in (0, 1):
            chosen = np.arange(first, edges.num_edges, 2)
            offsets = np.searchsorted(chosen, edges.offsets)
            scale = None if self.block.edge_scale is None else self.block.edge_scale[chosen]
            half = Block(edges.take(chosen, offsets=offsets), self.block.num_sources, self.block.sample_scale, scale)
            yield BlockPart(block_tensors(half), terms.source)


def layer_outputs(model: Model, graph: WholeGraph, per_layer: list[Block]) -> list[Tensor]:
    """Return each layer's rows of all nodes."""
    nodes = node_context(graph.nodes)
    outputs = [model.encode(feature_tensors(graph.features), nodes)]
    for index, block in enumerate(per_layer):
        h, size = model.pre(index, outputs[-1]), block.num_targets

        def pass_of(relation: int, index: int = index, block: Block = block, h: Tensor = h) -> RelationPass:
            layer = model.relations(index).layer(relation)
            first = maps_first(layer, h, block.num_targets, block.num_edges)
            terms = terms_of(layer, h, nodes=nodes, num_targets=block.num_targets, map_first=first)
            return RelationPass(layer, terms, Halves(block), first)

        outputs.append(run_passes(model, index, pass_of, h=outputs[-1], dropped=h, targets=TypeRows(size)))
    return outputs[1:]


def supports(layer: Layer) -> str | None:
    """Return why a layer cannot run here."""
    if layer.uses_propagate or not layer.levels.instance.mergeable:
        return "its in-edges come in two parts"
    return None
