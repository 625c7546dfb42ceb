"""The tasks that defer though their DAG does not say so: all, unless AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE is set.

Airflow's own default is false, for operators that mostly wait seconds. A stage takes minutes to days, so it defers
unless an administrator wrote otherwise. Only the environment can tell that: into a new airflow.cfg Airflow writes the
default of each option, which looks as if a person had chosen it.

`execution_timeout` is the time of a whole attempt, as Airflow's documentation says. Airflow itself begins it anew in
each process of the attempt and does not count the time between them, so a deferring task keeps to it here.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

_VARIABLE = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"
_TRIGGER_SECONDS = 60.0  # for a trigger that passed its deadline: it stops its work, and its event is handled

TOO_LONG = "ran past its execution_timeout"


def defers(*, said: bool | None) -> bool:
    """Return whether a task defers. said: by its DAG, None where that says nothing."""
    from airflow.sdk.configuration import conf

    if said is not None:
        return said
    return _VARIABLE not in os.environ or bool(conf.getboolean("operators", "default_deferrable"))


def least_seconds() -> float:
    """Return the least seconds between a task's deferral and its event.

    The process that watches a deferring task may notice its end only at its next heartbeat. Airflow takes an event
    before that for an unexpected end: the task fails and is retried (apache/airflow#67287).
    """
    from airflow.sdk.configuration import conf

    interval: int = conf.getint("workers", "min_heartbeat_interval", fallback=5)
    return interval + 2.0


def deadline_of(task: BaseOperator, context: Context) -> float | None:
    """Return the end of an attempt's `execution_timeout`, in seconds since the epoch; None without one.

    Airflow keeps the begin of an attempt over its deferrals.
    """
    limit = task.execution_timeout
    return context["ti"].start_date.timestamp() + limit.total_seconds() if limit else None


def latest_event(deadline: float | None) -> timedelta | None:
    """Return the time after which Airflow fails a deferred task by itself, as where no triggerer runs."""
    return None if deadline is None else timedelta(seconds=max(deadline - time.time(), 0) + _TRIGGER_SECONDS)
