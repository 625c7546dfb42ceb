"""A trigger that waits for a stage's submission, so that no worker slot waits; its lines appear in the task's log.

The task has mostly submitted it. Airflow calls `on_kill` only for triggers that have started, so a driver stops on its
own where its task is marked failed just after it deferred (`gnnflow.remote.handover`). One that did so is submitted
again by a trigger that starts late.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from gnnflow_airflow.deferring import TOO_LONG, least_seconds
from gnnflow_airflow.scheduler_watch import watch_scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gnnflow_airflow.endpoints import DaskEndpoint

_KEPT_LINES = 20
_KILL_SECONDS = 20.0  # for connecting; Airflow waits 30 for all of it


class StageTrigger(BaseTrigger):
    """Fires once, when a submission ends, is lost, or passes its deadline.

    submission: its name; one that the cluster already has is not started twice. address or dask_conn_id: the cluster.
    storage_conn_id: of the storage, whose credentials the workers are handed.
    deadline: in seconds since the epoch, so that a restarted triggerer does not restart the clock. marker: of the
    submission.
    """

    def __init__(
        self,
        *,
        submission: str,
        stage: str,
        config: dict[str, Any],
        address: str,
        dask_conn_id: str | None,
        seconds: float,
        deadline: float | None,
        marker: str = "",
        storage_conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.submission = submission
        self.stage = stage
        self.config = config
        self.address = address
        self.dask_conn_id = dask_conn_id
        self.seconds = seconds
        self.deadline = deadline
        self.marker = marker
        self.storage_conn_id = storage_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of this trigger; a connection is passed by its id."""
        return "gnnflow_airflow.trigger.StageTrigger", {
            "submission": self.submission,
            "stage": self.stage,
            "config": self.config,
            "address": self.address,
            "dask_conn_id": self.dask_conn_id,
            "seconds": self.seconds,
            "deadline": self.deadline,
            "marker": self.marker,
            "storage_conn_id": self.storage_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the submission's last event."""
        begin = time.monotonic()
        # Dask takes a second to import, and this loop runs all triggers.
        await asyncio.to_thread(importlib.import_module, "distributed")
        left = None if self.deadline is None else max(self.deadline - time.time(), 0)
        airflow = asyncio.create_task(watch_scheduler(self.log.warning))
        try:
            event = await asyncio.wait_for(self._watch(), timeout=left)
        except TimeoutError:
            await self.on_kill()
            event = {"kind": "failed", "error": TOO_LONG, "hopeless": False}
        finally:
            airflow.cancel()
        await asyncio.sleep(least_seconds() - (time.monotonic() - begin))
        yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Cancel the submission when a person marks or clears the task, and delete its marker: nobody else will."""
        from gnnflow.graph.errors import ClusterError
        from gnnflow.mapreduce.fit_workers import unmark
        from gnnflow_airflow import submissions

        if self.marker:
            await asyncio.to_thread(unmark, self.marker)
        endpoint = await self._endpoint()
        try:
            async with submissions.connect(endpoint.address, endpoint.security, seconds=_KILL_SECONDS) as client:
                await submissions.cancel(client, self.submission, say=self.log.info)
        except ClusterError as error:
            self.log.warning("%s was not stopped, and may still run on its cluster: %s", self.submission, error)

    async def _watch(self) -> dict[str, Any]:
        from gnnflow.graph.errors import ClusterError
        from gnnflow_airflow import submissions
        from gnnflow_airflow.connected import find_access

        said: deque[str] = deque(maxlen=_KEPT_LINES)

        def say(line: str) -> None:
            said.append(line)
            self.log.info("%s", line)

        endpoint = await self._endpoint()
        access = await find_access(self.storage_conn_id, endpoint)
        submission = submissions.Submission(
            self.submission, self.stage, self.config, self.marker, endpoint.asked, access
        )
        try:
            async with submissions.connect(endpoint.address, endpoint.security) as client:
                event: dict[str, Any] = await submissions.run(client, submission, say=say, seconds=self.seconds)
        except ClusterError as error:
            say(str(error))
            event = {**submissions.LOST, "error": str(error)}
        # after a loss another trigger of this attempt follows, and Airflow begins the log of triggers anew
        return {**event, "said": list(said)} if event["kind"] == "lost" else event

    async def _endpoint(self) -> DaskEndpoint:
        from gnnflow_airflow.endpoints import DaskEndpoint
        from gnnflow_airflow.hook import DaskHook

        return await DaskHook(self.dask_conn_id).aget_conn() if self.dask_conn_id else DaskEndpoint(self.address)
