"""A cluster that the tests of ranks share: starting one takes longer than most of them."""

from __future__ import annotations

from importlib import import_module

import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.train.ranks.attempt import PREFIX
from tests.leaks import SHARED

WORKERS = 3


@pytest.fixture(scope="session")
def shared_client():
    with Cluster(LocalCluster(workers=WORKERS, memory_limit="2GiB")) as cluster:
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
