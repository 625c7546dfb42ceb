"""Plans shards of equal size: targets that share neighbours share shards.

Each target's signature is the smallest hash among itself and its kept in-neighbours (min-hash: two targets agree with
the probability of their neighbourhoods' Jaccard overlap; Broder 1997). Targets are laid out in signature order and cut
into equal pieces. The order is never sorted globally: every partition counts its targets per bucket of signatures, the
counts add up to a cumulative distribution, and a target's place in it follows from its own signature. Buckets fuller
than a shard (many accounts pay one merchant) are spread by the target's own hash instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnnflow.graph.hashing import hash_integers, mix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import IntArray, KeyArray
    from gnnflow.graph.facts import FeatureFacts, GraphFacts
    from gnnflow.graph.sampling import Fanout

NUM_BUCKETS = 1024
MOST_SHARD_BYTES = 512 << 20  # decoded; a worker holds it a few times while it builds it, and protobuf ends at 2 GiB
_NODE_BYTES, _EDGE_BYTES = 32, 8  # id, degrees and weight of a node; source and weight of an edge
_LEAF_BYTES, _LEAVES_BYTES = 4, 8  # of an edge with leaves: each of them, and where they begin
_DEGREE_BYTES = 24  # of a node in one more relation
_SPARSE_ENTRIES = 100  # of a node, where the store does not say how many there are
_LEAVES = 4  # of an edge, where they differ from edge to edge
_BUCKET_BITS = np.uint64(54)  # shifted away, the upper 10 bits are left: a bucket
_FRACTION_BITS = np.uint64(11)  # shifted away, 53 bits are left: as many as a float64 holds
_UNIT = 2.0**-53


class SplitShard(NamedTuple):
    """A shard by the code of its split, and its number within the split."""

    split: int
    number: int


@dataclass(frozen=True)
class ShardPlan:
    """The cut of each split's signature order into shards.

    first_shard [splits]; num_shards [splits]; counts [splits, NUM_BUCKETS] targets per bucket.
    """

    first_shard: IntArray
    num_shards: IntArray
    counts: IntArray
    shard_size: int

    @property
    def total_shards(self) -> int:
        """Number of shards of all splits."""
        return int(self.num_shards.sum())

    def split_of(self, shard: int) -> SplitShard:
        """Return a shard's (split code, number within the split)."""
        split = int(np.searchsorted(self.first_shard, shard, side="right")) - 1
        while not self.num_shards[split]:
            split -= 1
        return SplitShard(split - 1, int(shard - self.first_shard[split]))

    def shard_of(self, nodes: IntArray, signature: KeyArray, split: IntArray) -> IntArray:
        """Return the shard of each target [T]."""
        # row of counts (split) and column (bucket) of each target [T]
        row, bucket = split.astype(np.int64) + 1, bucket_of(signature)
        # targets of a split that lie in earlier buckets [splits, NUM_BUCKETS]
        before = np.cumsum(self.counts, axis=1) - self.counts
        # whether a target's bucket is spread by the target's own hash [T]
        full = self.counts[row, bucket] > self.shard_size // 2
        # hashed twice, since a first hash above the signature is not uniform
        word = np.where(full, mix(hash_integers(nodes)), mix(signature) << np.uint64(10))
        # a target's place in its bucket [T], from 0 to below 1: the upper 53 bits of its word
        fraction = (word >> _FRACTION_BITS).astype(np.float64) * _UNIT
        # its estimated place in its split's order [T], and how many targets that split has
        position = before[row, bucket] + fraction * self.counts[row, bucket]
        total = self.counts.sum(1)[row]
        # its shard's number within the split [T]
        number = np.minimum((position * self.num_shards[row] / total).astype(np.int64), self.num_shards[row] - 1)
        shard: IntArray = self.first_shard[row] + number
        return shard


def bucket_of(signature: KeyArray) -> IntArray:
    """Return each signature's bucket."""
    return (mix(signature) >> _BUCKET_BITS).astype(np.int64)


def signatures(nodes: IntArray, offsets: IntArray, sources: IntArray) -> KeyArray:
    """Return each target's signature [T].

    offsets [R T + 1] group sources [L], its kept in-neighbours' dense ids in each of R relations, one after the other.
    """
    own = hash_integers(nodes)
    if not len(nodes):
        return own
    # hash of each source [L]; one entry more, because reduceat reads one also where the last target has no edge
    hashed = np.append(hash_integers(sources), np.uint64(np.iinfo(np.uint64).max))
    # smallest among a target's sources [R T]; where it has none reduceat gives another's, which is not used
    lowest = np.minimum.reduceat(hashed, offsets[:-1])
    lowest = np.where(np.diff(offsets) > 0, lowest, hashed[-1]).reshape(-1, len(nodes)).min(0)
    signed: KeyArray = np.minimum(own, lowest)
    return signed


def bucket_counts(signature: KeyArray, split: IntArray) -> IntArray:
    """Return targets per (split, bucket) [4, NUM_BUCKETS]."""
    # each target's cell in that matrix, row by row [T]; split codes start at -1
    cell = (split.astype(np.int64) + 1) * NUM_BUCKETS + bucket_of(signature)
    return np.bincount(cell, minlength=4 * NUM_BUCKETS).reshape(4, NUM_BUCKETS)


def bounded_shard_size(facts: GraphFacts, limits: Sequence[Fanout | None], *, shard_size: int) -> int:
    """Return the number of targets of a shard: shard_size, or fewer where neighbourhoods would be too large.

    limits: fan-outs per hop, None keeps every in-edge. A neighbourhood is estimated to grow by each relation's mean
    in-degree, capped by the fan-out, with all leaves of an edge of its source's type; neighbourhoods overlap as if
    their nodes were drawn at random, so that no shard outgrows the graph.
    """
    schema = facts.schema
    sizes = [each.num_nodes for each in facts.types] or [facts.num_nodes]
    num_edges = [each.num_edges for each in facts.relations] or [facts.num_edges]
    nodes, edges = _reached(facts, limits, sizes=sizes, num_edges=num_edges)
    per_node = [_node_bytes(features, schema.num_relations) for features in facts.features_of_types]
    per_edge = _EDGE_BYTES + 4 * facts.attribute_width
    per_edge_of_leaves = [0 if each == 1 else _LEAVES_BYTES + _LEAF_BYTES * (each - 1) for each in _leaves(facts)]

    def size(targets: int) -> float:
        of_nodes = zip(nodes, sizes, per_node, strict=True)
        held = sum(_distinct(targets * each, among) * width for each, among, width in of_nodes)
        of_edges = [_distinct(targets * each, among) for each, among in zip(edges, num_edges, strict=True)]
        of_leaves = sum(each * width for each, width in zip(of_edges, per_edge_of_leaves, strict=True))
        return held + sum(of_edges) * per_edge + of_leaves

    while shard_size > 1 and size(shard_size) > MOST_SHARD_BYTES:
        shard_size = (shard_size + 1) // 2
    return shard_size


class _Reached(NamedTuple):
    """Numbers of nodes of each type, and of edges of each relation."""

    nodes: Sequence[float]
    edges: Sequence[float]


def _reached(
    facts: GraphFacts, limits: Sequence[Fanout | None], *, sizes: Sequence[int], num_edges: Sequence[int]
) -> _Reached:
    """Return the numbers of nodes and edges that a target reaches, with itself."""
    schema, leaves = facts.schema, _leaves(facts)
    # a pair has an end of each of its types, and is two targets
    among = facts.target_types
    reached = [float(number in among) / len(among) for number in range(schema.num_types)]
    nodes, edges = list(reached), [0.0] * schema.num_relations
    for fanout in limits:
        before, reached = reached, [0.0] * schema.num_types
        for number, (source, target) in enumerate(zip(schema.source_types, schema.target_types, strict=True)):
            limit = fanout[number] if isinstance(fanout, tuple) else fanout
            mean_degree = num_edges[number] / max(sizes[target], 1)
            added = before[target] * (mean_degree if limit is None else min(limit, mean_degree))
            reached[source] += added * leaves[number]
            edges[number] += added
        nodes = [old + new for old, new in zip(nodes, reached, strict=True)]
    return _Reached(nodes, edges)


def _leaves(facts: GraphFacts) -> list[int]:
    """Return about the number of leaves of an edge of each relation."""
    return [each or _LEAVES for each in facts.leaves_of_relations]


def _node_bytes(features: FeatureFacts | None, num_relations: int) -> int:
    """Return the bytes of a node: its id, its degrees in each relation, and its features."""
    held = 0 if features is None else features.row_bytes if features.kind == "dense" else 4 * _SPARSE_ENTRIES
    return _NODE_BYTES + _DEGREE_BYTES * (num_relations - 1) + held


def _distinct(draws: float, among: int) -> float:
    """Return the expected number of distinct values in a number of draws among so many."""
    return among * -np.expm1(-draws / among) if among else 0.0


def plan_shards(counts: Sequence[IntArray], shard_size: int) -> ShardPlan:
    """Return the plan for partitions' bucket counts."""
    # targets of all partitions [splits, NUM_BUCKETS]
    total = np.sum(counts, axis=0).astype(np.int64)
    # shards of each split, the last one perhaps smaller, and the number of its first [splits]
    num_shards = -(-total.sum(1) // shard_size)
    first = np.cumsum(num_shards) - num_shards
    return ShardPlan(first, num_shards, total, shard_size)
