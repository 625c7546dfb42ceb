"""Assets: what a finished task tells the DAGs that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.sdk import Context

_EXTRA = ("run", "predictions", "report", "artifact", "digest", "rows_out", "version", "promoted")


def announce(context: Context, outlets: Iterable[Any], outcome: dict[str, Any]) -> None:
    """Attach an outcome's URIs and counts to the task's assets."""
    extra = {key: outcome[key] for key in _EXTRA if key in outcome}
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
