"""The deferrable operator of all stages.

`execute` reads the config and decides the place of the stage. Without a connection, the stage runs in the task's
process, on the cluster that the config names. For a Dask cluster the operator first looks for an existing result, then
names a submission, keeps the name in the task's state store (which survives retries and clearing), submits the stage to
fit workers and waits for it. To defer costs Airflow some ten seconds, so a stage that ends soon is waited for here; a
longer one is left to a trigger, which waits without a worker slot. A retry finds the name and, if the config is still
the same, waits for that submission instead of a second one.

A submission may be lost with its scheduler. Its finished work is in the workspace, so the stage is submitted again, a
few times, and resumes there; after that the task fails, and its retry also resumes. All of these are one attempt, whose
`execution_timeout` goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskDeferralTimeout

from gnnflow.remote.task_log import SECONDS_BETWEEN
from gnnflow_airflow.asset_events import tell_outlets
from gnnflow_airflow.attempts import attempt
from gnnflow_airflow.connected import access_in_use, connected
from gnnflow_airflow.deferring import TOO_LONG, deadline_of, defers, latest_event
from gnnflow_airflow.links import DashboardLink, PredictionsLink, ReportLink
from gnnflow_airflow.metrics import count_done
from gnnflow_airflow.service import as_service

if TYPE_CHECKING:
    from airflow.sdk import Context

    from gnnflow.config import Config
    from gnnflow_airflow.endpoints import DaskEndpoint
    from gnnflow_airflow.reading import ConfigSource
    from gnnflow_airflow.submissions import Submission
    from gnnflow_airflow.trigger import StageTrigger

Result = TypeVar("Result")

DEFER_SECONDS = 30.0
"""How long a task waits for its stage before it defers: longer than a deferral costs, and short for a worker slot."""

_STATE_KEY = "gnnflow_submission"
_LOSSES = 3
_EXTRA = ("run", "predictions", "lists", "report", "artifact", "digest", "rows_out", "version", "promoted")
_STOPPED = "stopped; the next attempt resumes at the last finished task"


class StageOperator(BaseOperator):
    """Run one stage and return its outcome: URIs and counts.

    config: path or URL of a YAML file, a dict, or YAML text. overrides: `key.path=value`. workspace replaces the
    config's. The stage is submitted to cluster_address or else to the Dask connection dask_conn_id, if one is given.
    storage_conn_id: an AWS, Google Cloud or Azure connection whose credentials open the URLs of its kind; by default
    the one that the Dask connection names, if any. deferrable: left out as `deferring.py` says. defer_seconds: how long
    the task itself waits for the stage before it defers. poll_seconds: time between progress lines. Assets in `outlets`
    get an event for each result that is another than their latest. Fails without a retry if that cannot help (a bad
    config or table). Skips itself if the config's strategy has no such stage.
    """

    stage: ClassVar[str]
    template_fields: Sequence[str] = ("config", "overrides", "workspace", "cluster_address")
    operator_extra_links: tuple[BaseOperatorLink, ...] = (ReportLink(), DashboardLink(), PredictionsLink())
    ui_color = "#e8f1ee"

    def __init__(
        self,
        *,
        config: ConfigSource,
        overrides: Sequence[str] = (),
        workspace: str | None = None,
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        cluster_address: str = "",
        deferrable: bool | None = None,
        defer_seconds: float = DEFER_SECONDS,
        poll_seconds: float = SECONDS_BETWEEN,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.config = config
        self.overrides = list(overrides)
        self.workspace = workspace
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id
        self.cluster_address = cluster_address
        self.deferrable = defers(said=deferrable)
        self.defer_seconds = defer_seconds
        self.poll_seconds = poll_seconds
        self.links: dict[str, str] = {}
        self.outcome: dict[str, Any] | None = None
        self._killed = False
        self._watched: tuple[str, DaskEndpoint] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the stage here, or submit it to the cluster and defer."""
        with as_service(), attempt(context, self, stage=self.stage), self._connected():
            return self._execute(context)

    def _execute(self, context: Context) -> dict[str, Any]:
        from gnnflow.config.stages import every_stage, run_chain

        config = self._read_config()
        if self.stage in every_stage() and self.stage not in run_chain(config):
            raise AirflowSkipException(f"a run of this config has no stage {self.stage}")
        self._begin(context, config)
        endpoint = self._endpoint(config)
        if endpoint is None:
            return self._done(context, self._run_here(config))
        if (outcome := self._find_done(config)) is not None:
            return self._done(context, outcome)
        return self._on_cluster(context, config, endpoint, losses=0)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger; if its time is over and no triggerer saw that, stop the submission and fail."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            with attempt(context, self, stage=self.stage), self._connected():
                self._stop_submission(context)
                raise AirflowException(f"{TOO_LONG}, and no triggerer was there to see that") from None

    def execute_complete(
        self, context: Context, event: dict[str, Any], losses: int = 0, marker: str = ""
    ) -> dict[str, Any]:
        """Continue after the submission's last event: return its outcome, fail, or submit it again if it was lost."""
        with attempt(context, self, stage=self.stage), self._connected():
            return self._complete(context, event, losses, marker)

    def _complete(self, context: Context, event: dict[str, Any], losses: int, marker: str) -> dict[str, Any]:
        if marker:
            from gnnflow.mapreduce.fit_workers import unmark

            unmark(marker)
        # This is another process than the one that submitted the stage, and it stores the links again when it ends.
        # All siblings of a mapped task have stored one, so pull by index.
        ti = context["ti"]
        for link in self.operator_extra_links:
            self.links[link.xcom_key] = ti.xcom_pull(key=link.xcom_key, map_indexes=ti.map_index) or ""
        if event["kind"] == "finished":
            return self._done(context, event)
        if event["kind"] == "failed":
            if event.get("trace"):
                self.log.error("on the cluster:\n%s", event["trace"])
            raise (AirflowFailException if event["hopeless"] else AirflowException)(event["error"])
        if self._killed:  # we cancelled it
            raise AirflowException(_STOPPED)
        if losses >= _LOSSES:
            raise AirflowException(f"the stage was lost {losses + 1} times, last because {event['error']}")
        if said := event.get("said"):
            self.log.info(
                "the log until then, which Airflow replaces by that of the next trigger:\n%s", "\n".join(said)
            )
        lost = event.get("error", "it was stopped")
        self.log.warning("%s; submits the stage again, which resumes at its last finished task", lost)
        with as_service():
            config = self._read_config()
            endpoint = self._endpoint(config)
            assert endpoint is not None
            return self._on_cluster(context, config, endpoint, losses=losses + 1)

    def on_kill(self) -> None:
        """Cancel the submission when the task's process must stop."""
        self._killed = True
        if self._watched is None:
            return
        name, endpoint = self._watched

        async def stop() -> None:
            from gnnflow_airflow import submissions

            async with submissions.connect(endpoint.address, endpoint.security) as client:
                await submissions.cancel(client, name, say=self.log.info)

        self._run(stop())

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the datasets read and written, with their rows and columns; None before the stage is done."""
        from gnnflow_airflow.lineage import lineage_of

        if not self.outcome:
            return None
        with self._connected():
            return lineage_of(self.stage, self._read_config(), self.outcome)

    def _connected(self) -> contextlib.AbstractContextManager[None]:
        return connected(None if self.cluster_address else self.dask_conn_id, self.storage_conn_id)

    def _begin(self, context: Context, config: Config) -> None:
        """Announce the work before it begins; by default there is nothing to say."""

    def _read_config(self) -> Config:
        from gnnflow.graph.errors import GnnflowError, MachineError
        from gnnflow_airflow.reading import read_config

        try:
            return read_config(self.config, overrides=self.overrides, workspace=self.workspace)
        except MachineError as error:
            raise AirflowException(str(error)) from error
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None

    def _endpoint(self, config: Config) -> DaskEndpoint | None:
        from gnnflow.config import AddressCluster
        from gnnflow_airflow.endpoints import DaskEndpoint
        from gnnflow_airflow.hook import DaskHook

        if self.cluster_address:
            return DaskEndpoint(self.cluster_address)
        if self.dask_conn_id:
            return DaskHook(self.dask_conn_id).get_conn()
        return DaskEndpoint(config.cluster.address) if isinstance(config.cluster, AddressCluster) else None

    def _run_here(self, config: Config) -> dict[str, Any]:
        from gnnflow.graph.errors import GnnflowError
        from gnnflow.remote.driver import PASSING, run_here
        from gnnflow.remote.task_log import Stopped

        try:
            with hidden_main_module():
                return run_here(self.stage, config, say=self.log.info, stopped=lambda: self._killed)
        except Stopped as error:
            raise AirflowException(_STOPPED) from error
        except PASSING as error:
            raise AirflowException(str(error)) from error
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None

    def _find_done(self, config: Config) -> dict[str, Any] | None:
        """Return the outcome of a stage whose result exists already, which is quicker than a submission; else None."""
        from gnnflow.graph.errors import GnnflowError, MachineError, StorageError
        from gnnflow.remote.driver import outcome_if_done

        try:
            return outcome_if_done(self.stage, config, say=self.log.info)
        except (StorageError, MachineError) as error:
            self.log.info("cannot tell from here whether %s is done, so the cluster runs it: %s", self.stage, error)
            return None
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None

    def _on_cluster(self, context: Context, config: Config, endpoint: DaskEndpoint, *, losses: int) -> dict[str, Any]:
        """Submit the stage and wait for it, here and then in the trigger."""
        deadline = deadline_of(self, context)
        if deadline is not None and time.time() >= deadline:
            raise AirflowException(TOO_LONG)
        submission = self._submission(context, config, endpoint)
        if self._killed:
            raise AirflowException(_STOPPED)
        event = self._watch_here(submission, endpoint, deadline)
        if event["kind"] == "unfinished":
            self.defer(
                trigger=self._trigger(submission, endpoint, deadline),
                method_name="execute_complete",
                kwargs={"losses": losses, "marker": submission.marker},
                timeout=latest_event(deadline),
            )
        return self._complete(context, event, losses, submission.marker)

    def _submission(self, context: Context, config: Config, endpoint: DaskEndpoint) -> Submission:
        """Return the submission of an earlier attempt, if it does the same work, or a new one."""
        from gnnflow_airflow import submissions

        marker = self._mark(config)
        access = access_in_use(self.storage_conn_id, endpoint)
        new = submissions.Submission.new(
            self.stage, config.model_dump(mode="json"), marker=marker, asked=endpoint.asked, access=access
        )
        store = context.get("task_state_store")
        earlier = store.get(_STATE_KEY) if store is not None else None

        async def look() -> tuple[str, str]:
            async with submissions.connect(endpoint.address, endpoint.security) as client:
                known = earlier if isinstance(earlier, str) and await submissions.is_known(client, earlier) else ""
                if known and not new.has_work_of(known):  # the config was edited since
                    await submissions.cancel(client, known, say=self.log.info)
                    known = ""
                return known, str(client.dashboard_link or "")

        known, dashboard = self._run(look())
        self._link(context, DashboardLink.xcom_key, dashboard)
        if known:
            self.log.info("waiting for %s, which an earlier attempt started", known)
            return replace(new, name=known)
        if store is not None:
            store.set(_STATE_KEY, new.name)
        self.log.info("submitting %s to the cluster; dashboard: %s", new.name, dashboard or "none")
        return new

    def _mark(self, config: Config) -> str:
        """Write a file by which workers show that they see the workspace; return nothing where it cannot be written."""
        from gnnflow.graph.errors import MachineError, StorageError
        from gnnflow.mapreduce.fit_workers import mark

        try:
            return mark(config.workspace)
        except (StorageError, MachineError, OSError) as error:
            self.log.warning("workers are not asked for the workspace, which cannot be written from here: %s", error)
            return ""

    def _stop_submission(self, context: Context) -> None:
        """Stop what this attempt has on the cluster."""
        store, endpoint = context.get("task_state_store"), self._endpoint(self._read_config())
        if store is not None and endpoint is not None and isinstance(name := store.get(_STATE_KEY), str):
            self._watched = (name, endpoint)
            self.on_kill()

    def _trigger(self, submission: Submission, endpoint: DaskEndpoint, deadline: float | None) -> StageTrigger:
        from gnnflow_airflow.trigger import StageTrigger

        return StageTrigger(
            submission=submission.name,
            stage=submission.stage,
            config=submission.config,
            marker=submission.marker,
            storage_conn_id=self.storage_conn_id,
            address=self.cluster_address or ("" if self.dask_conn_id else endpoint.address),
            dask_conn_id=None if self.cluster_address else self.dask_conn_id,
            seconds=self.poll_seconds,
            deadline=deadline,
        )

    def _watch_here(self, submission: Submission, endpoint: DaskEndpoint, deadline: float | None) -> dict[str, Any]:
        """Submit the stage unless the cluster has it and return its last event, or that it has not ended yet."""
        from gnnflow_airflow import submissions

        patience = math.inf
        if self.deferrable:  # else Airflow's own clock ends this process
            left = math.inf if deadline is None else max(deadline - time.time(), 0)
            patience = min(self.defer_seconds, left)

        async def watch() -> dict[str, Any]:
            async with submissions.connect(endpoint.address, endpoint.security) as client:
                event: dict[str, Any] = await submissions.run(
                    client,
                    submission,
                    say=self.log.info,
                    seconds=self.poll_seconds,
                    stopped=lambda: self._killed,
                    patience=patience,
                )
                return event

        self._watched = (submission.name, endpoint)
        event = self._run(watch())
        if event["kind"] != "unfinished":  # else it can be stopped from here until the task has deferred
            self._watched = None
        return event

    def _run(self, request: Coroutine[Any, Any, Result]) -> Result:
        """Run a request to the cluster to its end."""
        from concurrent.futures import ThreadPoolExecutor

        from gnnflow.graph.errors import ClusterError

        # In a thread, since this may be a signal handler within a running event loop. If this is interrupted, nothing
        # waits for the thread: its submission is stopped only after this has ended.
        pool = ThreadPoolExecutor(1)
        try:
            return pool.submit(asyncio.run, request).result()
        except ClusterError as error:
            raise AirflowException(str(error)) from error
        except OSError as error:
            raise AirflowException(f"the Dask scheduler does not answer ({type(error).__name__}: {error})") from error
        finally:
            pool.shutdown(wait=False)

    def _done(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        self.outcome = {key: value for key, value in event.items() if key not in {"kind", "worker"}}
        count_done(self.stage, self.outcome)
        self._link(context, ReportLink.xcom_key, self.outcome.get("report", ""))
        self._link(context, PredictionsLink.xcom_key, self.outcome.get("predictions", ""))
        # assets carry the URIs and counts to the DAGs that wait for them
        extra = {"stage": self.stage, **{key: self.outcome[key] for key in _EXTRA if key in self.outcome}}
        self.outlets: list[Any] = tell_outlets(context, self.outlets, extra)
        return self.outcome

    def _link(self, context: Context, key: str, uri: str) -> None:
        """Store the address of a button now, not at the task's end, since people also watch deferred tasks."""
        from gnnflow_airflow.links import web_address

        if uri:
            self.links[key] = web_address(uri)
            context["ti"].xcom_push(key=key, value=self.links[key])


@contextlib.contextmanager
def hidden_main_module() -> Iterator[None]:
    """Keep spawned processes from importing this process's main module, within a block and when lost ones restart.

    Python's multiprocessing imports the parent's main module in each process that it spawns, such as Dask's workers. In
    a task this is Airflow's script, which asks for a database that tasks may not reach, so that no worker would start.
    """
    held = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: held[name] for name in ("__file__", "__spec__") if name in held}
    held.pop("__file__", None)
    held["__spec__"] = None
    try:
        yield
    finally:
        held.update(before)
