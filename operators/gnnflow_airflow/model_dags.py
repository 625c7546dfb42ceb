"""The DAGs of a folder of models' files: one per file, and an import error per unreadable file."""

from __future__ import annotations

from airflow.sdk import DAG, get_parsing_context

from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.broken import BrokenDag, id_of
from gnnflow_airflow.local_copies import names_near, text_near
from gnnflow_airflow.model_file import read_model
from gnnflow_airflow.retraining import retraining_dag

_PREFIX = "gnnflow_models."


def model_dags(folder: str, *, doc: str) -> dict[str, DAG]:
    """Return the DAGs of a folder's files by their ids; in the process of a task, the DAG of this task alone.

    Two files may not share an id, nor a model of one workspace, whose versions would get mixed up: the second of them
    is broken.
    """
    asked = get_parsing_context().dag_id
    dags: dict[str, DAG] = {}
    owners: dict[tuple[str, str], str] = {}
    for uri in names_near(folder):
        name = uri.rsplit("/", 1)[-1]
        dag_id = id_of(_PREFIX, name)
        if asked not in {None, dag_id}:
            continue
        try:
            dag = _dag(uri, dag_id, owners=owners, is_known=dag_id in dags, doc=doc)
        except Exception as problem:  # noqa: BLE001 - no problem with one file may affect the others
            while dag_id in dags:
                dag_id += ".again"
            dag = BrokenDag(dag_id=dag_id, path=f"models/{name}", problem=problem)
        dags[dag_id] = dag
    return dags


def _dag(uri: str, dag_id: str, *, owners: dict[tuple[str, str], str], is_known: bool, doc: str) -> DAG:
    if is_known:
        raise ConfigError("another file already has this DAG", where=uri, fix="Rename one of the files.")
    model = read_model(uri, read=text_near)
    dag = retraining_dag(model, dag_id=dag_id, doc=doc)
    first = owners.setdefault((model.config.workspace, model.name), uri)
    if first != uri:
        raise ConfigError(
            f"{first} already retrains the model {model.name} of this workspace",
            where=uri,
            fix="Give one of them another name, such as `params: {name: fraud-eu}`.",
        )
    return dag
