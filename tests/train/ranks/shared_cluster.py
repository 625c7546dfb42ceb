"""A cluster that the tests of a file share: starting one takes longer than most of them."""

from __future__ import annotations

import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster

WORKERS = 3


@pytest.fixture(scope="module")
def shared_client():
    with Cluster(LocalCluster(workers=WORKERS, memory_limit="2GiB")) as cluster:
        yield cluster.dask_client()


@pytest.fixture
def client(shared_client):
    """All workers are there, also where the test before killed one."""
    shared_client.wait_for_workers(WORKERS, timeout=60)
    return shared_client
