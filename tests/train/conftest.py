"""A cluster that the tests of ranks share: starting one takes longer than most of them."""

from __future__ import annotations

from importlib import import_module

import dask
import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.train.ranks.attempt import PREFIX
from tests.leaks import SHARED

WORKERS = 3


@pytest.fixture(scope="session")
def shared_client():
    # Some seconds after a worker was lost Dask looks whether it is back, and replaces it where it is not. Nannies bring
    # workers back; what Dask would find is one that the next test has just killed, and it would end the one come back.
    patient = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with patient, Cluster(LocalCluster(workers=WORKERS, memory_limit="2GiB")) as cluster:
        SHARED.append("of ranks")
        yield cluster.dask_client()


@pytest.fixture
def client(shared_client):
    """All workers are there, also where the test before killed one, and have imported what ranks need.

    On a busy machine that takes longer than the few seconds within which the ranks of some tests shall begin.
    Of a driver that was killed the events are gone too, which nobody was there to drop.
    """
    shared_client.wait_for_workers(WORKERS, timeout=120)
    shared_client.run_on_scheduler(forget_all)
    shared_client.run(import_module, "tests.train.ranks.test_gang")
    return shared_client


def forget_all(dask_scheduler):
    """On the scheduler: drop the events of all ranks."""
    broker = dask_scheduler._broker
    for topic in [name for name in broker._topics if name.startswith(PREFIX)]:
        broker.truncate(topic)
