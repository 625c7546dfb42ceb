"""DAGs gnnflow_experiments.<name>: one for each YAML file in configs/experiments.

A file is a config with a `matrix:` of keys, `seeds:` or both. Its runs share the stages whose keys are equal, and the
last task compares the variants over their seeds. A file that cannot be read shows as its own import error; the others
are untouched.

GNNFLOW_EXPERIMENTS   another folder (path or URL)
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from airflow.sdk import DAG

from gnnflow.config.experiments import Experiment, read_experiment
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.broken import BrokenDag
from gnnflow_airflow.build import default_args, prepare_options, stage_options
from gnnflow_airflow.compare import CompareOperator
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.reading import list_experiments, read_raw
from gnnflow_airflow.stage import StageOperator
from gnnflow_airflow.stages import operator_of

FOLDER = os.environ.get("GNNFLOW_EXPERIMENTS", str(Path(__file__).resolve().parents[1] / "configs" / "experiments"))


def experiment_dag(experiment: Experiment, *, dag_id: str, doc: str) -> DAG:
    """Return an experiment's DAG: one chain per run, which share equal stages, and a comparison at the end."""
    with DAG(
        dag_id=dag_id,
        description=f"{experiment.name}: {len(experiment.runs)} runs.",
        doc_md=doc,
        schedule=None,
        default_args=default_args(),
        tags=["gnnflow", "experiment"],
    ) as dag:
        known: dict[str, StageOperator] = {}
        runs: dict[str, str] = {}
        last: list[StageOperator] = []
        told = {"rows": [asdict(row) for row in experiment.rows], "digest": experiment.digest}
        for number, run in enumerate(experiment.runs, 1):
            prepare = PrepareOperator(
                task_id=f"prepare_{number}",
                values=run.values,
                source=experiment.source,
                experiment=told,
                **prepare_options(),
            )
            before: PrepareOperator | StageOperator = prepare
            for stage in run.stages:
                key = run.key(stage)
                if key not in known:
                    task = operator_of(stage)(
                        task_id=f"{stage}_{number}",
                        config=f"{{{{ ti.xcom_pull(task_ids='prepare_{number}') }}}}",
                        **stage_options(),
                    )
                    prepare >> task
                    known[key] = task
                if before is not known[key]:
                    before >> known[key]
                before = known[key]
            last.append(known[run.key("run")])
            runs[prepare.task_id] = last[-1].task_id
        compare = CompareOperator(
            task_id="compare",
            name=experiment.name,
            runs=runs,
            workspace=experiment.runs[0].config.workspace,
            trigger_rule="all_done",
        )
        last >> compare
    return dag


for uri in list_experiments(FOLDER):
    file = uri.rsplit("/", 1)[-1]
    identifier = f"gnnflow_experiments.{file.rsplit('.', 1)[0]}"
    if identifier in globals():  # NAME.yml after NAME.yaml, whose DAG stays: the error has another id
        twice = ConfigError("another file already has this DAG", where=uri, fix="Rename one of the files.")
        identifier = f"gnnflow_experiments.{file}"
        globals()[identifier] = BrokenDag(dag_id=identifier, path=f"experiments/{file}", problem=twice)
        continue
    try:
        globals()[identifier] = experiment_dag(
            read_experiment(read_raw(uri), source=uri), dag_id=identifier, doc=__doc__ or ""
        )
    except Exception as problem:  # noqa: BLE001 - no problem with one file may affect the others
        globals()[identifier] = BrokenDag(dag_id=identifier, path=f"experiments/{file}", problem=problem)
