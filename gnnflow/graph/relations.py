"""A block of several relations, taken apart: each relation as a block of its own, of the rows that it joins.

A layer of one relation then sees what it sees of a graph without types: T targets, which come first among its S
sources. Targets are all of the block's of the type that the relation leads to, with or without in-edges, so that the
relations into a type compute the same rows and can be joined row by row. Sources are these and what the edges read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnflow.graph.arrays import IntArray, distinct, offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.schema import GraphSchema

_UNSEEN = -1


@dataclass(frozen=True)
class RelationBlock:
    """One relation's part of a block.

    targets [T]: which of the block's targets its targets are; sources [S]: which of the block's sources its sources
    are, those of the targets first. Both ascend but for that.
    """

    relation: int
    block: Block
    targets: IntArray
    sources: IntArray


def relation_blocks(block: Block, types: IntArray, schema: GraphSchema) -> tuple[RelationBlock, ...]:
    """Return a block's relations, one after the other. types: the number of each source row's type, of the block."""
    of_target = types[: block.num_targets]
    # each type's rows among the targets, and where a source row lies among those of a relation
    targets = [np.flatnonzero(of_target == number) for number in range(schema.num_types)]
    places = np.full(block.num_sources, _UNSEEN, np.int64)
    return tuple(
        _part(block.relation(number), number, targets[target_type], places)
        for number, target_type in enumerate(schema.target_types)
    )


def _part(block: Block, number: int, targets: IntArray, places: IntArray) -> RelationBlock:
    """Return one relation's part. places: all _UNSEEN, and left so."""
    edges = block.edges
    places[targets] = np.arange(len(targets))
    # the sources that edges read and that are no target of the relation, ascending
    read = distinct(edges.sources[places[edges.sources] == _UNSEEN].astype(np.int64))
    places[read] = np.arange(len(targets), len(targets) + len(read))
    # nodes of other types have no edges here, so that leaving them out moves none
    lengths = edges.lengths[targets]
    assert int(lengths.sum()) == edges.num_edges, "a relation's edges lead to nodes of its target type"
    own = replace(edges, offsets=offsets_of(lengths), sources=places[edges.sources])
    sources = np.concatenate([targets, read])
    places[sources] = _UNSEEN
    scale = None if block.sample_scale is None else block.sample_scale[targets]
    return RelationBlock(number, Block(own, len(sources), scale, block.edge_scale), targets, sources)
