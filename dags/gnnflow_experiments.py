"""DAGs gnnflow_experiments.<name>: one for each YAML file in configs/experiments.

A file is a config with a `matrix:` of keys, `seeds:` or both. Its runs share the stages whose keys are equal, and the
last task compares the variants over their seeds. A file that cannot be read shows as its own import error; the others
are untouched.

GNNFLOW_EXPERIMENTS       another folder (path or URL, of which local copies are used as for models)
GNNFLOW_EXPERIMENTS_POOL  the Airflow pool of the stages' tasks
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from airflow.sdk import DAG

from gnnflow.config.experiments import Experiment, PlannedRun, read_experiment
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.broken import BrokenDag, id_of
from gnnflow_airflow.build import default_args
from gnnflow_airflow.compare import CompareOperator
from gnnflow_airflow.grid import Grid, run_id, shared_id
from gnnflow_airflow.local_copies import names_near, text_near
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.prepared_runs import PreparedRuns, first_prepared
from gnnflow_airflow.stage import StageOperator
from gnnflow_airflow.stages import operator_of

FOLDER = os.environ.get("GNNFLOW_EXPERIMENTS", str(Path(__file__).resolve().parents[1] / "configs" / "experiments"))
POOL = os.environ.get("GNNFLOW_EXPERIMENTS_POOL", "")


def experiment_dag(experiment: Experiment, *, dag_id: str, doc: str) -> DAG:
    """Return an experiment's DAG: a group of tasks for each variant, the stages they share, and a comparison."""
    with DAG(
        dag_id=dag_id,
        description=f"{experiment.name}: {len(experiment.runs)} runs.",
        doc_md=doc,
        schedule=None,
        default_args=default_args(),
        tags=["gnnflow", "experiment"],
        user_defined_macros={"first_prepared": first_prepared},
    ) as dag:
        grid = Grid(experiment)
        prepares = prepare_tasks(experiment, grid)
        last = last_tasks(experiment, grid, prepares)
        runs = {prepare.task_id: task.task_id for prepare, task in zip(prepares, last, strict=True)}
        last >> CompareOperator(task_id="compare", name=experiment.name, runs=runs, trigger_rule="all_done")
    return dag


def prepare_tasks(experiment: Experiment, grid: Grid) -> list[PrepareOperator]:
    """Return the task that prepares each run. Each stores the rows of all runs, for the comparison."""
    told = {"rows": [asdict(row) for row in experiment.rows], "digest": experiment.digest}
    return [
        PrepareOperator(
            task_id=run_id(run),
            task_display_name=run.label,
            task_group=grid.preparation,
            values=run.values,
            source=experiment.source,
            experiment=told,
        )
        for run in experiment.runs
    ]


def last_tasks(experiment: Experiment, grid: Grid, prepares: list[PrepareOperator]) -> list[StageOperator]:
    """Make the tasks of all stages, once where runs share them, and return the last one of each run."""
    sharing: dict[str, list[PlannedRun]] = {}
    for run in experiment.runs:
        for stage in run.stages:
            sharing.setdefault(run.key(stage), []).append(run)
    by_label = {run.label: prepare for run, prepare in zip(experiment.runs, prepares, strict=True)}
    prepared = PreparedRuns(grid, by_label)
    known: dict[str, StageOperator] = {}
    for run in experiment.runs:
        group, before, last = grid.group(run), None, None
        for number, stage in enumerate(run.stages):
            readers = sharing[key := run.key(stage)]
            begin = prepared.task(readers, before=stage)
            if key not in known:
                is_shared = number < run.stages.index("train")
                task = known[key] = operator_of(stage)(
                    task_id=shared_id(stage, run) if is_shared else stage,
                    task_display_name=grid.label(stage, readers) if is_shared else stage,
                    task_group=grid.before_training if is_shared else group,
                    config=prepared.config(readers),
                    **({"pool": POOL} if POOL else {}),
                )
                if begin is not last:
                    begin >> task
                if before is not None:
                    before >> task
            before, last = known[key], begin
    return [known[run.key(run.stages[-1])] for run in experiment.runs]


def dag_of_file(uri: str, *, dag_id: str, is_known: bool) -> DAG:
    """Return the DAG of a file. Raises ConfigError where another file has this DAG: NAME.yml after NAME.yaml."""
    if is_known:
        raise ConfigError("another file already has this DAG", where=uri, fix="Rename one of the files.")
    return experiment_dag(
        read_experiment(read_yaml(text_near(uri), source=uri), source=uri), dag_id=dag_id, doc=__doc__ or ""
    )


for uri in names_near(FOLDER):
    file = uri.rsplit("/", 1)[-1]
    identifier = id_of("gnnflow_experiments.", file)
    try:
        made = dag_of_file(uri, dag_id=identifier, is_known=identifier in globals())
    except Exception as problem:  # noqa: BLE001 - no problem with one file may affect the others
        while identifier in globals():
            identifier += ".again"
        made = BrokenDag(dag_id=identifier, path=f"experiments/{file}", problem=problem)
    globals()[identifier] = made
