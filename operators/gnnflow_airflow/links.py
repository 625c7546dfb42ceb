"""Buttons on a task: the run's report, Dask's dashboard, the predictions.

A browser opens only http addresses, but a workspace is often a bucket or a folder. `GNNFLOW_LINKS` maps one to the
other: `s3://bucket=https://files.example.com/bucket`, with spaces between several. The longest prefix counts that is
the URI or a folder above it. Without a match the URI itself is shown, to be copied.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


def web_address(uri: str) -> str:
    """Return the web address of a URI."""
    rules = [rule.partition("=")[::2] for rule in os.environ.get("GNNFLOW_LINKS", "").split()]
    for prefix, address in sorted(rules, key=lambda rule: len(rule[0]), reverse=True):
        below = uri.removeprefix(prefix)
        if uri.startswith(prefix) and (not below or prefix.endswith("/") or below.startswith("/")):
            return address + below
    return uri


class _Link(BaseOperatorLink):
    """A button for the address that the task stored under the link's key."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address, or '' if the task has none."""
        return web_address(getattr(operator, "links", {}).get(self.xcom_key, ""))


class ReportLink(_Link):
    """The run's HTML report."""

    name = "Report"
    xcom_key = "_link_ReportLink"


class DashboardLink(_Link):
    """Dask's dashboard."""

    name = "Dask dashboard"
    xcom_key = "_link_DashboardLink"


class PredictionsLink(_Link):
    """The folder of the predictions."""

    name = "Predictions"
    xcom_key = "_link_PredictionsLink"


class ComparisonLink(_Link):
    """An experiment's table and plot."""

    name = "Comparison"
    xcom_key = "_link_ComparisonLink"
