"""DAGs that retrain models: on a schedule or with new data, guarded, compared, and scored with the better model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, CronTriggerTimetable, Param, PartitionedAssetTimetable

from gnnflow.config.base import MAX_SEED
from gnnflow.config.messages import show
from gnnflow.config.sections import GuardsConfig
from gnnflow.config.stages import retraining_chain
from gnnflow.graph.errors import ConfigError
from gnnflow_airflow.build import default_args, pipeline_tasks
from gnnflow_airflow.data_date import PARAM, data_date, fill_in
from gnnflow_airflow.prepare import PrepareOperator
from gnnflow_airflow.reasons import REASON

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config import Config
    from gnnflow_airflow.model_file import Approval, RetrainedModel
    from gnnflow_airflow.stage import StageOperator

FORCE = "force"
_GUARDS = tuple(key for key in GuardsConfig.model_fields if key != "commands")
_REASON = f"{{{{ (ti.xcom_pull(task_ids=task.task_id, key='{REASON}') or 'Its log says why.') | e }}}}"


class PrepareModelOperator(PrepareOperator):
    """Prepare the config of a model's file for one DAG run.

    The config is read anew. Dates are filled in before variables are read, so that a date or a partition cannot name a
    variable; a config that holds some is of that date's tables. The run's params are last: guards, and with `force`
    another seed, so that training is not reused.
    """

    def __init__(self, *, model: RetrainedModel, **options: Any) -> None:
        super().__init__(**options)
        self.model = model

    def _read(self, context: Context) -> Config:
        from gnnflow_airflow.reading import config_of, read_text

        date = data_date(context)
        self.log.info("data date: %s (%s)", date.names["ds"], date.origin)
        written = self.model.values(read_text)
        values, overrides = fill_in(written, date), _typed_overrides(context, config=self.model.config)
        if values != written and not self.model.config.publish.date:
            overrides.append(f"publish.date={date.moment.isoformat()}")
        return config_of(
            values,
            overrides=overrides,
            environment=os.environ,
            source=self.model.source,
        )


def run_params(config: Config) -> dict[str, Param]:
    """Return the params of one run: the data date, force, and each guard of the config."""
    guards = {
        f"guards.{key}": Param(
            None,
            type=["string", "number", "null"],
            title=f"guards.{key}",
            section="Guards of this run",
            description=f"{GuardsConfig.model_fields[key].description} Empty: {show(getattr(config.guards, key))}, as "
            "the model's file and config say. The word null turns it off.",
        )
        for key in _GUARDS
    }
    return {
        PARAM: Param(
            None,
            type=["string", "null"],
            title="Data date",
            description="Date that {{ ds }} in the config stands for, such as 2026-01-31. Empty: the run's own.",
        ),
        FORCE: Param(
            default=False,
            type="boolean",
            title="Train again",
            description="Train with another seed even if nothing has changed since an earlier run, whose model would "
            "be reused. Where the split is drawn by the seed, the test targets change too.",
        ),
        **guards,
    }


def _typed_overrides(context: Context, *, config: Config) -> list[str]:
    """Return the params of this run as overrides."""
    params = context["params"]
    typed = {f"guards.{key}": params.get(f"guards.{key}") for key in _GUARDS}
    overrides = [f"{key}={value}" for key, value in typed.items() if value not in {None, ""}]
    if params.get(FORCE):
        # the same for each try of this run, and another for each run
        drawn = int.from_bytes(hashlib.sha256(context["run_id"].encode()).digest()[:4])
        overrides.append(f"seed={(config.seed + 1 + drawn % MAX_SEED) % (MAX_SEED + 1)}")
    return overrides


def retraining_dag(model: RetrainedModel, *, dag_id: str, doc: str) -> DAG:
    """Return the DAG of a model, paused until somebody starts it."""
    file, config = model.file, model.config
    # By name alone, so that `Asset("NAME/graph")` in a user's DAG is the same asset.
    names = (f"{config.name}/graph",) if file.assets is None else file.assets
    graph = [Asset(name) for name in names]
    with DAG(
        dag_id=dag_id,
        description=f"Retrain {config.name}, promote only what is better, score with the model in service.",
        doc_md=doc,
        schedule=_schedule(model, graph),
        catchup=False,
        is_paused_upon_creation=True,
        max_active_runs=1,
        auto_register=False,  # Airflow would also find a DAG that its caller refuses afterwards, in place of the error
        params=run_params(config),
        default_args={
            **default_args(),
            "owner": file.owner,
            "on_failure_callback": _mails(file.alerts, "failed", _REASON),
            **({"pool": file.pool} if file.pool else {}),
        },
        tags=["gnnflow", "model"],
    ) as dag:
        prepare = PrepareModelOperator(task_id="prepare", model=model)
        # A stage is skipped where the file was edited since this DAG was read; the ones after it run all the same.
        tasks = pipeline_tasks(prepare, retraining_chain(config))
        tasks["ingest"].inlets.extend(graph)
        tasks["score"].outlets.append(Asset(f"{config.name}/predictions"))
        if model.approval:
            _ask(model.approval, tasks, config=prepare.output, alerts=file.alerts)
    return dag


def _schedule(model: RetrainedModel, assets: Sequence[Asset]) -> Any:
    """Return the schedule. Raises ConfigError for a cron expression that Airflow cannot read."""
    file = model.file
    if file.partitions:
        return PartitionedAssetTimetable(assets=_all_of(assets))
    if file.schedule is None:
        return list(assets) or None
    clock = CronTriggerTimetable(file.schedule, timezone="UTC")
    _check_clock(clock, file.schedule)
    return AssetOrTimeSchedule(timetable=clock, assets=list(assets)) if assets else clock


def _all_of(assets: Sequence[Asset]) -> Any:
    """Return the condition that all assets have new data."""
    from airflow.sdk import AssetAll

    return assets[0] if len(assets) == 1 else AssetAll(*assets)


def _check_clock(clock: CronTriggerTimetable, expression: str) -> None:
    """Raise ConfigError for a wrong cron expression, which would break all DAGs of the Python file later."""
    from airflow.exceptions import AirflowTimetableInvalid
    from airflow.serialization.encoders import coerce_to_core_timetable

    try:
        coerce_to_core_timetable(clock).validate()
    except (AirflowTimetableInvalid, ValueError) as error:
        raise ConfigError(
            f"{expression!r} is not a cron expression ({error})", where="schedule", fix="Write it as '0 3 * * 0'."
        ) from None


def _ask(approval: Approval, tasks: Mapping[str, StageOperator], *, config: Any, alerts: Sequence[str]) -> None:
    """Put the approval and the promotion between publication and scoring."""
    from gnnflow_airflow.promotion import PromoteOperator, PromotionApproval

    told = _mails(alerts, "waits for an answer", "It stands under Required Actions.")
    approve = PromotionApproval(task_id="approve", asked=approval, config=config, mails=told)
    promote = PromoteOperator(task_id="promote", config=config, approval="approve")
    tasks["publish"] >> approve >> promote >> tasks["score"]


def _mails(addresses: Sequence[str], event: str, text: str) -> list[Any]:
    """Return the notifier that mails a task's event through Airflow's SMTP connection; none without addresses."""
    if not addresses:
        return []
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    said = f"{{{{ dag.dag_id }}}}: {{{{ task.task_id }}}} {event}"
    body = f"<p>{said} in the run {{{{ run_id | e }}}}.</p><p>{text}</p>"
    return [SmtpNotifier(to=list(addresses), subject=said, html_content=body)]
