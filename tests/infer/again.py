"""GraphInfer's rounds once more, on worker processes and with kills: what they write must stay what it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.infer.job import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from tests.killing import KillAWorkerInEveryRound

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.infer.job import InferJob
    from gnnflow.storage.writing import FileEntry


def files_on_workers(job: InferJob, folder: Path, *, workers: int) -> list[FileEntry]:
    """Return the files that so many worker processes write."""
    with Cluster(LocalCluster(workers=workers, memory_limit="2GiB")) as cluster:
        runner = RoundRunner(str(folder / "again"), cluster.scheduler())
        return list(run_rounds(_again(job), runner).files)


def files_after_kills(job: InferJob, folder: Path) -> tuple[list[FileEntry], int]:
    """Return the files that are written while a worker is killed in every round, and how many were."""
    with Cluster(LocalCluster(workers=2, memory_limit="2GiB")) as cluster:
        killer = KillAWorkerInEveryRound(cluster)
        runner = RoundRunner(str(folder / "again"), cluster.scheduler(), killer)
        return list(run_rounds(_again(job), runner).files), len(killer.killed)


def _again(job: InferJob) -> InferJob:
    return replace(job, artifact=f"{job.artifact}-again")
