"""The rounds of GraphFlat for targets that are pairs, whose ends are a shard's roots, with a pool for negatives.

Only the first two rounds and the files differ from nodes: a pair is placed by the neighbourhood of its target, and its
two ends and the shard's draws are the first frontier.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import distinct
from gnnflow.graph.splits import split_name
from gnnflow.graphfeature.shards import write_pairs
from gnnflow.graphflat.rounds import assemble, commit_shard
from gnnflow.graphflat.shard_plan import ShardPlan, bucket_counts, signatures
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.neighbors.pairs import draws_of, pool_weights
from gnnflow.storage.columns import to_numpy

if TYPE_CHECKING:
    from gnnflow.graphflat.job import FlatJob
    from gnnflow.mapreduce.exchange import Inbox


def find_pairs(index: int, inbox: Inbox, *, job: FlatJob) -> TaskOutput:
    """Sign each pair that leads to a partition by its target's neighbourhood, and weigh the partition's nodes."""
    assert job.pairs is not None
    store = job.neighbors.store
    pairs = store.pairs(index, ["src", "dst", "key", "split", *store.pair_columns])
    pairs = pairs.filter(pa.array(to_numpy(pairs["split"]) >= 0)).combine_chunks()
    # dense id and local row of each pair's target [P]
    nodes = to_numpy(pairs["dst"])
    edges = job.neighbors.in_edges(index)
    picked = edges.prefix(nodes - store.book.start(index), limit=job.neighbors.fanout(1))
    signature = signatures(nodes, edges.source_offsets(picked), edges.sources_of(picked.positions))
    signed = pairs.append_column("signature", pa.array(signature))
    return TaskOutput(
        emits=(Emit("signed", signed, np.full(len(nodes), index)),),
        counts={
            "targets": len(nodes),
            "buckets": bucket_counts(signature, to_numpy(pairs["split"])).tolist(),
            "weight": float(pool_weights(store, index, job.pairs).sum()),
        },
    )


def place_pairs(index: int, inbox: Inbox, *, job: FlatJob, plan: ShardPlan, weights: tuple[float, ...]) -> TaskOutput:
    """Send each pair to its shard, and its ends and this partition's draws to the first frontier."""
    assert job.pairs is not None
    store, signed = job.neighbors.store, inbox.read("signed")
    keys = to_numpy(signed["key"]).view(np.int64)
    shard = plan.shard_of(keys, to_numpy(signed["signature"]), to_numpy(signed["split"]))
    shards = np.arange(plan.total_shards)
    drawn, drawn_shard, number = draws_of(index, store, shards, job.pairs, weights=np.array(weights))
    # the first frontier: sources, targets and draws
    nodes = np.concatenate([to_numpy(signed["src"]), to_numpy(signed["dst"]), drawn])
    frontier = pa.table({"shard": np.concatenate([shard, shard, drawn_shard]), "node": nodes})
    return TaskOutput(
        emits=(
            Emit("pairs", signed.select(["src", "dst", "key", *store.pair_columns]), shard),
            Emit("pool", pa.table({"node": drawn, "number": number}), drawn_shard),
            Emit("frontier_0", frontier, store.book.owner(nodes)),
        )
    )


def build_pair_shard(index: int, inbox: Inbox, *, job: FlatJob, plan: ShardPlan) -> TaskOutput:
    """Join a shard's pairs, pool, edges and node rows, and commit them with files of the pairs."""
    pairs, pool = inbox.read("pairs").combine_chunks(), inbox.read("pool").combine_chunks()
    # the order of arrival depends on partitions; pairs are stored by key, draws by number
    pairs = pairs.sort_by("key")
    pool = pool.sort_by("number")
    ends = [to_numpy(pairs["src"]), to_numpy(pairs["dst"]), to_numpy(pool["node"])]
    # the nodes that are an end or a draw, ascending [R]
    roots = distinct(np.concatenate(ends))
    code, number = plan.split_of(index)
    name = f"{split_name(code)}-{number:05d}"
    targets = pa.table({"node": roots, "split": pa.array(np.full(len(roots), code, np.int8))})
    neighborhood = assemble(inbox, job, targets)
    source, target, drawn = (np.searchsorted(roots, nodes) for nodes in ends)
    numbered = {name: pa.array(rows.astype(np.int32)) for name, rows in (("source", source), ("target", target))}
    table = pa.table({**numbered, **{name: pairs[name] for name in ("key", *job.neighbors.store.pair_columns)}})
    entry, files = commit_shard(job, neighborhood, targets, name=name, split=split_name(code), num_pairs=len(source))
    pair_files = write_pairs(job.artifact, name, table, drawn)
    return TaskOutput(files=(*files, *pair_files), counts={"entry": asdict(entry), "targets": entry.num_pairs})
