"""Events of a task's assets: one for each result, however often a task finds that result again.

Airflow makes an event of every outlet of a task that succeeds. So a run that reuses all its work would start the DAGs
that wait for new predictions, and they would find the old ones. Whether this try made the result does not decide:
another may have made it and been killed before Airflow heard of it. What decides are the events that an asset has.
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
    """Give the event of each asset a result and return the outlets; without the assets that had this result already."""
    kept = []
    for outlet in outlets:
        if isinstance(outlet, Asset | AssetRef) and result:
            if _is_told(context, outlet, result):
                _log.info("no event of %s: it has had one with this result", outlet)
                continue
            context["outlet_events"][outlet].extra.update(result)
        kept.append(outlet)
    return kept


def _is_told(context: Context, asset: Any, result: Mapping[str, Any]) -> bool:
    from airflow.sdk.execution_time.context import InletEventsAccessors

    partition = context.get("partition_key")
    events = InletEventsAccessors([asset])[asset].ascending(ascending=False).limit(_LAST)
    return any(result.items() <= (event.extra or {}).items() and event.partition_key == partition for event in events)
