"""The order of GraphFlat's rounds: find targets, place them, one round per hop, node rows, shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.errors import TrainingError
from gnnflow.graph.facts import BlowUp, FlatFacts, ShardEntry
from gnnflow.graphflat import rounds
from gnnflow.graphflat.shard_plan import bounded_shard_size, plan_shards
from gnnflow.mapreduce.rounds import Round
from gnnflow.mapreduce.way import way_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graphflat.job import FlatJob
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.mapreduce.way import Way
    from gnnflow.storage.writing import FileEntry


@dataclass(frozen=True)
class FlatResult:
    """The files that GraphFlat committed and, in its facts, the shards in order. way: of features to the shards."""

    files: tuple[FileEntry, ...]
    facts: FlatFacts
    way: Way


def run_rounds(job: FlatJob, runner: RoundRunner, *, shard_size: int) -> FlatResult:
    """Run GraphFlat. A graph without targets gives no shards."""
    parts = job.neighbors.store.num_partitions
    way = way_in(runner, mapped_bytes=job.mapped_bytes, asked=job.mapped)
    job = replace(job, mapped=way.mapped)
    found = runner.run(Round("targets", parts, parts, partial(rounds.find_targets, job=job)))
    limits = job.neighbors.sampling.of_hops(job.num_hops)
    ends = 1 if job.pairs is None else 2
    shard_size = max(1, bounded_shard_size(job.neighbors.store.facts, limits, shard_size=ends * shard_size) // ends)
    plan = plan_shards([np.array(record.counts["buckets"]) for record in found], shard_size)
    shards = plan.total_shards
    width = max(parts, shards)
    weights, sent = tuple(record.counts.get("weight", 0.0) for record in found), {"targets": "place"}
    if job.pairs is not None:
        _check_weights(weights)
        sent["pool"] = "place"
    place = partial(rounds.place_targets, job=job, plan=plan, weights=weights)
    runner.run(Round("place", parts, width, place, {"signed": "targets"}, frozenset({"signed"})))
    build = partial(rounds.build_shard, job=job, plan=plan)
    if job.layout == "store":
        return _result(job, runner.run(Round("shards", shards, shards, build, sent)), way)
    for hop in range(1, job.num_hops + 1):
        expand, reached = partial(rounds.expand_hop, job=job, hop=hop), _pair_channels(hop)
        runner.run(Round(f"hop_{hop}", parts, width, expand, reached, frozenset(reached)))
    send, reached = partial(rounds.send_nodes, job=job), _pair_channels(job.num_hops + 1)
    keeps = bool(job.mapped_types)
    # after a restart of the machine the round runs again, and reads what was reached again
    runner.run(Round("nodes", parts, width, send, reached, frozenset(() if keeps else reached), keeps=keeps))
    rows = dict.fromkeys((*job.node_channels, *job.mapped_types.values()), "nodes")
    edges = {f"edges_{hop}": f"hop_{hop}" for hop in range(1, job.num_hops + 1)}
    built = runner.run(Round("shards", shards, shards, build, {**sent, **rows, **edges}))
    return _result(job, built, way)


def _result(job: FlatJob, built: Sequence[TaskRecord], way: Way) -> FlatResult:
    """Return the result from the last round's records."""
    entries = tuple(ShardEntry(**record.counts["entry"]) for record in built)
    files = tuple(entry for record in built for entry in record.files)
    targets = sum(entry.num_samples for entry in entries)
    bytes_in, bytes_out = job.neighbors.store.num_bytes, sum(entry.num_bytes for entry in entries)
    blow_up = BlowUp(bytes_in, bytes_out, bytes_out / max(bytes_in, 1), bytes_out / max(targets, 1))
    facts = FlatFacts(job.layout, job.num_hops, job.neighbors.sampling.fanouts, targets, blow_up, entries)
    return FlatResult(files, facts, way)


def _check_weights(weights: tuple[float, ...]) -> None:
    if not sum(weights):
        raise TrainingError(
            "no node has an in-edge, so none can be drawn by its degree",
            where="task.negatives.kind",
            fix="Set it to uniform, or hold fewer edges out.",
        )


def _pair_channels(hop: int) -> dict[str, str]:
    before = "place" if hop == 1 else f"hop_{hop - 1}"
    visited = {} if hop == 1 else {f"visited_{hop - 1}": before}
    return {f"frontier_{hop - 1}": before, **visited}
