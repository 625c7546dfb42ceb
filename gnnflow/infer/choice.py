"""Rows or partial states between two partitions, and whether a task merges pieces one by one: from counts.

A partition p that holds the sources of in-edges of another, q, can send q one row per source, or one partial state per
target of q. States are fewer where several sources lead to one target: hubs, a graph with few nodes on one side, a few
targets out of many nodes. Then p needs the edges too, which q sends once for all layers that read the same.

Nothing here depends on timing or on where the exchange lies, so every run of the same graph and model chooses alike.

Shapes: P partitions, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray

Sending = Literal["fewest bytes", "rows", "states"]
"""How partitions send to each other. "rows" and "states" (of layers that allow it) are there to compare the two."""
Overlap = Literal["large pieces", "no piece", "every piece", "nothing"]
"""Which received pieces are computed on while the next ones are fetched. All but the first are there to compare.

With "no piece" rows are still fetched while the block of edges is made; with "nothing" one comes after the other.
"""

LEAST_SAVED_BYTES = 1 << 18
"""A pair of partitions keeps rows where states save less: it is then the requests that take the time, not the bytes."""
LEAST_SAVED_SHARE = 0.25
"""A pair keeps rows where states save less of its bytes: rows are compressed too, which counts do not show."""
LARGE_PIECES_BYTES = 1 << 27
"""A task merges the pieces that it receives one by one from so many bytes on, so that it need not hold them all."""
EDGES_PER_MERGE = 2
"""And where pieces have so many edges per target that they lead to: each such target is one merge of two states."""


@dataclass(frozen=True)
class LayerBytes:
    """The bytes that one layer sends: of a source's row, and of a target's state.

    state is None where the owner of the sources cannot make the layer's states. merges: whether states merge. read: of
    the target's terms that an edge reads, as attention does; they are sent first to the task that makes the state.
    joins: whether a kernel merges the states of all parts of a target's in-edges in one pass.
    """

    row: int
    state: int | None
    merges: bool
    read: int = 0
    joins: bool = False


@dataclass(frozen=True)
class Exchange:
    """The settings by which the tasks of one GraphInfer send to each other.

    layers: what each layer sends, in each relation. askers: by need round, then relation, the partitions that take
    states in a layer of it; hubs: likewise those whose hubs' in-edges are split. mapped: whether rows stay where they
    are made, and tasks map each other's files; None is wherever they can, see `mapreduce.way`. Both ways add up in the
    same order and give the same bits.
    """

    sending: Sending = "fewest bytes"
    overlap: Overlap = "large pieces"
    mapped: bool | None = None
    layers: tuple[tuple[LayerBytes, ...], ...] = ()
    askers: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    hubs: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)

    def ahead(self, number: int) -> int:
        """Return how many of a number of pieces to fetch ahead, if the task holds them all at once."""
        return 0 if self.overlap == "nothing" else number


@dataclass(frozen=True)
class PairCounts:
    """Counts of what one partition reads from each other partition in a relation.

    They count distinct sources, targets that edges from these lead to, and the edges, each [P].
    """

    sources: IntArray
    targets: IntArray
    edges: IntArray

    @classmethod
    def of_rows(cls, sources: IntArray) -> PairCounts:
        """Return the counts where rows are sent in any case: targets and edges are not counted."""
        return cls(sources, np.zeros_like(sources), np.zeros_like(sources))


@dataclass(frozen=True)
class Choice:
    """as_states [L, P]: whether a layer's states come from a partition. Bytes are by count, before compression.

    row_bytes [L, P] and state_bytes [L, P]: of either way; edge_bytes [P]: of the edges, where any layer needs them.
    """

    as_states: Array
    row_bytes: IntArray
    state_bytes: IntArray
    edge_bytes: IntArray

    @property
    def saved(self) -> int:
        """Bytes that all states together save."""
        by_states = np.where(self.as_states, self.row_bytes - self.state_bytes, 0).sum()
        return int(by_states - self.edge_bytes[self.as_states.any(0)].sum())


def needs_counts(sources: IntArray, layers: Sequence[LayerBytes], exchange: Exchange) -> bool:
    """Return whether the choice depends on targets and edges, given the rows asked of each partition [P]."""
    if (exchange.sending, exchange.overlap) != ("fewest bytes", "large pieces"):
        return True
    row_bytes = sources * sum(layer.row for layer in layers if layer.state is not None)
    widest = max((layer.row for layer in layers if layer.merges), default=0)
    by_pieces = sources.sum() * widest >= LARGE_PIECES_BYTES
    return bool(by_pieces or (row_bytes >= LEAST_SAVED_BYTES).any())


def choose(
    counts: PairCounts, layers: Sequence[LayerBytes], *, edge_bytes: float, sending: Sending, num_partitions: int = 2
) -> Choice:
    """Choose rows or states of a relation, for each sending partition and each layer that reads the same edges.

    edge_bytes: of one edge, sent once where any layer takes states. Where edges read terms of their targets the rows of
    the sources are kept until these come, once for all partitions that take states: each other one counts its share.
    """
    # bytes of each layer and sending partition, by rows and by states [L, P], and of the edges [P]
    row_bytes = np.stack([counts.sources * layer.row for layer in layers])
    kept = np.stack([counts.sources * layer.row // max(num_partitions - 1, 1) * bool(layer.read) for layer in layers])
    state_bytes = kept + np.stack([counts.targets * ((layer.state or 0) + layer.read) for layer in layers])
    # whether states can be sent, and the bytes of the edges that states need [L, P], [P]
    allowed = np.array([layer.state is not None for layer in layers])[:, None] & (counts.edges > 0)
    of_edges = np.ceil(counts.edges * edge_bytes).astype(np.int64)
    # what states save in each layer where they do, and over the layers, less the edges [P]
    gain = np.where(allowed, np.maximum(row_bytes - state_bytes, 0), 0)
    saved = gain.sum(0) - of_edges
    worth = (saved >= LEAST_SAVED_BYTES) & (saved >= LEAST_SAVED_SHARE * row_bytes.sum(0))
    as_states = {"rows": allowed & False, "states": allowed, "fewest bytes": (gain > 0) & worth}[sending]
    return Choice(as_states, row_bytes, state_bytes, of_edges)


def takes_pieces(counts: PairCounts, layer: LayerBytes, *, as_states: Array, own: int, overlap: Overlap) -> bool:
    """Return whether a task merges a layer's pieces of rows one by one, while the next ones are fetched.

    as_states [P]: which partitions send states in this layer. own: the task's own partition.
    """
    others = np.arange(len(counts.sources)) != own
    # partitions that send rows [P]
    by_rows = others & ~as_states
    if not layer.merges or not counts.sources[by_rows].any() or overlap in {"no piece", "nothing"}:
        return False
    # bytes that other partitions send
    sent = np.where(as_states, counts.targets * (layer.state or 0), counts.sources * layer.row)[others].sum()
    few_merges = EDGES_PER_MERGE * counts.targets[by_rows].sum() <= counts.edges[by_rows].sum()
    return overlap == "every piece" or bool(sent >= LARGE_PIECES_BYTES and few_merges)
