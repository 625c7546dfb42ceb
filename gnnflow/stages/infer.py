"""GraphInfer: graph store and trained model in, predictions with the user's ids out, and the parity certificate.

The certificate scores random targets a second time the way training saw them: GraphFlat cuts their k-hop
neighbourhoods and the mini-batch execution runs on them. Where the two differ by more than 1e-4 nothing is published.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnflow.graph.errors import ParityError
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.job import run_rounds as cut
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.stages.base import (
    FORMAT_VERSIONS,
    StageContext,
    StageResult,
    fingerprints,
    run_stage,
    timings_of,
    upstream,
)
from gnnflow.stages.flat import selection_plan
from gnnflow.storage.filesystem import join
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.infer.job import InferJob

_PARITY_SHARD = 256


def run(context: StageContext) -> StageResult:
    """Score the config's targets. Raises StorageError where training has not run, ParityError where paths disagree."""

    def work(artifact: str, runner: RoundRunner) -> Manifest:
        trained = upstream(context, "train")
        scored = score_with(context, artifact, runner, model=trained.artifact)
        return replace(
            scored,
            fingerprint=fingerprints(context.config)["infer"],
            inputs={**scored.inputs, "train": trained.manifest.fingerprint},
        )

    return run_stage(context, "infer", work)


def score_with(context: StageContext, artifact: str, runner: RoundRunner, *, model: str) -> Manifest:
    """Score the config's targets with the model in a folder. Returns a manifest that still lacks its fingerprint."""
    from gnnflow.infer.job import run_rounds

    ingested = upstream(context, "ingest")
    job = _task(context.config, artifact, ingested, model)
    begin = time.monotonic()
    result = run_rounds(job, runner)
    seconds = time.monotonic() - begin
    parity = _certify(job, runner, result.parity)
    metrics = {
        "infer.seconds": seconds,
        "infer.nodes_per_second": result.num_targets / max(seconds, 1e-9),
        "infer.parity_max_difference": parity["max_difference"],
    }
    return Manifest(
        stage="infer",
        fingerprint="",
        format_version=FORMAT_VERSIONS["infer"],
        files=result.files,
        inputs={"ingest": ingested.manifest.fingerprint},
        rows_in=result.num_targets,
        rows_out=result.num_targets,
        details={"metrics": metrics, "parity": parity, "label_kind": job.label_kind},
        timings=timings_of(runner.timings),
    )


def _task(config: Config, artifact: str, ingested: StageResult, model: str) -> InferJob:
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.saved import read_description

    selection = selection_plan(config, GraphStore.of(ingested.artifact, ingested.manifest))
    if config.infer.sampling == "none":
        selection = replace(selection, kind="none", fanouts=None)
    targets = config.infer.targets
    return InferJob(
        artifact=artifact,
        selection=selection,
        model=model,
        num_layers=read_description(model).config.layers,
        label_kind=ingested.manifest.details["label_kind"],
        targets="all" if targets == "all" else tuple(SPLITS.index(split) for split in targets),
        embeddings=config.infer.embeddings,
        parity_samples=config.infer.parity_samples,
        seed=config.seed,
    )


def _certify(job: InferJob, runner: RoundRunner, scored: dict[int, list[float]]) -> dict[str, Any]:
    """Return the certificate for the sampled targets' scores. Raises ParityError where it cannot be given."""
    from gnnflow.infer.job import PARITY_LIMIT

    certificate = {"samples": len(scored), "max_difference": 0.0, "limit": PARITY_LIMIT}
    if not scored:
        return certificate
    again = _score_by_neighborhood(job, runner, np.array(sorted(scored)))
    difference = max(float(np.max(np.abs(np.array(row) - again[node]))) for node, row in scored.items())
    if not difference <= PARITY_LIMIT:
        raise ParityError(
            f"GraphInfer and the k-hop path differ by {difference:.3g} on {len(scored)} targets, over {PARITY_LIMIT}",
            where=job.artifact,
            fix="Nothing was published. A layer of your own may keep state between calls or mix rows of a batch.",
        )
    return {**certificate, "max_difference": difference}


def _score_by_neighborhood(job: InferJob, runner: RoundRunner, targets: Any) -> dict[int, Any]:
    import torch

    from gnnflow.executions.minibatch import forward
    from gnnflow.graphfeature.blocks import build_minibatch
    from gnnflow.infer.predictions import scores_of
    from gnnflow.kernels.threads import compute_threads

    work = join(runner.work, "parity")
    inner = RoundRunner(work, runner.scheduler, runner.progress)
    flat = FlatJob(join(work, "shards"), job.selection, job.num_layers, "shared", targets)
    result = cut(flat, inner, shard_size=_PARITY_SHARD)
    later = inner.started - runner.started
    runner.timings += [replace(t, name=f"parity_{t.name}", start=t.start + later) for t in inner.timings]
    scores: dict[int, Any] = {}
    with compute_threads(1), torch.no_grad():
        model = job.load_model()
        for entry in result.entries:
            shard = read_shard(flat.artifact, entry)
            batch = build_minibatch(
                shard.neighborhood, shard.rows, fanouts=job.selection.fanouts, num_layers=job.num_layers
            )
            scores |= dict(zip(shard.targets.tolist(), scores_of(forward(model, batch), job.label_kind), strict=True))
    return scores
