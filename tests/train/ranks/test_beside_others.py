"""A run with two ranks on a cluster of which some workers cannot run them makes the bytes of one without these."""

from __future__ import annotations

import time

import pytest

from gnnflow.graph.run_facts import TrainFacts
from gnnflow.mapreduce.submitting import restart_if_ours
from gnnflow.stages.base import StageContext
from gnnflow.stages.entry import cluster_of
from gnnflow.stages.running import run_stage
from tests.mapreduce.foreign_cluster import another_version, foreign_cluster
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.distributed, pytest.mark.filterwarnings("default")]

STAGES = ("ingest", "select", "flat", "train")


def run(folder, workspace, address, *, hear=lambda _: None):
    """Return the digest of each stage, how many ranks trained, and what was said. hear: is told each line."""
    config = graph_config(
        folder,
        workspace=str(folder / workspace),
        model={"kind": "sage", "hidden": 8},
        train={"epochs": 3, "batch_size": 8, "workers": 2, "threads": 1},
        cluster={"kind": "address", "address": address, "workers": 2, "start_seconds": 60},
    )
    said = []

    def say(line):
        said.append(line)
        hear(line)

    with cluster_of(StageContext.of(config).run, say=say) as cluster:
        context = StageContext.of(config, cluster)
        digests = [run_stage(context, stage).digest for stage in STAGES]
        attempts = context.artifact("train").facts(TrainFacts).attempts
    return digests, [each.ranks for each in attempts], said


def test_unfit_workers_change_no_byte_of_a_run_with_two_ranks(tmp_path):
    from distributed import Client

    """The second fit worker joins while the first run waits for it."""
    write_graph(tmp_path)
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("one")

        def start_second(line):
            if line.startswith("1 of 1 workers can run gnnflow's tasks; waits at most 60 s for 2"):
                cluster.start_worker("two")

        with Client(cluster.address, timeout=60) as tenant:
            tenant.wait_for_workers(1, timeout=60)
            expected, ranks, said = run(tmp_path, "alone", cluster.address, hear=start_second)
        assert ranks == [2]
        assert not [line for line in said if "get no task" in line]
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("older", modules=another_version(tmp_path))
        with Client(cluster.address, timeout=60) as tenant:
            tenant.wait_for_workers(4, timeout=60)
            before = tenant.nthreads()
            found, ranks, said = run(tmp_path, "beside", cluster.address)
            assert tenant.nthreads() == before
    assert found == expected
    assert ranks == [2]
    assert [line.count("\n") for line in said if "get no task" in line] == [2]


def test_a_worker_that_holds_work_of_others_is_not_restarted(tmp_path):
    from distributed import Client

    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("one")
        with Client(cluster.address, timeout=60) as tenant:
            tenant.wait_for_workers(1, timeout=60)
            (worker,) = tenant.nthreads()

            def restarted():
                return tenant.sync(restart_if_ours, tenant, worker, seconds=60)

            held = tenant.submit(sum, [1, 2], pure=False)
            assert held.result(timeout=60) == 3
            assert restarted() == "work of others is there"
            held.release()
            deadline = time.monotonic() + 60
            while (why := restarted()) == "work of others is there" and time.monotonic() < deadline:
                time.sleep(0.1)
            assert why == "it has no nanny to restart it"
