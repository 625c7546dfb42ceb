"""The live systems of this folder: one on SQLite for all tests, one on PostgreSQL for one of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.airflow.live.graphs import LiveGraph
    from tests.airflow.live.journeys import Retraining
    from tests.airflow.live.runs import LiveRun
    from tests.airflow.live.services import System

HEALTHY_SECONDS = 60
BEGUN_FIRST = ("retraining", "experiment")
NEEDED = "needs apache-airflow: pip install 'gnnflow[airflow]'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the live journeys first, and wait last for the longest: they go on beside the tests between."""
    items.sort(key=lambda item: _turn(set(getattr(item, "fixturenames", ()))))


def _turn(fixtures: set[str]) -> int:
    if fixtures & {"retraining", "quiet_live", "postgres_live"}:
        return 2
    return 0 if "live" in fixtures else 1


@contextlib.contextmanager
def running(home: Path, database: str = "", *, kind: type[System] | None = None, **workspaces: str) -> Iterator[System]:
    """Run an Airflow, a Dask cluster and an S3 server. kind: of the system, where it has other settings."""
    import s3fs

    from tests.airflow.live.journeys import write_configs
    from tests.airflow.live.services import System

    system = (kind or System)(home, database, workspaces)
    before = dict(os.environ)
    try:
        system.start_storage_and_cluster()
        os.environ.update(system.s3)
        s3fs.S3FileSystem.clear_instance_cache()  # an instance keeps the server it was made for
        write_configs(system)
        system.start_airflow()
        yield system
    finally:
        system.stop()
        os.environ.clear()
        os.environ.update(before)
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="session")
def live_on_sqlite(tmp_path_factory: pytest.TempPathFactory, hostile_home: Path) -> Iterator[System]:
    """A live system on SQLite."""
    pytest.importorskip("airflow", reason=NEEDED)
    with running(tmp_path_factory.mktemp("live"), hostile=f"{hostile_home}/runs") as system:
        yield system


@pytest.fixture(scope="session")
def retraining(live_on_sqlite: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Retraining]:
    """A retraining by the clock and one for new edges, begun."""
    from tests.airflow.live.journeys import Retraining

    begun = Retraining(live_on_sqlite, tmp_path_factory.mktemp("retraining"))
    yield begun
    begun.stop()


@pytest.fixture(scope="session")
def experiment(live_on_sqlite: System, tmp_path_factory: pytest.TempPathFactory) -> LiveRun:
    """A run of an experiment, begun."""
    from tests.airflow.live.journeys import begin_experiment

    return begin_experiment(live_on_sqlite, tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="session")
def begun(request: pytest.FixtureRequest, live_on_sqlite: System) -> list[str]:
    """The journeys that collected tests ask for, begun before any test: they mostly wait, and go side by side."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    found = [name for name in BEGUN_FIRST if name in asked]
    for name in found:
        request.getfixturevalue(name)
    return found


@pytest.fixture
def live(live_on_sqlite: System, begun: list[str]) -> System:
    """The same, healthy: where a test has left it otherwise, those after it do not each wait in vain."""
    live_on_sqlite.wait_until_healthy(seconds=HEALTHY_SECONDS)
    return live_on_sqlite


@pytest.fixture
def quiet_live(live: System, begun: list[str], request: pytest.FixtureRequest) -> System:
    """The same when those journeys have ended: for what disturbs more than one run."""
    if "retraining" in begun:
        request.getfixturevalue("retraining").better.exception()
    if "experiment" in begun:
        request.getfixturevalue("experiment").wait()
    return live


@pytest.fixture
def postgres_live(tmp_path: Path) -> Iterator[System]:
    """A live system on PostgreSQL."""
    pytest.importorskip("airflow", reason=NEEDED)
    pytest.importorskip("psycopg2", reason="needs psycopg2-binary and asyncpg")
    from tests.airflow.live.postgres import find_binaries, postgres

    if (binaries := find_binaries()) is None:
        pytest.skip("needs PostgreSQL: apt install postgresql")
    with postgres(binaries) as url, running(tmp_path / "live", url) as system:
        yield system


@pytest.fixture(scope="session")
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LiveGraph:
    """Cora, or a generated graph where the public ones are not."""
    pytest.importorskip("airflow", reason=NEEDED)
    from tests.airflow.live.graphs import cora, generated

    try:
        return cora(request.getfixturevalue("data_dir") / "cora")
    except pytest.skip.Exception:
        return generated(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Chromium."""
    from tests.airflow.live.browser import opened_browser

    with opened_browser() as opened:
        yield opened


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Where pictures go: GNNFLOW_SCREENSHOTS, or a folder of the test."""
    folder = Path(os.environ.get("GNNFLOW_SCREENSHOTS", tmp_path / "images"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
