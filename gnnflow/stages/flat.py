"""GraphFlat: graph store in, shards of k-hop neighbourhoods out."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from gnnflow.graphflat.job import FlatJob, run_rounds
from gnnflow.neighbors.direct import SelectionPlan
from gnnflow.stages.base import (
    FORMAT_VERSIONS,
    StageContext,
    StageResult,
    fingerprints,
    run_stage,
    timings_of,
    upstream,
)
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.mapreduce.rounds import RoundRunner


def selection_plan(config: Config, store: GraphStore) -> SelectionPlan:
    """Return which in-edges the config keeps of a graph store."""
    sampling = config.flat.sampling
    fanouts = None if sampling.kind == "none" else tuple(sampling.fanout)
    return SelectionPlan(store, sampling.kind, fanouts, config.seed, config.flat.hub_threshold)


def run(context: StageContext) -> StageResult:
    """Cut the graph store into shards. Raises StorageError where ingest has not run."""

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        config = context.config
        ingested = upstream(context, "ingest")
        store = GraphStore.of(ingested.artifact, ingested.manifest)
        targets = "all" if config.flat.targets == "all" else None
        task = FlatJob(artifact, selection_plan(config, store), config.num_hops, config.flat.layout, targets)
        result = run_rounds(task, runner, shard_size=config.flat.shard_size)
        return Manifest(
            stage="flat",
            fingerprint=fingerprints(config)["flat"],
            format_version=FORMAT_VERSIONS["flat"],
            files=result.files,
            inputs={"ingest": ingested.manifest.fingerprint},
            rows_in=store.details["num_nodes"],
            rows_out=result.details["num_targets"],
            details={**result.details, "shards": [asdict(entry) for entry in result.entries]},
            timings=timings_of(runner.timings),
        )

    return run_stage(context, "flat", work)
