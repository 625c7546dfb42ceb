"""GraphFlat: graph store and selected neighbours in, shards of k-hop neighbourhoods out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.graphflat.job import FlatJob, run_rounds
from gnnflow.graphflat.pairs import PairPlan
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.stages.base import StageRun


def work(run: StageRun) -> Made:
    """Cut the graph store into shards."""
    flat, neighbors = run.config.flat, run.neighbors
    targets = "all" if flat.targets == "all" else None
    job = FlatJob(run.artifact, neighbors, run.config.num_hops, flat.layout, targets, _pairs(run.config))
    result = run_rounds(job, run.rounds, shard_size=flat.shard_size)
    nodes, facts = neighbors.store.facts.num_nodes, result.facts
    return Made(result.files, rows_in=nodes, rows_out=facts.num_targets, facts=facts)


def _pairs(config: Config) -> PairPlan | None:
    if config.task.kind == "node":
        return None
    if config.task.kind == "edge":
        return PairPlan(config.seed)
    negatives = config.task.negatives
    return PairPlan(config.seed, negatives.pool, negatives.power if negatives.kind == "degree" else 0.0)
