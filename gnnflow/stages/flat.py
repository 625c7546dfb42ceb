"""GraphFlat: graph store and selected neighbours in, shards of k-hop neighbourhoods out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.neighbors.pairs import PoolPlan
from gnnflow.stages.base import Made
from gnnflow.stages.link_facts import find_link_facts

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun


def work(run: StageRun) -> Made:
    """Cut the graph store into shards. Raises TrainingError if links have no other pairs to be told from."""
    flat, neighbors, links = run.config.flat, run.neighbors, find_link_facts(run)
    targets = "all" if flat.targets == "all" else None
    task = run.config.task
    pairs = None if task.kind == "node" else PoolPlan.of(task, seed=run.config.seed)
    job = FlatJob(run.artifact, neighbors, run.config.num_hops, flat.layout, targets, pairs)
    result = run_rounds(job, run.rounds, shard_size=flat.shard_size)
    run.tell(result.way.text)
    run.rounds.remarks["way"] = result.way.text
    nodes, facts = neighbors.store.facts.num_nodes, replace(result.facts, link_facts=links)
    return Made(result.files, rows_in=nodes, rows_out=facts.num_targets, facts=facts)
