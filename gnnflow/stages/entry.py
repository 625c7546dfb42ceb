"""The way in for commands and operators: a run is resolved once, a stage is checked once and then run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from gnnflow.cluster import Cluster
from gnnflow.config import OwnCluster
from gnnflow.mapreduce.own_cluster import cluster_class
from gnnflow.mapreduce.submitting import PREFIX
from gnnflow.stages.check import check_stage
from gnnflow.stages.resolve import cluster_for
from gnnflow.stages.running import run_stage
from gnnflow.storage.access import every_held, narrowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.stages.base import StageContext, StageResult
    from gnnflow.stages.resolve import ResolvedRun
    from gnnflow.stages.score_ids import SomeScores

_NO_WORKERS = (
    "the tables are small, so the work runs in this process; `cluster: {kind: local}` in the config starts workers"
)


def perform(context: StageContext, stage: str) -> StageResult:
    """Check everything that is known before a stage runs, then run it."""
    check_stage(context.run, stage)
    return run_stage(context, stage)


def score_some(context: StageContext, ids: Sequence[Any]) -> SomeScores:
    """Check everything that is known before stage score runs, then score some nodes alone, given by the user's ids."""
    from gnnflow.stages.score_ids import score_ids

    check_stage(context.run, "score")
    return score_ids(context, ids)


def cluster_of(run: ResolvedRun, *, say: Callable[[str], None]) -> Cluster:
    """Return the cluster of a run for a `with` block; it starts with the first task that needs it.

    Raises ClusterError, before any work, where a class that starts it is missing.
    """
    chosen = cluster_for(run)
    if isinstance(chosen, OwnCluster):
        cluster_class(chosen.kind)
    note = "" if chosen == run.config.cluster else _NO_WORKERS
    access = narrowed(f"{PREFIX}run-{uuid.uuid4().hex}", run.config.model_dump(mode="json"), every_held())
    return Cluster(chosen, workspace=run.config.workspace, access=access, say=say, note=note, code=run.code)
