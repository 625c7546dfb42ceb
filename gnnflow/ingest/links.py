"""Where edges are what is predicted: which are held out, and that none of these, nor a copy of one, carries messages.

An edge's split is a function of its two ends, whichever comes first, or a column of the table. A column may put an edge
and its reverse into different splits: then the later split (train, valid, test) has both. So each held-out pair is told
to the owners of both its ends, who leave every copy of an earlier split out.

Shapes: E edges, H held-out pairs, P pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import rounds
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.sampling import edge_keys
from gnnflow.sampling.pairs import pair_keys, random_splits
from gnnflow.storage.columns import take_rows, to_numpy
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.ingest.job import IngestJob
    from gnnflow.mapreduce.exchange import Inbox

_TRAIN = SPLITS.index("train")
_COLUMNS = ("src", "dst", "key", "split")


def split_edges(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Send the edges into a partition on: those that carry messages, those that are targets, and the held-out pairs."""
    rows, done = rounds.known_edges(index, inbox, job=job, book=book)
    src, dst = to_numpy(rows["src"]), to_numpy(rows["dst"])
    # split code of each edge [E]; a loop is no target
    split = np.where(src == dst, -1, _codes(rows, job)).astype(np.int8)
    carrying = take_rows(rows, np.flatnonzero(split <= _TRAIN))
    carrying = carrying.drop_columns(["split"]) if "split" in carrying.column_names else carrying
    if job.config.reverse_edges:
        carrying = rounds.both_ways(carrying)
    targets = np.flatnonzero(split >= 0)
    keys = edge_keys(to_numpy(rows["dst_key"]), to_numpy(rows["src_key"]), np.zeros(len(src), np.int64))
    pairs = pa.table({"src": src, "dst": dst, "key": keys, "split": split}).take(pa.array(targets))
    held = split > _TRAIN
    # held-out pairs in both directions [2H]
    ends = pa.table(
        {
            "src": np.concatenate([src[held], dst[held]]),
            "dst": np.concatenate([dst[held], src[held]]),
            "split": np.concatenate([split[held], split[held]]),
        }
    )
    emits = (
        Emit("edges_both", carrying, book.owner(to_numpy(carrying["dst"]))),
        Emit("pairs", pairs, np.full(len(targets), index)),
        Emit("held", ends, book.owner(to_numpy(ends["dst"]))),
    )
    return replace(done, emits=emits)


def _codes(rows: pa.Table, job: IngestJob) -> Array:
    assert job.links is not None
    if job.links.shares is None:
        return to_numpy(rows["split"])
    valid, test = job.links.shares
    return random_splits(
        pair_keys(to_numpy(rows["src_key"]), to_numpy(rows["dst_key"])), seed=job.links.seed, valid=valid, test=test
    )


def build_links(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Build a partition from the edges that carry messages and write its pairs, both without held-out copies."""
    edges, pairs = inbox.read("edges_both").combine_chunks(), inbox.read("pairs").combine_chunks()
    held, split = _latest(inbox.read("held"), book)
    kept_edges = _split_of(_pair(edges, book), held, split) < 0
    pair, code = _pair(pairs, book), to_numpy(pairs["split"])
    # pairs in (dst, src) order, of equal ones the first [P]
    order = np.argsort(pair, kind="stable")
    first = np.ones(len(order), bool)
    first[1:] = pair[order][1:] != pair[order][:-1]
    copies = _split_of(pair, held, split) > code
    pairs = take_rows(pairs, order[first & ~copies[order]])
    built = rounds.build_edges(index, take_rows(edges, np.flatnonzero(kept_edges)), job=job, book=book)
    entry = commit_table(job.artifact, f"pairs-{index:05d}.parquet", pairs.select(_COLUMNS))
    counts = {
        "splits": np.bincount(to_numpy(pairs["split"]) + 1, minlength=1 + len(SPLITS)).tolist(),
        "copies_left_out": int((~kept_edges).sum()),
    }
    return TaskOutput(emits=built.emits, files=(*built.files, entry), counts={**built.counts, **counts})


def _pair(table: pa.Table, book: PartitionBook) -> IntArray:
    """Return each edge's two ends as one integer that orders by (dst, src) [E]."""
    pair: IntArray = to_numpy(table["dst"]) * book.num_nodes + to_numpy(table["src"])
    return pair


def _latest(table: pa.Table, book: PartitionBook) -> tuple[IntArray, Array]:
    """Return the distinct held-out pairs, ascending [H], and the latest split that each is in."""
    pair, split = _pair(table, book), to_numpy(table["split"])
    order = np.lexsort((split, pair))
    pair, split = pair[order], split[order]
    last = np.ones(len(pair), bool)
    last[:-1] = pair[1:] != pair[:-1]
    return pair[last], split[last]


def _split_of(pairs: IntArray, held: IntArray, split: Array) -> Array:
    """Return the split code that each pair is held out for, -1 for none."""
    if not len(held):
        return np.full(len(pairs), -1, np.int8)
    place = np.minimum(np.searchsorted(held, pairs), len(held) - 1)
    return np.where(held[place] == pairs, split[place], -1)
