"""Stages that several runs share read the config of the first run that is prepared.

So a run that `prepare` refuses stops no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator

from gnnflow_airflow.grid import shared_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import BaseOperator

    from gnnflow.config.experiments import PlannedRun
    from gnnflow_airflow.grid import Grid

_LABEL = "prepared"


class PreparedRuns:
    """The tasks after which one of some runs is prepared, and the config of the first that is.

    For a single run that is the task that prepares it. For several it is one that nothing executes: Airflow's scheduler
    marks it. It cannot be left out, since a task has one rule for all tasks before it, and a stage needs the stage
    before it and only one of the preparations. prepares: the task that prepares each run, by the run's label.
    """

    def __init__(self, grid: Grid, prepares: Mapping[str, BaseOperator]) -> None:
        self._grid = grid
        self._prepares = prepares
        self._known: dict[tuple[str, ...], BaseOperator] = {}

    def task(self, runs: Sequence[PlannedRun], *, before: str) -> BaseOperator:
        """Return the task after which one of the runs is prepared. before: the stage that waits for it first."""
        prepares = [self._prepares[run.label] for run in runs]
        if len(prepares) == 1:
            return prepares[0]
        ids = tuple(each.task_id for each in prepares)
        if ids not in self._known:
            self._known[ids] = EmptyOperator(
                task_id=shared_id(f"{_LABEL}-{before}", runs[0]),
                task_display_name=self._grid.label(_LABEL, runs),
                task_group=self._grid.before_training,
                trigger_rule="one_success",
            )
            prepares >> self._known[ids]
        return self._known[ids]

    def config(self, runs: Sequence[PlannedRun]) -> str:
        """Return the template for the config of the first of the runs that is prepared."""
        return f"{{{{ first_prepared(ti, {[self._prepares[run.label].task_id for run in runs]}) }}}}"


def first_prepared(ti: Any, prepares: Sequence[str]) -> Any:
    """Return the config that the first of some tasks has prepared. The others are not asked: there may be hundreds."""
    return next(found for each in prepares if (found := ti.xcom_pull(task_ids=each)))
