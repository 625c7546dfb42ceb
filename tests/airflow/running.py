"""Load this repository's DAGs into the throw-away database and run them in this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from gnnflow.config import Config

TRAIN = {"epochs": 3, "batch_size": 16, "threads": 1}
_BUNDLE = "dags-folder"  # Airflow's name for its folder of DAGs, where `dag.test()` looks for a DAG it knows


def load(dag_id: str) -> Any:
    """Return one of this repository's DAGs, known to the database as a running Airflow knows it."""
    from airflow.dag_processing.dagbag import DagBag

    return sync(DagBag(REPOSITORY / "dags" / f"{dag_id.partition('.')[0]}.py").dags[dag_id])


def sync(dag: Any) -> Any:
    """Write a DAG into the database and return it."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    bag = DagBag(REPOSITORY / "tests" / "airflow" / "none")
    bag.dags = {dag.dag_id: dag}
    with create_session() as session:
        session.merge(DagBundleModel(name=_BUNDLE))
    sync_bag_to_db(bag, _BUNDLE, None)
    return dag


def form_of(config: Config, **changed: Any) -> dict[str, Any]:
    """Return a small graph's config as the form's flat values."""
    graph = config.graph
    return {
        "name": config.name,
        "workspace": config.workspace,
        "graph.nodes": graph.nodes,
        "graph.edges": graph.edges,
        "graph.partitions": graph.partitions,
        "cluster.kind": "synchronous",
        **{f"train.{key}": value for key, value in TRAIN.items()},
        **changed,
    }


class Quiet:
    """A task instance that nobody asks."""

    map_index = -1
    try_number, max_tries = 1, 0

    def __init__(self, *, seconds=0.0):
        """Have begun some seconds ago."""
        self.start_date = datetime.now(UTC) - timedelta(seconds=seconds)

    def xcom_pull(self, **_):
        """Know nothing."""

    def xcom_push(self, **_):
        """Keep nothing."""


class Store(dict):
    """The state store of a task."""

    set = dict.__setitem__
    delete = dict.__delitem__
