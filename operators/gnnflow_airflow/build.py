"""Chains of stage tasks for DAGs; `gnnflow.config.stages` lists the stages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import chain

from gnnflow_airflow.stages import operator_of

if TYPE_CHECKING:
    from gnnflow_airflow.stage import StageOperator


def default_args() -> dict[str, Any]:
    """Return the default arguments of tasks: retries, which resume, and a time limit in case a cluster is lost."""
    return {
        "retries": int(os.environ.get("GNNFLOW_RETRIES", "2")),
        "retry_delay": timedelta(seconds=float(os.environ.get("GNNFLOW_RETRY_SECONDS", "20"))),
        "execution_timeout": timedelta(hours=float(os.environ.get("GNNFLOW_STAGE_HOURS", "24"))),
    }


def prepare_options() -> dict[str, Any]:
    """Return the options of the first tasks: no retry helps a wrong config, and stages go to GNNFLOW_DASK_CONN_ID."""
    return {"retries": 0, "dask_conn_id": stage_options()["dask_conn_id"]}


def stage_options() -> dict[str, Any]:
    """Return the options of all stages from the environment: GNNFLOW_DASK_CONN_ID, GNNFLOW_POLL_SECONDS."""
    return {
        "dask_conn_id": os.environ.get("GNNFLOW_DASK_CONN_ID") or None,
        "poll_seconds": float(os.environ.get("GNNFLOW_POLL_SECONDS", "5")),
    }


def stage_tasks(stages: Iterable[str], **options: Any) -> dict[str, StageOperator]:
    """Return a chain with one task per stage. options: for every operator."""
    tasks = {stage: operator_of(stage)(task_id=stage, **{**stage_options(), **options}) for stage in stages}
    chain(*tasks.values())
    return tasks
