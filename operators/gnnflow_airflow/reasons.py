"""Why tasks failed, for the tasks that come after all others.

Airflow tells a task the states of the others and not their errors. So each of our tasks stores its error, and a task
that ends a DAG run reads the errors of those that failed. A task that was killed or marked by a person stored none.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowSkipException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow.sdk import DAG, Context

REASON = "gnnflow_reason"
"""XCom key of a task's error; Airflow deletes it when the task is tried again."""

_FAILED, _SUCCESS = "failed", "success"


@contextlib.contextmanager
def on_failure(tell: Callable[[Exception], None]) -> Iterator[None]:
    """Call a function with the error that ends a block. A task that skips itself or defers has not failed."""
    try:
        yield
    except AirflowSkipException:
        raise
    except Exception as error:
        tell(error)
        raise


def keep_reason(context: Context) -> contextlib.AbstractContextManager[None]:
    """Store the error that ends a block, as the reason why its task failed."""
    return on_failure(partial(store_reason, context))


def store_reason(context: Context, error: Exception) -> None:
    """Store a task's error; only its kind if it is neither ours nor Airflow's, since its text may hold a secret."""
    is_for_users = isinstance(error, AirflowException)
    text = str(error) if is_for_users else f"{type(error).__name__}, see its log"
    context["ti"].xcom_push(key=REASON, value=text)


def why_unfinished(ti: Any, task_id: str, *, dag: DAG) -> str:
    """Return why a task of this DAG run made no result: the failed tasks that it waits for, or itself, with errors.

    Where none failed: its state, such as skipped.
    """
    ended = ti.get_task_breadcrumbs(ti.dag_id, ti.run_id)
    chain = _unfinished(ended, task_id, dag=dag)
    failed = [_told(ti, each, dag=dag) for each in ended if each["task_id"] in chain and each["state"] == _FAILED]
    own = next((each["state"] for each in ended if each["task_id"] == task_id), "not run")
    return "; ".join(failed) or f"{dag.get_task(task_id).label}: {own}"


def _unfinished(ended: Iterable[Mapping[str, Any]], task_id: str, *, dag: DAG) -> set[str]:
    """Return a task and those before it up to ones that succeeded: what failed before these did not stop it."""
    states: dict[str, set[str]] = {}
    for each in ended:
        states.setdefault(each["task_id"], set()).add(each["state"])
    found, left = set[str](), [task_id]
    while left:
        task = left.pop()
        if task not in found and states.get(task) != {_SUCCESS}:
            found.add(task)
            left.extend(dag.get_task(task).upstream_task_ids)
    return found


def _told(ti: Any, ended: Mapping[str, Any], *, dag: DAG) -> str:
    """Return the name that a failed task has in its group, and its error."""
    task_id, index = ended["task_id"], ended["map_index"]
    label = dag.get_task(task_id).label
    name = label if index < 0 else f"{label}[{index}]"
    reason = ti.xcom_pull(task_ids=task_id, map_indexes=index, key=REASON)
    if not reason:
        return f"{name}: told no error (killed, marked failed, or not begun); see its log"
    return f"{name}: {reason.removeprefix(f'{name}: ')}"  # a stage's own errors begin with its name
