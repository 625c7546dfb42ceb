"""Metadata of this package for Airflow, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any

_LINKS = ("ReportLink", "DashboardLink", "PredictionsLink", "CurvesLink", "ComparisonLink")


def get_provider_info() -> dict[str, Any]:
    """Return the connection type and the link classes. Imports nothing, since every Airflow process calls it."""
    return {
        "package-name": "gnnflow",
        "name": "gnnflow",
        "description": "Graph neural networks as deferrable operators on Dask.",
        "connection-types": [
            {"connection-type": "dask", "hook-class-name": "gnnflow_airflow.hook.DaskHook", "hook-name": "Dask"}
        ],
        "extra-links": [f"gnnflow_airflow.links.{name}" for name in _LINKS],
    }
