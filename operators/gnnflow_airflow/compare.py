"""The last task of an experiment: one table and one plot of all its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from gnnflow_airflow.links import ComparisonLink, web_address

if TYPE_CHECKING:
    from airflow.sdk import Context


class CompareOperator(BaseOperator):
    """Write a comparison of completed runs into their workspace and return where it is.

    runs maps a run's label to its URI; runs that failed have none and are listed last.
    """

    template_fields: Sequence[str] = ("runs", "workspace")
    operator_extra_links = (ComparisonLink(),)

    def __init__(self, *, name: str, runs: Mapping[str, str], workspace: str, **options: Any) -> None:
        super().__init__(**options)
        self.name = name
        self.runs = dict(runs)
        self.workspace = workspace
        self.links: dict[str, str] = {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the URIs of table, plot and page."""
        from gnnflow.stages.comparison import compare_runs

        completed = {label: uri for label, uri in self.runs.items() if uri and uri != "None"}
        failed = {label: "see the log of its tasks" for label in self.runs if label not in completed}
        if not completed:
            raise AirflowException("no run of this experiment completed")
        result = compare_runs(completed, name=self.name, workspace=self.workspace, failed=failed)
        for line in result.lines:
            self.log.info(line)
        self.links[ComparisonLink.xcom_key] = result.page
        context["ti"].xcom_push(key=ComparisonLink.xcom_key, value=web_address(result.page))
        return {"page": result.page, "table": result.table, "plot": result.plot, "runs": len(completed)}
