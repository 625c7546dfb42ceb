"""Partial states and pieces: the same bytes for any worker count, after kills and after an interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gnnflow.config import LocalCluster
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.progress import Silent
from tests.conftest import ClusterOf
from tests.contracts import test_graphinfer as untyped
from tests.infer import test_relation_states, test_typed
from tests.infer.test_states import WAYS
from tests.killing import KillAWorkerInEveryRound

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.cluster import Cluster
    from gnnflow.infer.job import InferJob
    from gnnflow.progress import Progress
    from gnnflow.storage.writing import FileEntry

TYPED = test_relation_states.TAKE_STATES | test_typed.KINDS
GRAPHS = ["one type, norm and residual", "one type, gat", "typed, norm and residual", "typed, han"]


@pytest.fixture(params=GRAPHS)
def both_ways(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[InferJob, list[FileEntry]]:
    """Return a job whose partitions send states, and rows that are taken piece by piece, and its files."""
    graph, model = request.param.split(", ")
    if graph == "typed":
        job = test_typed.prepare(tmp_path, TYPED[model], sampling="weighted", partitions=3, exchange=WAYS["both"])
    else:
        held = untyped.stored("graph")
        job = untyped.prepare(held, tmp_path, untyped.MODELS[model], untyped.SAMPLINGS["weighted"])
        job = replace(job, exchange=WAYS["both"])
    return job, list(run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).files)


def files_on(cluster: Cluster, job: InferJob, folder: Path, *, progress: Progress | None = None) -> list[FileEntry]:
    """Return the files that the workers of a cluster write."""
    runner = RoundRunner(str(folder / "again"), cluster.scheduler(), progress)
    return list(run_rounds(replace(job, artifact=f"{job.artifact}-again"), runner).files)


@pytest.mark.distributed
@pytest.mark.parametrize("workers", [1, 2, 4], scope="session")
def test_worker_count_changes_no_byte(
    tmp_path: Path, both_ways: tuple[InferJob, list[FileEntry]], workers: int, cluster_of: ClusterOf
) -> None:
    job, files = both_ways
    cluster = cluster_of(LocalCluster(workers=workers, memory_limit="2GiB"))
    assert files_on(cluster, job, tmp_path) == files


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("workers", [2], scope="session")
def test_killing_a_worker_in_every_round_changes_no_byte(
    tmp_path: Path,
    both_ways: tuple[InferJob, list[FileEntry]],
    workers: int,
    is_mapped: bool,
    cluster_of: ClusterOf,
) -> None:
    """Rows that are mapped come from files of tasks that a killed worker ran; they give the bytes of rows sent."""
    job, files = both_ways
    job = replace(job, exchange=replace(job.exchange, mapped=is_mapped))
    whole = RoundRunner(str(tmp_path / "whole"), Synchronous())
    run_rounds(replace(job, artifact=f"{job.artifact}-whole"), whole)
    cluster = cluster_of(LocalCluster(workers=workers, memory_limit="2GiB"))
    progress = KillAWorkerInEveryRound(cluster)
    assert files_on(cluster, job, tmp_path, progress=progress) == files
    assert len(progress.killed) == len(whole.timings)


@pytest.mark.table(4)
def test_a_second_attempt_sends_the_same_states(tmp_path: Path, both_ways: tuple[InferJob, list[FileEntry]]) -> None:
    job, files = both_ways

    class Stopping(Silent):
        """Stops a run between two rounds."""

        def round_finished(self, name: str, seconds: float) -> None:
            if name == "slice_1":
                raise KeyboardInterrupt

    again, work = replace(job, artifact=f"{job.artifact}-again"), str(tmp_path / "again")
    with pytest.raises(KeyboardInterrupt):
        run_rounds(again, RoundRunner(work, Synchronous(), Stopping()))
    assert list(run_rounds(again, RoundRunner(work, Synchronous())).files) == files
