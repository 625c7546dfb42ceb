"""A sensor for the registry: it waits for a version of a model, such as a new one in service."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from gnnflow_airflow.connected import connected, find_access
from gnnflow_airflow.data_date import typed_moment
from gnnflow_airflow.deferring import TOO_LONG, deadline_of, defers, least_seconds
from gnnflow_airflow.reasons import keep_reason
from gnnflow_airflow.service import as_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.sdk import Context

    from gnnflow.storage.access import Access


class ModelVersionSensor(BaseSensorOperator):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Wait until a version of a model has an alias, and return the version with the URIs of its run.

    name: of the model. alias: `champion`, the version in service, or `candidate`. since: only a version that got the
    alias at this time or later, such as "{{ data_interval_start }}"; without it the one that has the alias now. A
    rollback gives an alias too. workspace: by default the one of the Dask connection, then GNNFLOW_WORKSPACE.
    dask_conn_id, storage_conn_id: as of the stages. deferrable: left out as `deferring.py` says.
    """

    template_fields: Sequence[str] = ("name", "alias", "since", "workspace")
    ui_color = "#e8f1ee"

    def __init__(
        self,
        *,
        name: str,
        alias: str = "champion",
        since: str | datetime | None = None,
        workspace: str | None = None,
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
        deferrable: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id
        self.name = name
        self.alias = alias
        self.since = since
        self.workspace = workspace
        self.deferrable = defers(said=deferrable)

    def poke(self, context: Context) -> PokeReturnValue:
        """Return whether there is such a version, and the version."""
        with keep_reason(context), self._connected():
            found = self._find()
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the version; wait for it in the triggerer, or here if the task does not defer."""
        if not self.deferrable:
            return dict(super().execute(context))
        found = self.poke(context)
        if not found:
            with self._connected():
                asked = self._asked()
            self.defer(
                trigger=ModelVersionTrigger(
                    **asked,
                    seconds=self.poke_interval,
                    deadline=deadline_of(self, context),
                    dask_conn_id=self.dask_conn_id,
                    storage_conn_id=self.storage_conn_id,
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return dict(found.xcom_value)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the version that the trigger found."""
        with keep_reason(context):
            if "error" in event:
                raise AirflowException(event["error"])
        return event

    def _connected(self) -> contextlib.AbstractContextManager[None]:
        return connected(self.dask_conn_id, self.storage_conn_id)

    def _find(self) -> dict[str, Any] | None:
        from gnnflow.graph.errors import GnnflowError, StorageError

        try:
            asked = self._asked()
            found = find_version(**asked)
            waits = "" if found else waiting_text(**asked)
        except StorageError as error:
            raise AirflowException(str(error)) from error
        except GnnflowError as error:
            raise AirflowFailException(str(error)) from None
        if waits:
            self.log.info("%s", waits)
        return found

    def _asked(self) -> dict[str, Any]:
        """Return the arguments of `find_version`. Raises ConfigError for a workspace that cannot be used here."""
        from gnnflow.config.loading import workspace_of

        since = self.since.isoformat() if isinstance(self.since, datetime) else self.since or ""
        with as_service():
            workspace = workspace_of({}, workspace=self.workspace or None)
        return {"workspace": workspace, "name": self.name, "alias": self.alias, "since": since}


class ModelVersionTrigger(BaseTrigger):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Fires once, with the version that the sensor waits for or an error.

    seconds: between two looks. deadline: in seconds since the epoch. dask_conn_id, storage_conn_id: of the sensor; they
    are read for each look, since keys of a role expire.
    """

    def __init__(
        self,
        *,
        workspace: str,
        name: str,
        alias: str,
        since: str,
        seconds: float,
        deadline: float | None = None,
        dask_conn_id: str | None = None,
        storage_conn_id: str | None = None,
    ) -> None:
        super().__init__()
        self.asked = {"workspace": workspace, "name": name, "alias": alias, "since": since}
        self.seconds = seconds
        self.deadline = deadline
        self.dask_conn_id = dask_conn_id
        self.storage_conn_id = storage_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of this trigger."""
        return "gnnflow_airflow.sensors.ModelVersionTrigger", {
            **self.asked,
            "seconds": self.seconds,
            "deadline": self.deadline,
            "dask_conn_id": self.dask_conn_id,
            "storage_conn_id": self.storage_conn_id,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the version."""
        from gnnflow.graph.errors import GnnflowError

        begin = time.monotonic()
        try:
            found = await self._wait()
        except GnnflowError as error:
            found = {"error": str(error)}
        await asyncio.sleep(least_seconds() - (time.monotonic() - begin))
        yield TriggerEvent(found)

    async def _wait(self) -> dict[str, Any]:
        """Return the version, or an error once the deadline has passed."""
        deadline = math.inf if self.deadline is None else self.deadline
        while (left := deadline - time.time()) > 0:
            await asyncio.sleep(min(self.seconds, left))  # the task has just looked
            if (found := await self._look()) is not None:
                return found
        return {"error": TOO_LONG}

    async def _look(self) -> dict[str, Any] | None:
        from gnnflow_airflow.hook import DaskHook

        endpoint = await DaskHook(self.dask_conn_id).aget_conn() if self.dask_conn_id else None
        access = await find_access(self.storage_conn_id, endpoint)
        return await asyncio.to_thread(_find_with, access, self.asked)


def _find_with(access: Access | None, asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `find_version` finds, with an access that other triggers of this process do not see."""
    from gnnflow.storage.access import using_here

    with using_here(access) if access else contextlib.nullcontext():
        return find_version(**asked)


def waiting_text(*, workspace: str, name: str, alias: str, since: str) -> str:
    """Return what a sensor waits for; of a model that is not there also which ones are, as its name may be mistyped."""
    from gnnflow import registry

    models = registry.list_models(workspace)
    known = "" if name in models else f"; it has no such model yet, its models: {', '.join(models) or 'none'}"
    return f"waits for a {alias} of {name}{f' since {since}' if since else ''} in {workspace}{known}"


def find_version(*, workspace: str, name: str, alias: str, since: str) -> dict[str, Any] | None:
    """Return the version that has had an alias since a time or later; None without one.

    With it go the URIs of its run. Raises RegistryError for a name that no model can have, ConfigError for an unknown
    alias and for a text that is no time.
    """
    from gnnflow import registry
    from gnnflow.graph.errors import ConfigError

    aliases = registry.read_aliases(workspace, name)
    held = {"champion": aliases.champion, "candidate": aliases.candidate}
    if alias not in held:
        raise ConfigError(f"{alias!r} is not an alias", where="alias", fix=f"Choose one of: {', '.join(held)}.")
    begin = (
        typed_moment(since, where="since").replace(microsecond=0) if since else None
    )  # moves are noted by the second
    number = held[alias]
    if number is None:
        return None
    moved = next(move["at"] for move in reversed(aliases.history) if move["alias"] == alias)
    if begin is not None and datetime.fromisoformat(moved) < begin:
        return None
    version = registry.read_version(workspace, name, number)
    return {
        "name": name,
        "alias": alias,
        "version": number,
        "since": moved,
        "run": version.run,
        "predictions": version.predictions,
        "report": version.report,
        "metrics": version.metrics,
    }
