"""A cluster that the tests of ranks share: starting one takes longer than most of them."""

from __future__ import annotations

from importlib import import_module

import dask
import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import LocalCluster
from gnnflow.train.ranks.group import open_store
from tests.leaks import SHARED
from tests.train.ranks.shared_cluster import WORKERS


@pytest.fixture(scope="session", autouse=True)
def _first_store() -> None:
    """Open a store of ranks: torch opens a pipe for the first one of a process, and keeps it."""
    open_store("127.0.0.1", start_seconds=60)


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
    """
    shared_client.wait_for_workers(WORKERS, timeout=120)
    shared_client.run(import_module, "tests.train.ranks.test_gang")
    return shared_client
