"""One live system for all tests of this folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.airflow.live.services import System


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A running Airflow, Dask cluster and S3 server."""
    pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
    from tests.airflow.live.services import System

    system = System(tmp_path_factory.mktemp("live"))
    before = dict(os.environ)
    try:
        system.start_storage_and_cluster()
        os.environ.update(system.s3)
        system.start_airflow()
        yield system
    finally:
        system.stop()
        os.environ.clear()
        os.environ.update(before)
