"""An import error for a file that is not Python.

Airflow keeps one error per Python file, and marks every DAG of a file with an error as stale. So if a generator raised
for one bad YAML file, all its DAGs would become stale. Instead it adds a DAG that cannot be serialized: Airflow keeps
that error under the path of the DAG, here of the YAML file, and the other DAGs stay.
"""

from __future__ import annotations

import re

from airflow.sdk import DAG

_LONGEST = 200  # characters of an id; Airflow takes 250


def id_of(prefix: str, file: str) -> str:
    """Return the id of a file's DAG: the file's name, with `_` for characters that Airflow does not take."""
    return (prefix + re.sub(r"[^\w.-]", "_", file.rsplit(".", 1)[0], flags=re.ASCII))[:_LONGEST]


class BrokenDag(DAG):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """A placeholder for an unreadable file, which shows the problem as the import error of that file."""

    def __init__(self, *, dag_id: str, path: str, problem: Exception) -> None:
        self._path = path
        self._problem: Exception | None = None  # set only after Airflow's __init__
        super().__init__(dag_id=dag_id, schedule=None)
        self._problem = problem

    @property
    def doc_md(self) -> str | None:
        """Raise the problem when Airflow serializes the DAG, which is the first read."""
        if self._problem is not None:
            raise self._problem
        return None

    @doc_md.setter
    def doc_md(self, _: str | None) -> None:
        """Ignore the value."""

    @property
    def relative_fileloc(self) -> str:
        """The path under which Airflow shows the error."""
        return self._path

    @relative_fileloc.setter
    def relative_fileloc(self, _: str | None) -> None:
        """Ignore the path of the Python file, which Airflow sets."""
