"""Metrics of stages, sent where Airflow sends its own: to StatsD or OpenTelemetry, or nowhere if neither is set.

| metric | tags | counts |
|---|---|---|
| gnnflow.stage.seconds | stage, reused | a timing: work of a stage that ended well, without the wait for a worker |
| gnnflow.stage.rows | stage | rows that stages wrote; nothing for a reused artifact |
| gnnflow.stage.failures | stage, hopeless | failed attempts; hopeless ones are not tried again |
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk.exceptions import AirflowFailException

_PREFIX = "gnnflow.stage"


def count_done(stage: str, outcome: Mapping[str, Any]) -> None:
    """Send the seconds and the rows of a stage that ended well."""
    from airflow.sdk.observability import stats

    reused = bool(outcome.get("reused"))
    tags = {"stage": stage, "reused": str(reused).lower()}
    stats.timing(f"{_PREFIX}.seconds", timedelta(seconds=outcome.get("seconds", 0.0)), tags=tags)
    if (rows := outcome.get("rows_out")) and not reused:
        stats.incr(f"{_PREFIX}.rows", count=rows, tags={"stage": stage})


def count_failure(stage: str, error: Exception) -> None:
    """Count a failed attempt of a stage."""
    from airflow.sdk.observability import stats

    hopeless = str(isinstance(error, AirflowFailException)).lower()
    stats.incr(f"{_PREFIX}.failures", tags={"stage": stage, "hopeless": hopeless})
