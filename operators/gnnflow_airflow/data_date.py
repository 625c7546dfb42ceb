"""Dates in configs: `{{ ds }}` in a text becomes the data date of the DAG run.

Only the first task of a run fills them in, since a DAG has no date when it is parsed. Whoever writes a config may not
read Airflow's variables and connections, so its texts know dates and the partition, in Jinja's sandbox, and no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gnnflow.config.moments import HOW, read_moment
from gnnflow.graph.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import Context

PARAM = "date"
"""The DAG param with the data date of one run."""

_PARTITION = "partition_key"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=|-]*")  # a partition's key becomes part of a path


@dataclass(frozen=True)
class DataDate:
    """The date whose tables a DAG run reads. origin: what decided it; partition: the key of an asset's partition."""

    moment: datetime
    origin: str
    partition: str | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The names that texts may use, with Airflow's meanings."""
        from airflow.sdk.execution_time.macros import ds_add, ds_format

        moment = self.moment
        ts = moment.isoformat()
        names: dict[str, Any] = {
            "ds": f"{moment:%Y-%m-%d}",
            "ds_nodash": f"{moment:%Y%m%d}",
            "ts": ts,
            "ts_nodash": f"{moment:%Y%m%dT%H%M%S}",
            "logical_date": moment,
            "macros": SimpleNamespace(ds_add=ds_add, ds_format=ds_format),
        }
        return names if self.partition is None else {**names, _PARTITION: self.partition}


def data_date(context: Context) -> DataDate:
    """Return the data date of a run: the param's, the logical date, the partition's date, or the run's time.

    A run that an asset event begins has no logical date. Raises ConfigError for a param that is no date, and for a
    partition whose key cannot be part of a path.
    """
    key = context.get(_PARTITION)
    if key is not None and not _PART.fullmatch(key):
        raise ConfigError(
            f"{key!r} cannot be part of a path",
            where=_PARTITION,
            fix="Use letters, digits and . _ : + = | - in keys of partitions.",
        )
    if typed := context["params"].get(PARAM):
        return DataDate(typed_moment(typed, where=PARAM), "param date", key)
    origins = {"logical date": context.get("logical_date"), "date of the partition": context.get("partition_date")}
    for origin, moment in origins.items():
        if moment is not None:
            return DataDate(moment, origin, key)
    return DataDate(context["dag_run"].run_after, "time of the run", key)


def typed_moment(typed: Any, *, where: str) -> datetime:
    """Return the time that a text names, in UTC unless it says otherwise. Raises ConfigError for another text."""
    try:
        return read_moment(str(typed))
    except ValueError:
        raise ConfigError(f"{typed!r} is not a date", where=where, fix=HOW) from None


def fill_in(value: Any, date: DataDate, *, where: str = "") -> Any:
    """Return plain values with the dates in their texts. Raises ConfigError that names the key of a wrong text."""
    if isinstance(value, Mapping):
        return {key: fill_in(held, date, where=f"{where}.{key}".lstrip(".")) for key, held in value.items()}
    if isinstance(value, list):
        return [fill_in(held, date, where=f"{where}[{number}]") for number, held in enumerate(value)]
    return _rendered(value, date.names, where) if isinstance(value, str) and "{{" in value else value


def _rendered(text: str, names: Mapping[str, Any], where: str) -> str:
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    try:
        return environment.from_string(text).render(names)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
        known = ", ".join(names) + ("" if _PARTITION in names else f", and {_PARTITION} in the run of a partition")
        raise ConfigError(f"{text!r} cannot be filled in: {error}", where=where, fix=f"It may use {known}.") from None
