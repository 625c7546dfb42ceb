"""A throw-away Airflow for tests: its environment is set before anything imports it."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import tempfile
from pathlib import Path

import pytest

INSTALLED = importlib.util.find_spec("airflow") is not None
REPOSITORY = Path(__file__).resolve().parents[2]

if INSTALLED:
    _FOLDER = tempfile.TemporaryDirectory(prefix="gnnflow-airflow-", ignore_cleanup_errors=True)  # gone with us
    HOME = Path(_FOLDER.name)
    # Airflow keeps a great many objects alive; collecting them over and over took a third of the time.
    gc.disable()
    atexit.register(gc.freeze)
    os.environ.update(
        AIRFLOW_HOME=str(HOME),
        AIRFLOW__CORE__LOAD_EXAMPLES="False",
        # Empty: `dag.test()` reads all of it each time, and half of a small run went there. Tests load what they run.
        AIRFLOW__CORE__DAGS_FOLDER=str(HOME / "dags"),
        AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{HOME}/airflow.db",
        AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
        AIRFLOW__CORE__FERNET_KEY="",
        AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL="1",  # an event waits this long and two seconds after a deferral
        PYTHONPATH=os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "operators"))),
    )


@pytest.fixture(scope="session")
def airflow_db():
    """Make the metadata database once."""
    if not INSTALLED:
        pytest.skip("needs apache-airflow: pip install 'gnnflow[airflow]'")
    from airflow.utils.db import initdb

    (HOME / "dags").mkdir(exist_ok=True)
    initdb()
    return HOME


@pytest.fixture(scope="session")
def hostile_home(tmp_path_factory):
    """The folder of `hostile`, before anything is in it."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="session")
def hostile(hostile_home):
    """A folder with a workspace of hostile ids, classes and labels, which tests share and whose champion they move."""
    from tests.airflow.pages import write_hostile

    write_hostile(hostile_home)
    return hostile_home


@pytest.fixture
def what_dask_leaves_behind():
    """Collect what a client that lost its scheduler never awaited here, where that is no error.

    Of what is younger than the last time: all that Airflow holds takes a second.
    """
    yield
    gc.collect(1)


@pytest.fixture
def config(tmp_path):
    """A config of a small graph's tables, for tests of clusters."""
    from tests.airflow.running import TRAIN
    from tests.small_graphs import graph_config, write_graph

    write_graph(tmp_path)
    return graph_config(tmp_path, train=TRAIN)
