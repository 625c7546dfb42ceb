"""Baselines of labels of edges: the most frequent class or the mean, and trees on the columns of edge and both ends.

Shapes: N drawn edges, F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.hashing import combine, seed_word
from gnnflow.graph.run_facts import BaselineFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import labels_of
from gnnflow.storage.columns import to_matrix, to_numpy
from gnnflow.train.baselines.nodes import MOST_COLUMNS, score_baselines
from gnnflow.train.baselines.rows import most_rows, own_columns

if TYPE_CHECKING:
    from gnnflow.config.train_keys import Baseline
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class DrawnEdges:
    """Labelled edges of one split: both ends as dense ids [N], their labels, and their attributes [N, F].

    parts, rows: the partition that holds an edge, and its row among the stored ones there [N].
    """

    parts: IntArray
    rows: IntArray
    sources: IntArray
    targets: IntArray
    labels: Array
    attributes: FloatArray


def edge_baselines(
    store: GraphStore,
    kinds: Sequence[Baseline],
    *,
    seed: int,
    threads: int,
    tell: Callable[[str], None],
    positive: int | None = None,
) -> tuple[BaselineFacts, dict[str, Array]]:
    """Score baselines of edges on valid and test, and tell the time that each takes.

    positive: see `metrics_of`.

    Returns the scores, and the test edges: `part`, `row` and `label` [N], and each baseline's outputs [N, C].
    """
    facts, ends = store.facts, _end_widths(store)
    if not facts.splits.get("train"):
        return BaselineFacts({}, 0, {}, dict.fromkeys(kinds, "the graph has no training labels")), {}
    width = facts.pair_attribute_width + sum(ends)
    why = "edges and their ends have no columns" if not width else ""
    why = why or (f"{width:,} columns are more than {MOST_COLUMNS:,}" if width > MOST_COLUMNS else "")
    left_out: dict[str, str] = {"trees": why} if why and "trees" in kinds else {}
    kept = [kind for kind in kinds if kind not in left_out]
    most = most_rows(width if "trees" in kept else 0)
    drawn = {split: draw_edges(store, split, most=most, seed=seed) for split in SPLITS if facts.splits.get(split)}

    def columns_of(_: Baseline) -> dict[str, FloatArray]:
        return {split: _columns(store, each, ends) for split, each in drawn.items()}

    labels = {split: each.labels for split, each in drawn.items()}
    scored = score_baselines(store, kept, labels, columns_of, seed=seed, threads=threads, tell=tell, positive=positive)
    counts = {split: len(each) for split, each in labels.items() if split != "train"}
    test = {}
    if (held := drawn.get("test")) is not None:
        test = {"part": held.parts, "row": held.rows, "label": held.labels, **scored.test}
    return BaselineFacts(scored.metrics, len(labels["train"]), counts, left_out), test


def _end_widths(store: GraphStore) -> tuple[int, int]:
    """Return the number of columns of an edge's source and of its target."""
    found = [store.facts.features_of_types[number] for number in store.facts.pair_types]
    source, target = (0 if each is None else each.width for each in found)
    return source, target


def draw_edges(store: GraphStore, split: str, *, most: int, seed: int) -> DrawnEdges:
    """Return up to `most` edges of a split, those with the smallest hashes."""
    word, kept = seed_word("baseline edges", seed), None
    attributes = ["attributes"] * bool(store.facts.pair_attribute_width)
    for part in range(store.num_partitions):
        pairs = store.pairs(part, ["src", "dst", "key", "split", "label", *attributes])
        rows = np.flatnonzero(to_numpy(pairs["split"]) == SPLITS.index(split))
        own = pairs.take(pa.array(rows))
        own = own.append_column("part", pa.array(np.full(len(rows), part))).append_column("row", pa.array(rows))
        both = own if kept is None else pa.concat_tables([kept, own])
        kept = both.take(pa.array(np.argsort(combine(to_numpy(both["key"]), word), kind="stable")[:most]))
    assert kept is not None, "a store has partitions"
    parts, rows, sources, targets = (to_numpy(kept[name]).astype(np.int64) for name in ("part", "row", "src", "dst"))
    held = to_matrix(kept["attributes"]) if attributes else np.zeros((kept.num_rows, 0), np.float32)
    return DrawnEdges(parts, rows, sources, targets, labels_of(kept["label"]), held)


def _columns(store: GraphStore, drawn: DrawnEdges, ends: tuple[int, int]) -> FloatArray:
    """Return the columns of edges: their attributes, then the columns of source and target [N, F]."""
    parts = [drawn.attributes]
    for nodes, width in zip((drawn.sources, drawn.targets), ends, strict=True):
        if width and len(nodes):
            distinct, place = np.unique(nodes, return_inverse=True)
            parts.append(own_columns(store, distinct)[place])
        else:
            parts.append(np.zeros((len(nodes), width), np.float32))
    return np.concatenate(parts, axis=1)
