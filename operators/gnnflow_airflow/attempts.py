"""The first and last lines of a task's attempt, for whoever is called: what was lost, what follows, what to do.

A process that is killed says nothing. So each attempt leaves a note in the task's state store while it runs, and the
next one finds it. A task that waits in its trigger has no process to lose, and leaves none.
"""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from gnnflow_airflow.metrics import count_failure
from gnnflow_airflow.reasons import on_failure, store_reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import BaseOperator, Context

_NOTE = "gnnflow_attempt"
_KEPT = "finished work is kept, and it resumes there"


@contextlib.contextmanager
def attempt(context: Context, task: BaseOperator, *, stage: str) -> Iterator[None]:
    """Tell the log how the attempt before ended, if it could not. A failure is counted, told and its reason stored."""

    def tell(error: Exception) -> None:
        count_failure(stage, error)
        task.log.warning("%s", _failure_text(context["ti"], task, error))
        store_reason(context, error)

    store = context.get("task_state_store")
    if store is not None:
        if note := store.get(_NOTE):
            task.log.warning(
                "the attempt before ended without a word (%s): it was killed (out of memory, kill -9, stopped by a "
                "person), or its machine or Airflow's scheduler was lost. This attempt resumes at the last finished "
                "task; nothing to do. If it repeats, give the machine of Airflow's tasks more memory",
                note,
            )
        store.set(_NOTE, f"{this_process()}, begun {datetime.now(UTC):%H:%M:%S} UTC")
    try:
        with on_failure(tell):
            yield
    finally:
        if store is not None:
            store.delete(_NOTE)


def this_process() -> str:
    """Return the name of this process for whoever looks for it later."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _failure_text(ti: Any, task: BaseOperator, error: Exception) -> str:
    """Return a line about a failed attempt."""
    told = f"attempt {ti.try_number} failed: {error}\n"
    if isinstance(error, AirflowFailException):
        return f"{told}It is not tried again, since the same would happen: mend this, then clear the task"
    left = ti.max_tries + 1 - ti.try_number
    if left <= 0:
        return f"{told}It was the last: mend this, then clear the task; {_KEPT}"
    seconds = task.retry_delay.total_seconds()
    return f"{told}The next of {left} more begins in about {seconds:.0f} s; {_KEPT}"
