"""Measures the share of edges among the candidates that held-out links are ranked against.

A candidate may be an edge by chance. Where a source has edges to many candidates, ranks say little: an edge is ranked
among edges. The share is an expectation, so it holds for every pool and every strategy.

Shapes: P sampled pairs, S distinct sources, E edges, N nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.config import LinkTask
from gnnflow.graph.arrays import distinct, find_places
from gnnflow.graph.splits import SPLITS
from gnnflow.neighbors.pairs import PoolPlan, pool_weights
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.config import TaskConfig
    from gnnflow.graph.arrays import BoolArray, IntArray, KeyArray
    from gnnflow.sampling.pairs import Points
    from gnnflow.storage.graph_store import GraphStore

SAMPLED_LINKS = 4096


@dataclass(frozen=True)
class LinkSample:
    """Links of the test split, or of valid where test is empty: dense ids and keys [P], and times if any."""

    split: str
    sources: IntArray
    targets: IntArray
    keys: KeyArray
    times: IntArray | None


@dataclass(frozen=True)
class KnownLinks:
    """All edges of the relation to predict that start at some nodes, of any split. keys [E]: ascending."""

    keys: IntArray
    num_nodes: int

    def are(self, sources: IntArray, targets: IntArray) -> BoolArray:
        """Return which pairs are edges."""
        return find_places(self.keys, sources * self.num_nodes + targets) >= 0


def sample_links(store: GraphStore, *, size: int = SAMPLED_LINKS) -> LinkSample:
    """Return up to `size` held-out links with the smallest keys, which do not depend on partitions."""
    split = "test" if store.facts.splits.get("test") else "valid"
    names = ("src", "dst", "key", *(("time",) if "time" in store.pair_columns else ()))
    kept: pa.Table | None = None
    for part in range(store.num_partitions):
        pairs = store.pairs(part, [*names, "split"])
        # the partition's pairs of the split; then the first `size` of these and of earlier partitions by their keys
        held_out = pairs.filter(pa.array(to_numpy(pairs["split"]) == SPLITS.index(split)))
        every = held_out if kept is None else pa.concat_tables([kept, held_out])
        kept = every.take(pa.array(np.argsort(to_numpy(every["key"]), kind="stable")[:size]))
    assert kept is not None, "a store has partitions"
    return LinkSample(
        split,
        to_numpy(kept["src"]).astype(np.int64),
        to_numpy(kept["dst"]).astype(np.int64),
        to_numpy(kept["key"]),
        to_numpy(kept["time"]) if "time" in names else None,
    )


def known_links(store: GraphStore, sources: IntArray) -> KnownLinks:
    """Return the edges that start at some nodes: 8 bytes for each, one partition read at a time."""
    starts, num_nodes = distinct(sources), store.facts.num_nodes
    found = [np.zeros(0, np.int64)]
    for part in range(store.num_partitions):
        pairs = store.pairs(part, ["src", "dst"])
        # both ends of the partition's pairs, and the ones that start at these nodes
        src, dst = (to_numpy(pairs[name]).astype(np.int64) for name in ("src", "dst"))
        rows = np.flatnonzero(np.isin(src, starts))
        found.append(src[rows] * num_nodes + dst[rows])
    return KnownLinks(distinct(np.concatenate(found)), num_nodes)


def filtered_links(store: GraphStore, task: TaskConfig) -> KnownLinks | None:
    """Return the edges that are no candidates for held-out links; None where every node is one."""
    if not isinstance(task, LinkTask) or not task.negatives.filtered:
        return None
    tables = [store.pairs(part, ["src", "split"]) for part in range(store.num_partitions)]
    held_out = [to_numpy(table["src"])[to_numpy(table["split"]) > SPLITS.index("train")] for table in tables]
    return known_links(store, np.concatenate(held_out).astype(np.int64))


def share_of_edges(store: GraphStore, links: LinkSample, task: LinkTask, *, known: KnownLinks) -> float:
    """Return the expected share of edges among the candidates of some links; 1 without other candidates."""
    plan = PoolPlan.of(task, seed=0)
    weights = [pool_weights(store, part, plan) for part in range(store.num_partitions)]
    # ends of the known edges [E]
    src, dst = np.divmod(known.keys, known.num_nodes)
    starts = distinct(links.sources)
    # weight of all nodes that edges from each source lead to [S]
    of_known = np.bincount(np.searchsorted(starts, src), _weights_of(dst, store, weights), minlength=len(starts))
    # the ends of a link are no candidates
    ends = _weights_of(links.targets, store, weights)
    edges = of_known[np.searchsorted(starts, links.sources)] - ends
    others = sum(part.sum() for part in weights) - ends - _weights_of(links.sources, store, weights)
    # edges, others [P]: weight of the candidates that make an edge, and of all candidates
    shares = np.divide(edges, others, out=np.ones(len(edges)), where=others > 0)
    return float(np.clip(shares, 0, 1).mean()) if len(shares) else 0.0


def _weights_of(nodes: IntArray, store: GraphStore, weights: list[Points]) -> Points:
    """Return the weight of each node as a candidate; 0 where a link cannot lead to its type. weights: by partition."""
    found, book, node_type = np.zeros(len(nodes)), store.book, store.facts.pair_types.target
    owner = book.owner(nodes)
    for part, held in enumerate(weights):
        rows = book.rows(part, node_type)
        # place of each node among the partition's nodes of the type; negative or too large for other nodes
        place = nodes - book.start(part) - rows.start
        some = np.flatnonzero((owner == part) & (place >= 0) & (place < len(held)))
        found[some] = held[place[some]]
    return found
