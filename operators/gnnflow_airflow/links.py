"""Buttons on a task: the run's report, its predictions and learning curves, Dask's dashboard.

A workspace of `GNNFLOW_WORKSPACES` has pages in Airflow, and the buttons lead there. Of other workspaces, which are
often a bucket or a folder, `GNNFLOW_LINKS` says how a URI becomes an http address:
`s3://bucket=https://files.example.com/bucket`, with spaces between several. The longest prefix counts that is the URI
or a folder above it. Without either there is no button, since a browser opens neither buckets nor folders.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

from gnnflow_airflow.places import find_address

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


def web_address(uri: str) -> str:
    """Return the web address of a URI; empty if it has none."""
    if uri and (page := find_address(uri)):
        return page
    rules = [rule.partition("=")[::2] for rule in os.environ.get("GNNFLOW_LINKS", "").split()]
    for prefix, address in sorted(rules, key=lambda rule: len(rule[0]), reverse=True):
        below = uri.removeprefix(prefix)
        if uri.startswith(prefix) and (not below or prefix.endswith("/") or below.startswith("/")):
            return address + below
    return uri if uri.startswith(("http://", "https://")) else ""


class _Link(BaseOperatorLink):
    """A button for the web address that the task stored under the link's key."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or '' if the task has none."""
        return str(getattr(operator, "links", {}).get(self.xcom_key, ""))


class ReportLink(_Link):
    """The run's HTML report."""

    name = "Report"
    xcom_key = "_link_ReportLink"


class DashboardLink(_Link):
    """Dask's dashboard."""

    name = "Dask dashboard"
    xcom_key = "_link_DashboardLink"


class CurvesLink(_Link):
    """The learning curves of a training, from its first epoch on."""

    name = "Curves"
    xcom_key = "_link_CurvesLink"


class PredictionsLink(_Link):
    """The predictions."""

    name = "Predictions"
    xcom_key = "_link_PredictionsLink"


class ComparisonLink(_Link):
    """An experiment's table and plot."""

    name = "Comparison"
    xcom_key = "_link_ComparisonLink"
