"""Where edges are the targets: which are held out, and that no edge carries messages that would tell of one.

An edge's split is a function of its two ends, whichever comes first, or of its time, or a column of the table. A column
may put an edge and its reverse into different splits: then the later split (train, valid, test) has both. So each
held-out pair is told to the owners of both its ends, who leave every copy of an earlier split out. Where edges have
times this is not asked: an earlier edge between the same ends is history, and a later one is hidden where the pair is
scored (`graphfeature/times.py`).

Shapes: E edges, H held-out pairs, P targets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest import rounds
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.sampling import edge_keys
from gnnflow.sampling.pairs import pair_keys, random_splits, sampled_times, time_bounds, time_splits
from gnnflow.storage.columns import id_keys, take_rows, to_numpy
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray
    from gnnflow.graph.book import PartitionBook
    from gnnflow.ingest.job import IngestJob
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.mapreduce.exchange import Inbox

TimeBounds = tuple[int, int]

_TRAIN = SPLITS.index("train")
_STORED = ("src", "dst", "key", "split", "label", "attributes", "time")
_OF_TARGETS = ("split", "label", "labelled")


def sample_times(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Do what `rounds.resolve_sources` does, and send a sample of the times of targets to one task."""
    assert job.targets is not None
    done = rounds.resolve_sources(index, inbox, job=job, book=book)
    rows = done.emits[0].rows
    source, target = to_numpy(rows["src_key"]), id_keys(rows["dst_id"])
    is_target = to_numpy(rows["labelled"]) if job.targets.have_labels else source != target
    found = np.flatnonzero(is_target)
    keys, times = pair_keys(source[found], target[found]), to_numpy(rows["time"])[found]
    kept = sampled_times(keys, times, seed=job.targets.seed)
    sample = pa.table({"key": keys[kept], "time": times[kept]})
    return replace(done, emits=(*done.emits, Emit("times", sample, np.zeros(len(kept), np.int64))))


def bound_times(index: int, inbox: Inbox, *, job: IngestJob) -> TaskOutput:
    """Say from which times on edges are held out: one task, from the samples of all."""
    assert job.targets is not None
    split = job.targets.task.split
    assert split.kind == "time"
    sample = inbox.read("times")
    keys, times = to_numpy(sample["key"]), to_numpy(sample["time"])
    kept = sampled_times(keys, times, seed=job.targets.seed)
    return TaskOutput(counts={"bounds": list(time_bounds(times[kept], valid=split.valid, test=split.test))})


def split_edges(
    index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook, bounds: TimeBounds | None
) -> TaskOutput:
    """Send the edges into a partition on: those that carry messages, those that are targets, and the held-out pairs."""
    assert job.targets is not None
    rows, done = rounds.known_edges(index, inbox, job=job, book=book)
    src, dst = to_numpy(rows["src"]), to_numpy(rows["dst"])
    # split code of each edge [E]; one without a label is no target, nor is a loop where edges are what is looked for
    is_target = to_numpy(rows["labelled"]) if job.targets.have_labels else src != dst
    codes = _codes(rows, job.targets, bounds)
    split = np.where(is_target, codes, -1).astype(np.int8)
    # Labels of edges are published for all; links are told from pairs that are none.
    pairs = _without(rows, ("split", "weight") if job.targets.have_labels else ("split", "weight", "attributes"))
    pairs = pairs.append_column("split", pa.array(split))
    pairs = take_rows(pairs, np.flatnonzero((split >= 0) | job.targets.have_labels))
    # Where the last edges are held out, none as late as these carries messages, whether it is a target or not.
    carries = ((codes if bounds is not None else split) <= _TRAIN) | job.targets.held_out_carry
    carrying = _without(take_rows(rows, np.flatnonzero(carries)), _OF_TARGETS)
    if job.config.reverse_edges:
        carrying, _ = rounds.both_ways(carrying, job.tables.edges[0])
    held = (split > _TRAIN) & job.targets.hides_copies
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
        Emit("pairs", pairs, np.full(pairs.num_rows, index)),
        Emit("held", ends, book.owner(to_numpy(ends["dst"]))),
    )
    return replace(done, emits=emits)


def _without(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return rows.drop_columns([name for name in names if name in rows.column_names])


def _codes(rows: pa.Table, targets: EdgeTargets, bounds: TimeBounds | None) -> Array:
    split = targets.task.split
    if split.kind == "column":
        return to_numpy(rows["split"])
    if split.kind == "time":
        assert bounds is not None
        return time_splits(to_numpy(rows["time"]), bounds)
    keys = pair_keys(to_numpy(rows["src_key"]), to_numpy(rows["dst_key"]))
    return random_splits(keys, seed=targets.seed, valid=split.valid, test=split.test)


def build_links(index: int, inbox: Inbox, *, job: IngestJob, book: PartitionBook) -> TaskOutput:
    """Build a partition from the edges that carry messages and write its targets, both without held-out copies."""
    assert job.targets is not None
    edges, pairs = inbox.read("edges_both").combine_chunks(), inbox.read("pairs").combine_chunks()
    held, split = _latest(inbox.read("held"), book)
    kept_edges = _split_of(_pair(edges, book), held, split) < 0
    # targets in (dst, src) order, those of one pair in the order of the table [P]
    pairs = take_rows(pairs, np.lexsort((to_numpy(pairs["place"]), _pair(pairs, book))))
    number = rounds.occurrences(to_numpy(pairs["dst"]), to_numpy(pairs["src"]))
    keys = edge_keys(to_numpy(pairs["dst_key"]), to_numpy(pairs["src_key"]), number)
    pairs = pairs.append_column("key", pa.array(keys))
    if job.targets.are_pairs:
        copies = _split_of(_pair(pairs, book), held, split) > to_numpy(pairs["split"])
        pairs = take_rows(pairs, np.flatnonzero((number == 0) & ~copies))
    built = rounds.build_edges(index, take_rows(edges, np.flatnonzero(kept_edges)), job=job, book=book)
    stored = pairs.select([name for name in _STORED if name in pairs.column_names])
    entry = commit_table(job.artifact, f"pairs-{index:05d}.parquet", stored)
    counts = {**_counts(pairs, job), "copies_left_out": int((~kept_edges).sum())}
    return TaskOutput(emits=built.emits, files=(*built.files, entry), counts={**built.counts, **counts})


def _counts(pairs: pa.Table, job: IngestJob) -> dict[str, Any]:
    counts: dict[str, Any] = {"splits": np.bincount(to_numpy(pairs["split"]) + 1, minlength=1 + len(SPLITS)).tolist()}
    schema = job.tables.edges[0].schema
    if schema.has_labels:
        counts["labelled"] = int(to_numpy(pairs["labelled"]).sum())
    if schema.has_labels and LABEL_KINDS[schema.label_kind].is_class:
        counts["label_max"] = int(to_numpy(pairs["label"]).max(initial=-1))
    return counts


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
