"""The tasks that defer though their DAG does not say so: all, unless AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE is set.

Airflow's own default is false, for operators that mostly wait seconds. A stage takes minutes to days, so it defers
unless an administrator wrote otherwise. Only the environment can tell that: into a new airflow.cfg Airflow writes the
default of each option, which looks as if a person had chosen it.
"""

from __future__ import annotations

import os

_VARIABLE = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"


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
