"""Chains of stage tasks for DAGs; `gnnflow.config.stages` lists the stages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import chain

from gnnflow_airflow.stage import DEFER_SECONDS
from gnnflow_airflow.stages import operator_of

if TYPE_CHECKING:
    from gnnflow_airflow.prepare import PrepareOperator
    from gnnflow_airflow.stage import StageOperator


def default_args() -> dict[str, Any]:
    """Return the default arguments of tasks: retries, which resume, a time limit in case a cluster is lost, a cluster.

    They come from the environment, and count where neither a DAG nor a group of tasks says otherwise.
    """
    return {
        "retries": int(os.environ.get("GNNFLOW_RETRIES", "2")),
        "retry_delay": timedelta(seconds=float(os.environ.get("GNNFLOW_RETRY_SECONDS", "20"))),
        "execution_timeout": timedelta(hours=float(os.environ.get("GNNFLOW_STAGE_HOURS", "24"))),
        **stage_options(),
    }


def connections() -> dict[str, str | None]:
    """Return the connections of all tasks from the environment: GNNFLOW_DASK_CONN_ID, GNNFLOW_STORAGE_CONN_ID."""
    names = {"dask_conn_id": "GNNFLOW_DASK_CONN_ID", "storage_conn_id": "GNNFLOW_STORAGE_CONN_ID"}
    return {option: os.environ.get(name) or None for option, name in names.items()}


def stage_options() -> dict[str, Any]:
    """Return the options of all stages from the environment: the connections, GNNFLOW_DEFER_SECONDS, ..."""
    return {
        **connections(),
        "defer_seconds": float(os.environ.get("GNNFLOW_DEFER_SECONDS", DEFER_SECONDS)),
        "poll_seconds": float(os.environ.get("GNNFLOW_POLL_SECONDS", "5")),
    }


def stage_tasks(stages: Iterable[str], **options: Any) -> dict[str, StageOperator]:
    """Return a chain with one task per stage. options: for every operator."""
    tasks = {stage: operator_of(stage)(task_id=stage, **options) for stage in stages}
    chain(*tasks.values())
    return tasks


def pipeline_tasks(prepare: PrepareOperator, stages: Iterable[str], **options: Any) -> dict[str, StageOperator]:
    """Return a chain with one task per stage, of the config that a first task prepares. options: for every operator.

    A stage that the config's run does not have is skipped, and the ones after it run all the same; but where the first
    task is skipped, all are. Hence the rule, and hence each has the first task as an upstream.
    """
    rule = {"trigger_rule": "none_failed_min_one_success"}
    return stage_tasks(stages, **{**rule, **options, "config": prepare.output})
