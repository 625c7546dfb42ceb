"""Airflow's plugin, by the entry point `airflow.plugins`: pages of workspaces, served next to Airflow's own."""

from __future__ import annotations

from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

from gnnflow_airflow.places import PREFIX, airflow_address


class GnnflowPlugin(AirflowPlugin):
    """Pages of runs, comparisons, predictions, trainings and models."""

    name = "gnnflow"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        """The application. Only the API server asks for it, so that no other process imports it."""
        from gnnflow_airflow.pages.app import make_app

        return [{"app": make_app(), "url_prefix": PREFIX, "name": self.name}]

    @property
    def external_views(self) -> list[dict[str, Any]]:
        """The entry in Airflow's menu."""
        return [{"name": self.name, "href": f"{airflow_address()}{PREFIX}/", "destination": "nav"}]
