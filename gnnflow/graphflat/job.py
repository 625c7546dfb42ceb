"""The rounds of GraphFlat in order: select, find and place targets, one round a hop, node rows, shards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graphfeature.shards import ShardEntry
from gnnflow.graphflat import rounds
from gnnflow.graphflat.placement import plan_placement
from gnnflow.mapreduce.rounds import Round
from gnnflow.neighbors.direct import run_rounds as select_edges

if TYPE_CHECKING:
    from gnnflow.graphfeature.shards import Layout
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.neighbors.direct import SelectionPlan
    from gnnflow.storage.filesystem import FileEntry


@dataclass(frozen=True)
class FlatJob:
    """What every GraphFlat task knows. targets: None for labelled nodes with a split, "all", or dense ids [T]."""

    artifact: str
    selection: SelectionPlan
    num_hops: int
    layout: Layout
    targets: Any

    @property
    def target_columns(self) -> list[str]:
        """The node columns a target's row carries."""
        label = ["label"] if self.selection.store.details["label_kind"] != "none" else []
        return ["node", "id", "split", *label]


@dataclass(frozen=True)
class FlatResult:
    """What GraphFlat committed: shards in order with their files, and figures for the report."""

    files: tuple[FileEntry, ...]
    entries: tuple[ShardEntry, ...]
    details: dict[str, Any]


def run_rounds(job: FlatJob, runner: RoundRunner, *, shard_size: int) -> FlatResult:
    """Run GraphFlat. A graph without targets gives no shards."""
    parts = job.selection.store.num_partitions
    selected, hubs = select_edges(job.selection, runner)
    found = runner.run(Round("targets", parts, parts, partial(rounds.find_targets, job=job), selected))
    placement = plan_placement([np.array(record.counts["buckets"]) for record in found], shard_size)
    shards = placement.total_shards
    width = max(parts, shards)
    place = partial(rounds.place_targets, job=job, placement=placement)
    runner.run(Round("place", parts, width, place, {"signed": "targets"}))
    for hop in range(1, job.num_hops + 1):
        expand = partial(rounds.expand_hop, job=job, hop=hop)
        runner.run(Round(f"hop_{hop}", parts, width, expand, {**selected, **_pair_channels(hop)}))
    send = partial(rounds.send_nodes, job=job)
    runner.run(Round("nodes", parts, width, send, _pair_channels(job.num_hops + 1)))
    edges = {f"edges_{hop}": f"hop_{hop}" for hop in range(1, job.num_hops + 1)}
    build = partial(rounds.build_shard, job=job, placement=placement)
    built = runner.run(Round("shards", shards, shards, build, {"targets": "place", "nodes": "nodes", **edges}))
    entries = tuple(ShardEntry(**record.counts["entry"]) for record in built)
    files = tuple(entry for record in built for entry in record.files)
    return FlatResult(files, entries, _details(job, entries, hubs))


def _pair_channels(hop: int) -> dict[str, str]:
    before = "place" if hop == 1 else f"hop_{hop - 1}"
    visited = {} if hop == 1 else {f"visited_{hop - 1}": before}
    return {f"frontier_{hop - 1}": before, **visited}


def _details(job: FlatJob, entries: tuple[ShardEntry, ...], hubs: int) -> dict[str, Any]:
    targets = sum(entry.num_targets for entry in entries)
    bytes_out = sum(entry.num_bytes for entry in entries)
    store = job.selection.store
    return {
        "layout": job.layout,
        "num_hops": job.num_hops,
        "sampling": job.selection.kind,
        "fanouts": job.selection.fanouts,
        "num_targets": targets,
        "hubs": hubs,
        "blow_up": {
            "bytes_in": store.num_bytes,
            "bytes_out": bytes_out,
            "ratio": bytes_out / max(store.num_bytes, 1),
            "bytes_per_target": bytes_out / max(targets, 1),
        },
        "label_kind": store.details["label_kind"],
        "num_classes": store.details["num_classes"],
        "feature": store.details["feature"],
        "attribute_width": store.details["attribute_width"],
        "has_weight": store.details["has_weight"],
    }
