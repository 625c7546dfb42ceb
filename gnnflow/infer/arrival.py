"""The arrival of a relation's in-edges at a partition, and of the rows of other partitions that they need.

Rows come on one of two ways, which give the same numbers in the same order: `exchanged.py` fetches files that their
owners packed and sent, `mapped.py` maps the arrays that their owners left where they made them.

Shapes: P partitions, T targets, n rows of the partitions that come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from gnnflow.executions.plan import plan_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.executions.plan import RelationPlan, TermArrays
    from gnnflow.executions.sliced import Gathered, SliceTerms
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.graph.batch import Block
    from gnnflow.infer.job import InferJob
    from gnnflow.infer.reads import LayerReads
    from gnnflow.infer.states import Plan
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox


@dataclass(frozen=True)
class Arrival:
    """The arrival of rows and states of a relation at a partition, for a layer.

    at_once [P]: whose rows the first part reads. by_rows and by_states: whose rows, then whose states are merged to it.
    """

    relation: int
    at_once: Array
    by_rows: IntArray
    by_states: IntArray
    by_pieces: bool

    @classmethod
    def of(cls, index: int, plan: Plan, *, relation: int) -> Arrival:
        """Return the arrival that carries out a partition's plan."""
        sends = plan.num_asked > 0
        # all that come as rows, or this partition's own alone
        at_once = sends & ~plan.as_states & (np.arange(len(sends)) == index if plan.by_pieces else True)
        by_rows = np.flatnonzero(sends & ~at_once & ~plan.as_states)
        return cls(relation, at_once, by_rows, np.flatnonzero(plan.as_states), plan.by_pieces)

    @property
    def is_whole(self) -> bool:
        """True if all edges are one block, to which nothing of other partitions is merged."""
        return not (self.by_pieces or len(self.by_states))

    def first(self, reads: LayerReads) -> Block:
        """Return the block that is computed on first: of all edges, where nothing is merged to it."""
        return reads.whole if self.is_whole else reads.of_owners(self.at_once)


@dataclass(frozen=True)
class TaskPlace:
    """The place of a task: layer `layer` (from 1) of partition `index`."""

    index: int
    inbox: Inbox
    job: InferJob
    model: Model
    layer: int

    @cached_property
    def plans(self) -> tuple[RelationPlan, ...]:
        """The plan of the layer in each relation."""
        return plan_layer(self.model, self.layer - 1, self.job.edge_columns).relations


class OwnRows(NamedTuple):
    """The rows that a partition kept of its targets: terms, or with several relations input rows.

    carried: outputs of earlier layers, by layer.
    """

    terms: SliceTerms | None
    h: FloatArray | None
    carried: dict[int, FloatArray]


class PartRows(NamedTuple):
    """The rows of one partition: their source terms, the block of the edges from them, and its targets among the T."""

    terms: TermArrays
    block: Block
    targets: IntArray


class SourceRows(Protocol):
    """Brings what a layer of a partition reads. Each relation is asked for once, in the order of `order`."""

    def reads(self, rows: IntArray) -> tuple[LayerReads, ...]:
        """Return what the layer reads in each relation for local rows of targets, ascending."""

    def own(self) -> OwnRows:
        """Return what was kept of the targets."""

    def at_once(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int = 0) -> TermArrays:
        """Return source terms [room + T + n]: the targets' own, then terms of the partitions that come first."""

    def whole(self, arrival: Arrival, reads: LayerReads, own: TermArrays, *, room: int) -> Gathered:
        """Return all in-edges as one block. own: the targets' own source terms."""

    def joined(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> TermArrays | None:
        """Return the states of all parts of the T targets' in-edges at once, if all is at hand; else None."""

    def parts(self, arrival: Arrival, reads: LayerReads, *, every: bool) -> Iterator[PartRows]:
        """Yield the rows of each partition of `by_rows`. every: in blocks of all T targets."""

    def states(self, arrival: Arrival, reads: LayerReads, own: TermArrays) -> Iterator[TermArrays]:
        """Yield the states of each partition of `by_states`. own: the targets' target terms."""
