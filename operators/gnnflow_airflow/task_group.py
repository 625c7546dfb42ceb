"""All stages of a pipeline as one group of tasks, for DAGs that others write.

with DAG("fraud", schedule="@daily"):
    load() >> GnnflowTaskGroup(config="s3://bank/fraud.yaml") >> tell()
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import TaskGroup, XComArg

from gnnflow.config.stages import every_stage, run_chain, with_publication
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow_airflow.build import default_args, pipeline_tasks
from gnnflow_airflow.local_copies import text_near
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.reading import read_config

if TYPE_CHECKING:
    from gnnflow_airflow.reading import ConfigSource
    from gnnflow_airflow.stage import StageOperator

_OF_GROUPS = set(inspect.signature(TaskGroup.__init__).parameters)


class GnnflowTaskGroup(TaskGroup):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Tasks that check a config and run its stages, from tables to predictions.

    config, overrides, workspace: as for every operator; templates too, and a config may be an XCom. publish: also check
    the guards after ingest, publish the model, and score with the one in service. stages: names of all stages to
    run, instead. outlets: assets of the predictions. options: of the group (`tooltip`), and of its tasks (`pool`,
    `owner`, `deferrable`, `dask_conn_id`).

    The tasks are the stages of the config as it is when the DAG is parsed. If a template or an XCom may decide them,
    each stage of any strategy has a task, and one that the run does not have is skipped. Retries, time limit and Dask
    connection are as in the project's own DAGs, unless the DAG or the group says otherwise.
    """

    def __init__(
        self,
        group_id: str = "gnnflow",
        *,
        config: ConfigSource | XComArg,
        overrides: Sequence[str] = (),
        workspace: str | None = None,
        publish: bool = False,
        stages: Sequence[str] | None = None,
        outlets: Sequence[Any] = (),
        default_args: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        of_group = {name: value for name, value in options.items() if name in _OF_GROUPS}
        of_tasks = {name: value for name, value in options.items() if name not in _OF_GROUPS}
        super().__init__(group_id=group_id, default_args=default_args or {}, **of_group)
        self.default_args: dict[str, Any] = {**_missing(self.dag.default_args), **self.default_args}
        if stages and publish:
            raise ConfigError(
                "publish adds stages to those of the config, and `stages` names all that run",
                where="publish",
                fix="Name guards, publish and score among the stages, or leave `stages` out.",
            )
        chosen = stages or _stages_of(config, overrides, workspace=workspace, publish=publish)
        place = {"dag": self.dag, "task_group": self}
        self.prepare = PrepareOperator(
            task_id="prepare",
            config=cast("ConfigSource", config),
            overrides=overrides,
            workspace=workspace,
            default_args=of_tasks,  # it takes those that it knows; the stages refuse an unknown one
            **place,
        )
        self.tasks: dict[str, StageOperator] = pipeline_tasks(self.prepare, chosen, **of_tasks, **place)
        self.tasks[chosen[-1]].outlets.extend(outlets)

    @property
    def output(self) -> XComArg:
        """The result of the last stage, for tasks that read it: URIs, counts and metrics."""
        return list(self.tasks.values())[-1].output


def _missing(said: dict[str, Any]) -> dict[str, Any]:
    """Return the default arguments of the project's own DAGs without those that a DAG says."""
    return {name: value for name, value in default_args().items() if name not in said}


def _stages_of(
    given: ConfigSource | XComArg, overrides: Sequence[str], *, workspace: str | None, publish: bool
) -> tuple[str, ...]:
    """Return the stages of a config as the DAG's file has it, or of every config where templates decide.

    Raises ConfigError or StorageError for a config that cannot be read.
    """
    is_template = _has_template([given, *overrides])
    chain = every_stage()
    # A text that is a template names no file yet. Templates within a dict are mostly of paths, which decide no stage.
    if isinstance(given, Mapping) or not _has_template(given):
        try:
            place = None if _has_template(workspace) else workspace
            source = cast("ConfigSource", given)
            chain = run_chain(read_config(source, overrides=overrides, workspace=place, read=text_near, is_run=False))
        except GnnflowError:
            if not is_template:
                raise
    return with_publication(chain) if publish else chain


def _has_template(value: Any) -> bool:
    """Return whether Airflow replaces a value, or a part of it, when its task runs."""
    if isinstance(value, Mapping):
        return any(map(_has_template, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_template, value))
    return isinstance(value, XComArg) or (isinstance(value, str) and ("{{" in value or "{%" in value))
