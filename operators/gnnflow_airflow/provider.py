"""Metadata of this package for Airflow, by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any

# The fields of a connection lie in its `extra`, under these names.
_FIELDS = {
    "tls_ca_file": (
        "TLS: file of the CA",
        "string",
        "A PEM file on Airflow's machines, for an encrypted scheduler.",
    ),
    "tls_client_cert": ("TLS: file of our certificate", "string", "A PEM file."),
    "tls_client_key": ("TLS: file of our key", "string", "A PEM file."),
    "workspace": ("Workspace", "string", "Of configs that name none: a folder or URL such as s3://bucket/runs."),
    "resource": ("Resource", "string", "Use only workers that offer this resource of Dask's."),
    "workers": ("Workers", "integer", "So many must be able to run gnnflow's tasks before a stage begins; empty: one."),
    "storage_conn_id": ("Storage connection", "string", "Id of an AWS, Google Cloud or Azure connection for the URLs."),
}
_LINKS = ("ReportLink", "DashboardLink", "PredictionsLink", "CurvesLink", "ComparisonLink")


def get_provider_info() -> dict[str, Any]:
    """Return the connection type and the link classes. Imports nothing, since every Airflow process calls it."""
    return {
        "package-name": "gnnflow",
        "name": "gnnflow",
        "description": "Graph neural networks as deferrable operators on Dask.",
        "connection-types": [
            {
                "connection-type": "dask",
                "hook-class-name": "gnnflow_airflow.hook.DaskHook",
                "hook-name": "Dask (gnnflow)",
                "conn-fields": {
                    name: {"label": label, "schema": {"type": [kind, "null"]}, "description": text}
                    for name, (label, kind, text) in _FIELDS.items()
                },
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "password", "schema"],
                    "relabeling": {"host": "Address of the scheduler"},
                    "placeholders": {"host": "scheduler.example.com", "port": "8786"},
                },
            }
        ],
        "extra-links": [f"gnnflow_airflow.links.{name}" for name in _LINKS],
    }
