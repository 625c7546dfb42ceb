"""Events of a task's assets: one each time that another result of its stage becomes the latest.

Airflow makes an event of every outlet of a task that succeeds. So a run that reuses all its work would start the DAGs
that wait for new predictions, and they would find the ones that they know. Whether this try made the result does not
decide: another may have made it and been killed before Airflow heard of it, and an old result may be the latest again
after another one. What decides is the last event of this stage that an asset has.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.definitions.asset import AssetRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

_log = logging.getLogger(__name__)
_LAST = 1000
"""So many of an asset's events are looked through."""


def tell_outlets(context: Context, outlets: Sequence[Any], result: Mapping[str, Any]) -> list[Any]:
    """Give the event of each asset a result and return the outlets; without the assets that have this result already.

    result: of a stage, with the stage's name under `stage`.
    """
    kept = []
    for outlet in outlets:
        if isinstance(outlet, Asset | AssetRef):
            if _is_latest(context, outlet, result):
                _log.info("no event of %s: its latest one has this result", outlet)
                continue
            context["outlet_events"][outlet].extra.update(result)
        kept.append(outlet)
    return kept


def _is_latest(context: Context, asset: Any, result: Mapping[str, Any]) -> bool:
    """Return whether the last event of this stage, for the partition of this run, has this result."""
    from airflow.sdk.execution_time.context import InletEventsAccessors

    partition = context.get("partition_key")
    events = InletEventsAccessors([asset])[asset].ascending(ascending=False).limit(_LAST)
    told = ((event.extra or {}) for event in events if event.partition_key == partition)
    latest = next((extra for extra in told if extra.get("stage") == result["stage"]), None)
    return latest is not None and result.items() <= latest.items()
