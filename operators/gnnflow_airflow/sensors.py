"""A sensor for the registry: it waits for a version of a model, such as a new one in service."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from gnnflow_airflow.data_date import typed_moment
from gnnflow_airflow.deferring import defers, least_seconds
from gnnflow_airflow.reasons import keep_reason
from gnnflow_airflow.service import as_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.sdk import Context


class ModelVersionSensor(BaseSensorOperator):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Wait until a version of a model has an alias, and return the version with the URIs of its run.

    name: of the model. alias: `champion`, the version in service, or `candidate`. since: only a version that got the
    alias at this time or later, such as "{{ data_interval_start }}"; without it the one that has the alias now. A
    rollback gives an alias too. workspace: by default GNNFLOW_WORKSPACE. deferrable: left out as `deferring.py` says.
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
        deferrable: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.name = name
        self.alias = alias
        self.since = since
        self.workspace = workspace
        self.deferrable = defers(said=deferrable)

    def poke(self, context: Context) -> PokeReturnValue:
        """Return whether there is such a version, and the version."""
        with keep_reason(context):
            found = self._find()
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the version; wait for it in the triggerer, or here if the task does not defer."""
        if not self.deferrable:
            return dict(super().execute(context))
        found = self.poke(context)
        if not found:
            self.defer(
                trigger=ModelVersionTrigger(**self._asked(), seconds=self.poke_interval),
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
    """Fires once, with the version that the sensor waits for or an error. seconds: between two looks."""

    def __init__(self, *, workspace: str, name: str, alias: str, since: str, seconds: float) -> None:
        super().__init__()
        self.asked = {"workspace": workspace, "name": name, "alias": alias, "since": since}
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments of this trigger."""
        return "gnnflow_airflow.sensors.ModelVersionTrigger", {**self.asked, "seconds": self.seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the version."""
        from gnnflow.graph.errors import GnnflowError

        found, wait = None, max(least_seconds(), self.seconds)  # the task has just looked
        try:
            while found is None:
                await asyncio.sleep(wait)
                found, wait = await asyncio.to_thread(find_version, **self.asked), self.seconds
        except GnnflowError as error:
            found = {"error": str(error)}
        yield TriggerEvent(found)


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
