"""The deferrable operator every stage shares.

`execute` reads the config and asks where the stage should run. For a Dask cluster it names a job, keeps the name in the
task's state store (which survives retries and clearing) and defers to a trigger that submits the job and waits; a retry
finds the name there and waits for the same job instead of starting a second. Where the config names no cluster of its
own (synchronous, local), the stage runs in the task's process.

A job may be lost with its scheduler. Its finished tasks lie in the workspace, so it is submitted again, a few times;
after that the task fails, and its retry resumes from there too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from operators.announce import announce
from operators.links import DashboardLink, PredictionsLink, ReportLink
from operators.progress import SECONDS_BETWEEN

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config import Config
    from operators.hook import DaskEndpoint
    from operators.jobs import Job
    from operators.trigger import StageTrigger

Result = TypeVar("Result")

_JOB = "gnnflow_job"
_LOSSES = 3


class StageOperator(BaseOperator):
    """Run one stage and return its outcome: URIs and counts.

    config: path or URL of a YAML file. overrides: `key.path=value`. workspace replaces the config's. The job goes to
    cluster_address, to the Dask connection dask_conn_id, or to the address in the config, whichever is given first.
    poll_seconds: time between progress lines. Fails without a retry where one cannot help (a bad config or table).
    """

    stage: ClassVar[str]
    template_fields: Sequence[str] = ("config", "overrides", "workspace", "cluster_address")
    operator_extra_links = (ReportLink(), DashboardLink(), PredictionsLink())
    ui_color = "#e8f1ee"

    def __init__(
        self,
        *,
        config: str,
        overrides: Sequence[str] = (),
        workspace: str | None = None,
        dask_conn_id: str | None = None,
        cluster_address: str = "",
        deferrable: bool = True,
        poll_seconds: float = SECONDS_BETWEEN,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.config = config
        self.overrides = list(overrides)
        self.workspace = workspace
        self.dask_conn_id = dask_conn_id
        self.cluster_address = cluster_address
        self.deferrable = deferrable
        self.poll_seconds = poll_seconds
        self.links: dict[str, str] = {}
        self.outcome: dict[str, Any] | None = None
        self._killed = False
        self._job: tuple[str, DaskEndpoint] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stage here, or hand it to the cluster and defer."""
        config = self._read_config()
        self._skip_unless_needed(config)
        endpoint = self._endpoint(config)
        if endpoint is None:
            return self._done(context, self._here(config))
        return self._on_cluster(context, config, endpoint, losses=0)

    def execute_complete(self, context: Context, event: dict[str, Any], losses: int = 0) -> dict[str, Any]:
        """Go on after the job's last event: return its outcome, fail, or submit it again where it was lost."""
        # This is another process than the one that handed the job over, and links are noted anew when it ends.
        self.links[DashboardLink.xcom_key] = context["ti"].xcom_pull(key=DashboardLink.xcom_key) or ""
        if event["kind"] == "finished":
            return self._done(context, event)
        if event["kind"] == "failed":
            if event.get("trace"):
                self.log.error("on the cluster:\n%s", event["trace"])
            raise (AirflowFailException if event["hopeless"] else AirflowException)(event["error"])
        if losses >= _LOSSES:
            raise AirflowException(f"the job was lost {losses + 1} times, last because {event['error']}")
        self.log.warning("%s; submitting it again, it resumes at its last finished task", event.get("error", "stopped"))
        config = self._read_config()
        endpoint = self._endpoint(config)
        assert endpoint is not None
        return self._on_cluster(context, config, endpoint, losses=losses + 1)

    def on_kill(self) -> None:
        """Free the cluster when the task's process is told to stop."""
        self._killed = True
        if self._job:
            self._cancel(*self._job)

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the datasets read and written, with their rows and columns; None before the stage is done."""
        from operators.lineage import lineage_of

        return lineage_of(self.stage, self._read_config(), self.outcome) if self.outcome else None

    def _read_config(self) -> Config:
        from gnnflow.graph.errors import GnnflowError
        from operators.reading import read_config

        try:
            return read_config(self.config, overrides=self.overrides, workspace=self.workspace)
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from error

    def _skip_unless_needed(self, config: Config) -> None:
        from gnnflow.config.stages import run_chain, stages_of_any

        if self.stage in stages_of_any() and self.stage not in run_chain(config.train.strategy):
            raise AirflowSkipException(f"strategy {config.train.strategy} has no stage {self.stage}")

    def _endpoint(self, config: Config) -> DaskEndpoint | None:
        from operators.hook import DaskEndpoint, DaskHook

        if self.cluster_address:
            return DaskEndpoint(self.cluster_address)
        if self.dask_conn_id:
            return DaskHook(self.dask_conn_id).get_conn()
        return DaskEndpoint(config.cluster.address) if config.cluster.kind == "address" else None

    def _here(self, config: Config) -> dict[str, Any]:
        from gnnflow.graph.errors import ClusterError, GnnflowError
        from operators.driver import run_here
        from operators.progress import Stopped

        try:
            return run_here(self.stage, config, say=self.log.info, stopped=lambda: self._killed)
        except Stopped as order:
            raise AirflowException("stopped; the next attempt resumes at the last finished task") from order
        except ClusterError as error:
            raise AirflowException(str(error)) from error
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from error

    def _on_cluster(self, context: Context, config: Config, endpoint: DaskEndpoint, *, losses: int) -> dict[str, Any]:
        """Name the job and let the trigger run it; without deferral, run it from here."""
        from operators.jobs import Job

        job = Job(self._name_job(context, endpoint), self.stage, config.model_dump(mode="json"))
        if self.deferrable:
            trigger = self._trigger(job, endpoint)
            self.defer(trigger=trigger, method_name="execute_complete", kwargs={"losses": losses})
        return self.execute_complete(context, self._watch_here(endpoint, job), losses)

    def _name_job(self, context: Context, endpoint: DaskEndpoint) -> str:
        """Return the job an earlier attempt left on the cluster, if the cluster still knows it, or a new name."""
        from operators import jobs

        store = context.get("task_state_store")
        earlier = store.get(_JOB) if store is not None else None

        async def look() -> tuple[bool, str]:
            async with jobs.connect(endpoint.address, endpoint.security) as client:
                known = isinstance(earlier, str) and await jobs.is_known(client, earlier)
                return known, str(client.dashboard_link or "")

        known, dashboard = self._ask(look())
        self._link(context, DashboardLink.xcom_key, dashboard)
        if known:
            self.log.info("waiting for %s, which an earlier attempt started", earlier)
            return str(earlier)
        job = jobs.new_job(self.stage)
        if store is not None:
            store.set(_JOB, job)
        self.log.info("handing %s to the cluster; dashboard: %s", job, dashboard or "none")
        return job

    def _trigger(self, job: Job, endpoint: DaskEndpoint) -> StageTrigger:
        from operators.trigger import StageTrigger

        limit = self.execution_timeout
        return StageTrigger(
            job=job.name,
            stage=job.stage,
            config=job.config,
            address=self.cluster_address or ("" if self.dask_conn_id else endpoint.address),
            dask_conn_id=None if self.cluster_address else self.dask_conn_id,
            seconds=self.poll_seconds,
            deadline=time.time() + limit.total_seconds() if limit else None,
        )

    def _watch_here(self, endpoint: DaskEndpoint, job: Job) -> dict[str, Any]:
        from operators import jobs

        async def watch() -> dict[str, Any]:
            async with jobs.connect(endpoint.address, endpoint.security) as client:
                event: dict[str, Any] = await jobs.run(client, job, say=self.log.info, seconds=self.poll_seconds)
                return event

        self._job = (job.name, endpoint)
        event = self._ask(watch())
        self._job = None
        return event

    def _cancel(self, job: str, endpoint: DaskEndpoint) -> None:
        from operators import jobs

        async def stop() -> None:
            async with jobs.connect(endpoint.address, endpoint.security) as client:
                await jobs.cancel(client, job, say=self.log.info)

        self._ask(stop())

    def _ask(self, question: Coroutine[Any, Any, Result]) -> Result:
        from gnnflow.graph.errors import ClusterError

        try:
            return _run_in_thread(question)
        except ClusterError as error:
            raise AirflowException(str(error)) from error

    def _done(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        self.outcome = {key: value for key, value in event.items() if key not in {"kind", "worker"}}
        self._link(context, ReportLink.xcom_key, self.outcome.get("report", ""))
        self._link(context, PredictionsLink.xcom_key, self.outcome.get("predictions", ""))
        announce(context, self.outlets, self.outcome)
        return self.outcome

    def _link(self, context: Context, key: str, uri: str) -> None:
        """Note an address for a button, now rather than at the task's end: a deferred task is watched too."""
        from operators.links import web_address

        if uri:
            self.links[key] = uri
            context["ti"].xcom_push(key=key, value=web_address(uri))


def _run_in_thread(question: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end, also where this thread is a signal handler above a running event loop."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, question).result()
