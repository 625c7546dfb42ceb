"""An import error for a file that is not Python.

Airflow keeps one error per Python file, and marks every DAG of a file with an error as stale. A generator that raises
for one bad YAML would therefore take all its DAGs along. What it can do is leave a DAG that cannot be serialized: the
error of that is kept under the DAG's own path, here the YAML's, and nothing else is touched.
"""

from __future__ import annotations

from airflow.sdk import DAG


class BrokenDag(DAG):  # type: ignore[misc,unused-ignore] # Any where Airflow is not installed
    """Stands for a file that could not be read, and shows why as that file's import error."""

    def __init__(self, *, dag_id: str, path: str, problem: Exception) -> None:
        self._path = path
        self._problem: Exception | None = None  # not before Airflow's own __init__ is through
        super().__init__(dag_id=dag_id, schedule=None)
        self._problem = problem

    @property
    def doc_md(self) -> str | None:
        """Raise the problem: nothing reads this before the DAG is serialized."""
        if self._problem is not None:
            raise self._problem
        return None

    @doc_md.setter
    def doc_md(self, _: str | None) -> None:
        """Keep nothing."""

    @property
    def relative_fileloc(self) -> str:
        """The path the error is shown under."""
        return self._path

    @relative_fileloc.setter
    def relative_fileloc(self, _: str | None) -> None:
        """Keep the path: Airflow sets that of the Python file that made the DAG."""
