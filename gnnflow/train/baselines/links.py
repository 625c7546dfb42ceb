"""Baselines of links: candidates ranked by counts of training edges, among as many as the model ranks.

Candidates are drawn by the model's rule from the pool of a graph in memory (`train.source: store`): the model's own
there; elsewhere the pool is another draw of the same nodes.

Shapes: B pairs, K negatives of each, M distinct candidates, S distinct sources, E training edges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct, find_places
from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.run_facts import BaselineFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.neighbors.link_candidates import filtered_links
from gnnflow.neighbors.pairs import StoredPairs
from gnnflow.sampling import top_k_ungrouped
from gnnflow.sampling.pairs import EVALUATION
from gnnflow.storage.columns import to_numpy
from gnnflow.train.heads import PairRule
from gnnflow.train.metrics import metrics_of
from gnnflow.train.minibatch.in_memory import pool_of_split

if TYPE_CHECKING:
    from gnnflow.config import LinkTask
    from gnnflow.config.train_keys import Baseline
    from gnnflow.graph.arrays import Array, IntArray, KeyArray
    from gnnflow.storage.graph_store import GraphStore

MOST_LINKS = 10_000  # of a split, those with the smallest hashes
MOST_SCORES = 2_000_000  # links times candidates of a split
MOST_EDGES = 200  # of a source, and of a target: the interaction cut of Schelter et al. (RecSys 2012)
MOST_HELD = 20_000_000  # training edges that item-kNN holds, about 150 bytes each at the most
_SHOWN = 10
ITEMS_SHOWN = f"items_at_{_SHOWN}"
"""The metric of how many distinct targets a ranking shows."""
_SOURCES_AT_ONCE = 512


@dataclass(frozen=True)
class RankedLinks:
    """Held-out links of one split: sources [B] and candidates [B, 1 + K], the true target first, as dense ids."""

    sources: IntArray
    candidates: IntArray


def link_baselines(
    store: GraphStore, task: LinkTask, kinds: Sequence[Baseline], *, seed: int, tell: Callable[[str], None]
) -> tuple[BaselineFacts, dict[str, Array]]:
    """Score baselines of links on valid and test, and tell the time that each takes.

    Returns the scores, and the test links: `src` [B], `candidates` and each baseline's scores [B, 1 + K].
    """
    left_out: dict[str, str] = {kind: why for kind in kinds if (why := _obstacle(store, kind))}
    rule = PairRule(task, seed, filtered_links(store, task))
    splits = [split for split in ("valid", "test") if store.facts.splits.get(split)]
    ranked = {split: draw_links(store, rule, split) for split in splits}
    metrics: dict[str, float] = {}
    test: dict[str, Array] = {}
    if "test" in ranked:
        test = {"src": ranked["test"].sources, "candidates": ranked["test"].candidates}
    for kind in [kind for kind in kinds if kind not in left_out]:
        begin = time.monotonic()
        for split, links in ranked.items():
            scores = _SCORES[kind](store, links).astype(np.float32)
            if split == "test":
                test[kind] = scores
            labels = np.zeros(len(scores), np.int64)
            found = metrics_of(scores, labels, label_kind="link", intervals=split == "test")
            metrics |= {f"{kind}.{name}": value for name, value in found.named(split).items()}
            metrics[f"{kind}.{split}.{ITEMS_SHOWN}"] = items_shown(scores, links.candidates)
        tell(f"baselines: {kind} in {time.monotonic() - begin:.1f} s")
    counts = {split: len(links.sources) for split, links in ranked.items()}
    edges = store.facts.splits.get("train", 0)
    return BaselineFacts(metrics, edges, counts, left_out, 1 + task.negatives.evaluation), test


def _obstacle(store: GraphStore, kind: Baseline) -> str:
    """Return why a baseline has no score on this graph; empty where it has one."""
    edges = store.facts.splits.get("train", 0)
    if kind == "most_recent" and "time" not in store.pair_columns:
        return "edges have no times (graph.timestamp)"
    if kind == "item_knn" and edges > MOST_HELD:
        return f"{edges:,} training edges are more than {MOST_HELD:,}, which it holds in memory"
    return ""


def draw_links(
    store: GraphStore, rule: PairRule, split: str, *, most: int = MOST_LINKS, pool: IntArray | None = None
) -> RankedLinks:
    """Return up to `most` links of a split, those with the smallest hashes, and their candidates.

    pool: the nodes that candidates are drawn from; by default as many as the model's.
    """
    assert rule.task.kind == "link"
    most = max(1, min(most, MOST_SCORES // (1 + rule.task.negatives.evaluation)))
    word, kept = seed_word("baseline links", rule.seed), None
    for part in range(store.num_partitions):
        pairs = store.pairs(part, ["src", "dst", "key", "split"])
        own = pairs.filter(pa.array(to_numpy(pairs["split"]) == SPLITS.index(split)))
        both = own if kept is None else pa.concat_tables([kept, own])
        kept = both.take(pa.array(np.argsort(combine(to_numpy(both["key"]), word), kind="stable")[:most]))
    assert kept is not None, "a store has partitions"
    sources, targets = (to_numpy(kept[name]).astype(np.int64) for name in ("src", "dst"))
    zeros = np.zeros_like(sources)
    drawn = StoredPairs(sources, targets, to_numpy(kept["key"]), zeros, zeros, zeros, None, None)
    pool = pool_of_split(store, rule.task, split, seed=rule.seed) if pool is None else pool
    candidates = rule.candidates(drawn, np.arange(len(sources)), pool=pool, split=split, epoch=EVALUATION)
    return RankedLinks(sources, candidates)


def items_shown(scores: Array, candidates: IntArray) -> int:
    """Return how many distinct targets are among the first ten candidates of any link; both [B, 1 + K]."""
    first = np.argsort(-scores, axis=1, kind="stable")[:, :_SHOWN]
    return len(np.unique(np.take_along_axis(candidates, first, axis=1)))


def _popularity(store: GraphStore, links: RankedLinks) -> Array:
    """Return the number of training edges that lead to each candidate [B, 1 + K]."""
    nodes, place = np.unique(links.candidates, return_inverse=True)
    counts = np.zeros(len(nodes))
    for edges in _train_edges(store, ["dst"]):
        counts += _counted(nodes, edges["dst"])
    return counts[place].reshape(links.candidates.shape)


def _most_recent(store: GraphStore, links: RankedLinks) -> Array:
    """Return the rank of the time of the last training edge that leads to each candidate [B, 1 + K]."""
    nodes, place = np.unique(links.candidates, return_inverse=True)
    last = np.full(len(nodes), np.iinfo(np.int64).min)
    for edges in _train_edges(store, ["dst", "time"]):
        found = find_places(nodes, edges["dst"])
        np.maximum.at(last, found[found >= 0], edges["time"][found >= 0].astype(np.int64))
    # ranks, since times as float32 would make different ones equal
    return np.unique(last, return_inverse=True)[1][place].reshape(links.candidates.shape).astype(np.float64)


def _item_knn(store: GraphStore, links: RankedLinks) -> Array:
    """Return the summed cosines of each candidate and the targets of its source's training edges [B, 1 + K].

    The cosine of two targets counts the sources that have edges to both. A candidate is not compared with itself. Of a
    node with many edges MOST_EDGES count, those with the smallest keys.
    """
    from scipy.sparse import csr_array

    sources, targets = _cut_edges(store)
    users, row = np.unique(sources, return_inverse=True)
    items, column = np.unique(targets, return_inverse=True)
    # training edges of each source, as a row of ones at its targets; then with each column of length 1
    held = csr_array((np.ones(len(row)), (row, column)), shape=(len(users), len(items)))
    held.data[:] = 1.0  # parallel edges count once
    lengths = np.sqrt(held.sum(axis=0))
    scaled = held.multiply(1 / np.maximum(lengths, 1.0)).tocsr()
    scores = np.zeros(links.candidates.shape)
    starts, of_link = np.unique(links.sources, return_inverse=True)
    at = find_places(users, starts)
    known = np.flatnonzero(at >= 0)
    place = find_places(items, links.candidates.ravel()).reshape(links.candidates.shape)
    for first in range(0, len(known), _SOURCES_AT_ONCE):
        some = known[first : first + _SOURCES_AT_ONCE]
        own = held[at[some]]
        # from the targets of each source to the sources of these, and on to the targets of those
        similar = (own @ scaled.T @ scaled) - own
        of_some = np.full(len(starts), -1)
        of_some[some] = np.arange(len(some))
        rows = np.flatnonzero(of_some[of_link] >= 0)
        for block in np.array_split(rows, max(1, len(rows) // _SOURCES_AT_ONCE)):
            # one dense row for each source of the block would not fit where items are many
            picked, inside = of_some[of_link[block]], place[block]
            lines = np.repeat(picked, inside.shape[1])
            found = np.asarray(similar[lines, np.maximum(inside.ravel(), 0)]).ravel()
            scores[block] = np.where(inside >= 0, found.reshape(inside.shape), 0.0)
    return scores


_SCORES: dict[str, Callable[[GraphStore, RankedLinks], Array]] = {
    "popularity": _popularity,
    "most_recent": _most_recent,
    "item_knn": _item_knn,
}


def _train_edges(store: GraphStore, names: Sequence[str]) -> Iterator[dict[str, Array]]:
    """Yield columns of the training edges that lead to each partition."""
    for part in range(store.num_partitions):
        pairs = store.pairs(part, [*names, "split"])
        rows = np.flatnonzero(to_numpy(pairs["split"]) == SPLITS.index("train"))
        yield {name: to_numpy(pairs[name])[rows] for name in names}


def _cut_edges(store: GraphStore) -> tuple[IntArray, IntArray]:
    """Return sources and targets of the training edges [E], at most MOST_EDGES of a target and of a source."""
    found: list[tuple[IntArray, IntArray, KeyArray]] = []
    for edges in _train_edges(store, ["src", "dst", "key"]):
        kept = _first_of(edges["dst"], edges["key"])
        found.append((edges["src"][kept].astype(np.int64), edges["dst"][kept].astype(np.int64), edges["key"][kept]))
    sources, targets, keys = (np.concatenate(each) for each in zip(*found, strict=True))
    kept = _first_of(sources, keys)
    return sources[kept], targets[kept]


def _first_of(nodes: IntArray, keys: KeyArray) -> IntArray:
    """Return which edges are among the first MOST_EDGES of their node by a hash of their keys."""
    groups = distinct(nodes)
    order = combine(keys, seed_word("interaction cut"))
    return top_k_ungrouped(
        np.searchsorted(groups, nodes), order, num_targets=len(groups), tie=keys, limit=MOST_EDGES
    ).edges


def _counted(nodes: IntArray, ends: IntArray) -> IntArray:
    """Return how many of the ends are each of the nodes [M], which ascend."""
    found = find_places(nodes, ends)
    return np.bincount(found[found >= 0], minlength=len(nodes))
