"""Tells the log of a deferred task when Airflow's scheduler is lost, and when it is back.

Only a scheduler can end a task that waits, so a lost one would look like a stage that never ends. Its last heartbeat
stands in the health that Airflow's API server reports; all triggers of a process share one request for it.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 4.0
_SILENT_SECONDS = 18.0  # so that the log says so within half a minute
_BEATS = 3.0  # heartbeats that may be missed
_REQUEST_SECONDS = 5.0
_looked: list[tuple[float, asyncio.Task[datetime | None]]] = []


async def watch_scheduler(say: Callable[[str], None]) -> None:
    """Tell when the scheduler is silent for too long, and when it is heard again, until cancelled.

    Says nothing where the API server cannot be asked from here.
    """
    limit = _silent_seconds()
    is_lost = False
    while True:
        heard = await _last_heartbeat()
        silent = 0.0 if heard is None else (datetime.now(UTC) - heard).total_seconds()
        if heard is not None and is_lost != (silent > limit):
            is_lost = not is_lost
            say(
                f"Airflow's scheduler has not been heard for {silent:.0f} s, since {heard:%H:%M:%S} UTC. The stage "
                "goes on; no task begins or ends until a scheduler runs again: start it"
                if is_lost
                else "Airflow's scheduler is heard again"
            )
        await asyncio.sleep(_LOOK_SECONDS)


async def _last_heartbeat() -> datetime | None:
    """Return the time of the scheduler's last heartbeat; None where it cannot be known from here."""
    now = time.monotonic()
    if not _looked or now - _looked[0][0] >= _LOOK_SECONDS:
        _looked[:] = [(now, asyncio.create_task(asyncio.to_thread(_ask)))]
    return await asyncio.shield(_looked[0][1])


def _ask() -> datetime | None:
    try:
        with urllib.request.urlopen(_health_url(), timeout=_REQUEST_SECONDS) as answer:  # noqa: S310 - Airflow's own
            return datetime.fromisoformat(json.load(answer)["scheduler"]["latest_scheduler_heartbeat"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _health_url() -> str:
    """Return the address of Airflow's health, next to the one that tasks use."""
    from airflow.sdk.configuration import conf

    base = str(conf.get("api", "base_url", fallback="") or "http://localhost:8080").rstrip("/")
    tasks = str(conf.get("core", "execution_api_server_url", fallback="") or f"{base}/execution/")
    return f"{tasks.rstrip('/').removesuffix('/execution')}/api/v2/monitor/health"


def _silent_seconds() -> float:
    from airflow.sdk.configuration import conf

    beat: float = conf.getfloat("scheduler", "scheduler_heartbeat_sec", fallback=5.0)
    return max(_SILENT_SECONDS, _BEATS * beat)
