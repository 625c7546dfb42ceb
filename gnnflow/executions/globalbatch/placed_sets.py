"""Edges that a rank computes for targets of other ranks: which are active in each layer, and what goes where for them.

Where edges are placed at their sources or on a grid (`gnnflow.graph.book`), a rank holds edges into nodes that it
does not own. Of such a target, a ghost, it computes the state over its own edges alone and sends this to the owner, who
merges the states of all ranks. Owners tell holders which ghosts are active in a layer; which rows are active, and how
they are numbered, is what `active_rows` found, since a target reads the same sources wherever its edges are computed.

Shapes: N own nodes, T targets of a layer, G ghosts, n of them active, M states received.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnflow.executions.globalbatch.active_sets import (
    ActiveLayer,
    ActiveRows,
    numbered,
    owned_and_asked,
    with_traffic,
)
from gnnflow.executions.row_exchange import Exchange, swapped, told_by_all
from gnnflow.graph.arrays import IntArray, distinct
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges


@dataclass(frozen=True)
class PlacedEdges:
    """The edges that one rank computes; sources are dense ids.

    near: into its N own nodes, by place. far: into ghosts [G], dense ids, ascending.
    """

    near: InEdges
    far: InEdges
    ghosts: IntArray


@dataclass(frozen=True)
class PlacedLayer:
    """One layer of one rank. Sources of near and far are the rank's rows, num_own of them, and then the mirrors.

    near: the edges into its T active rows. far: those into n active ghosts. places [M]: which of the T each state that
    comes is of, rank by rank. sent and received: how many states go to each rank and come of each. num_states: of all
    ranks together; num_mirrors too.
    """

    near: ActiveLayer
    far: Block
    places: IntArray
    sent: tuple[int, ...]
    received: tuple[int, ...]
    num_states: int

    @property
    def num_mirrors(self) -> int:
        """The number of source rows that all ranks receive together."""
        return self.near.totals.num_mirrors


def placed_layers(rows: ActiveRows, held: PlacedEdges, *, bounds: IntArray, exchange: Exchange) -> list[PlacedLayer]:
    """Return this rank's part of each layer where edges are placed. rows: the result of `active_rows`."""
    first, last = (int(each) for each in bounds[exchange.rank : exchange.rank + 2])
    # the place of each own node among the rank's rows; N for a node that is not among them [N]
    place = np.full(last - first, last - first, np.int64)
    place[rows.rows] = np.arange(len(rows.rows))
    num_nodes = int(bounds[-1])
    asked = owned_and_asked(held.ghosts, bounds=bounds, exchange=exchange)
    layers: list[PlacedLayer] = []
    for layer in rows.layers:
        num_targets = layer.block.num_targets
        # where each node that others hold edges into lies among the rows, and whether it is a target of the layer
        at = place[asked.asked - first]
        is_active = (at < num_targets).astype(np.int64)[:, None]
        # which of these nodes are active, and which of this rank's ghosts are: their owners say so
        told = swapped(exchange, is_active, sent=asked.sent, received=asked.received)
        active, ghosts = np.flatnonzero(is_active), np.flatnonzero(told)
        blocks = [(Block(held.near, num_nodes), rows.rows[:num_targets]), (Block(held.far, num_nodes), ghosts)]
        # what the layer's edges read, into own targets and into ghosts
        reads = owned_and_asked(_sources(blocks), bounds=bounds, exchange=exchange)
        near, far = (
            numbered(block, some, place=place, first=first, num_own=layer.num_own, mirrors=reads.mirrors)
            for block, some in blocks
        )
        # number of states for each rank, of all ranks together, and the edges into own targets with their traffic
        sent = np.diff(np.searchsorted(held.ghosts[ghosts], bounds))
        counted = told_by_all(exchange, np.array([len(ghosts)], np.int64)).sum()
        near = with_traffic(near, reads, rows=place[reads.asked - first], exchange=exchange)
        layers.append(
            PlacedLayer(near, far.block, at[active], tuple(sent.tolist()), _per_rank(active, asked.sent), int(counted))
        )
    return layers


def _per_rank(active: IntArray, sent: Sequence[int]) -> tuple[int, ...]:
    return tuple(np.diff(np.searchsorted(active, np.cumsum([0, *sent]))).tolist())


def _sources(blocks: Sequence[tuple[Block, IntArray]]) -> IntArray:
    """Return the nodes that some targets of blocks read, ascending."""
    return distinct(np.concatenate([block.edges.step_back(some) for block, some in blocks]).astype(np.int64))
