"""The last task of an experiment: tables and a plot of all its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from gnnflow_airflow.connected import connected
from gnnflow_airflow.links import ComparisonLink, web_address
from gnnflow_airflow.reasons import why_unfinished

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config.matrix import RunRow
    from gnnflow.stages.comparison import ComparisonResult

EXPERIMENT = "gnnflow_experiment"
"""XCom key of the first task of a run: the rows of all runs as that task read them, and a digest of the file."""


class CompareOperator(BaseOperator):
    """Write a comparison of completed runs into their workspace and return its URIs.

    runs maps the task that prepares a run to the task that completes it, in the experiment's order. Each task's process
    reads the experiment's file again, so the rows of the runs come from the tasks that prepared them. Failed runs are
    listed last with their errors, and fail this task after the comparison: as the last task of the DAG, it decides the
    state of the DAG. It is not tried again: all other tasks have ended.
    """

    operator_extra_links = (ComparisonLink(),)

    def __init__(
        self,
        *,
        name: str,
        runs: Mapping[str, str],
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id
        self.name = name
        self.runs = dict(runs)
        self.links: dict[str, str] = {}
        self.files: tuple[Sequence[str], Sequence[str]] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the URIs of tables, plot and page."""
        with connected(self.dask_conn_id, self.storage_conn_id):
            return self._compare(context)

    def _compare(self, context: Context) -> dict[str, Any]:
        from gnnflow.graph.errors import GnnflowError
        from gnnflow.stages.comparison import compare_runs
        from gnnflow.storage.workspace import Workspace

        ti, completed, failed = context["ti"], dict[str, str](), dict[str, str]()
        rows = self._rows(ti)
        for row, task in zip(rows, self.runs.values(), strict=True):
            if uri := (ti.xcom_pull(task_ids=task) or {}).get("run"):
                completed[row.label] = uri
            else:
                failed[row.label] = why_unfinished(ti, task, dag=self.dag)
        if not completed:
            raise AirflowFailException(f"no run of this experiment completed:{_listed(failed)}")
        # of a run, since the config may leave it to the connection of the tasks
        workspace = Workspace.of(next(iter(completed.values()))).uri
        try:
            result = compare_runs(rows, completed, name=self.name, workspace=workspace, failed=failed)
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None
        self.files = tuple(completed.values()), (result.page, result.table, result.runs_table, result.plot)
        for line in (*result.lines, "", *self._addresses(result)):
            self.log.info(line)
        self.links[ComparisonLink.xcom_key] = web_address(result.page)
        ti.xcom_push(key=ComparisonLink.xcom_key, value=self.links[ComparisonLink.xcom_key])
        outcome = {
            "page": result.page,
            "table": result.table,
            "runs_table": result.runs_table,
            "plot": result.plot,
            "verdict": result.verdict,
            "runs": len(completed),
        }
        if failed:
            ti.xcom_push(key="return_value", value=outcome)  # a failing task returns nothing
            raise AirflowFailException(
                f"{len(failed)} of {len(self.runs)} runs failed; the others are compared in {result.page}"
                f"{_listed(failed)}"
            )
        return outcome

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the compared runs and the files of the comparison; None before it is written."""
        from gnnflow_airflow.lineage import lineage_of_files

        return lineage_of_files(reads=self.files[0], writes=self.files[1]) if self.files else None

    @staticmethod
    def _addresses(result: ComparisonResult) -> Iterator[str]:
        """Yield a line for the comparison and for each run's report, with its address."""
        from gnnflow.storage.filesystem import join
        from gnnflow.storage.run_folder import REPORT

        yield f"comparison: {web_address(result.page)}"
        for variant in result.variants:
            for run in variant.completed:
                yield f"report of {run.row.label}: {web_address(join(run.uri, REPORT))}"

    def _rows(self, ti: Any) -> Sequence[RunRow]:
        """Return the rows of the runs at their preparation. Fails if these differ in their experiment."""
        from gnnflow.config.matrix import RunRow

        read = [found for task in self.runs if (found := ti.xcom_pull(task_ids=task, key=EXPERIMENT))]
        ended = {each["task_id"] for each in ti.get_task_breadcrumbs(ti.dag_id, ti.run_id)}
        # A variant's tasks are named for what it sets. Where all runs were prepared anew, older tasks do not matter.
        is_edited = len(read) < len(self.runs) and not ended <= set(self.dag.task_ids)
        if not read and not is_edited:
            first = {task: why_unfinished(ti, task, dag=self.dag) for task in self.runs}
            raise AirflowFailException(f"no run of this experiment was prepared:{_listed(first)}")
        rows = [RunRow(**row) for row in read[0]["rows"]] if read else []
        if not is_edited and len(rows) == len(self.runs) and all(each["digest"] == read[0]["digest"] for each in read):
            return rows
        raise AirflowFailException(
            f"the file of experiment {self.name} was edited during this DAG run, so its runs are not from one "
            "experiment. Trigger the DAG again; completed work is reused."
        )


def _listed(reasons: Mapping[str, str]) -> str:
    """Return a line for each run and its error."""
    return "".join(f"\n  {label}: {reason}" for label, reason in reasons.items())
