"""What Airflow adds to a run: seconds and deferrals of each task, beside empty tasks and the command line.

    python -m tests.airflow.live.cost FOLDER [--config FILE] [--advised]

Everything is as in docs/airflow.md: a new Airflow with its own defaults and two Dask workers. First a chain of tasks
that do nothing, as many as a run has: it shows Airflow's own share, and its processes are then as warm as they mostly
are. Then gnnflow_pipeline, and the same again, which reuses all; last a retraining on what they made, which only
publishes and scores. --advised: with both settings that docs/airflow.md advises where runs are short.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.airflow.live.runs import PIPELINE, LiveRun
from tests.airflow.live.services import BIN, IMPORTED_ONCE, System, wait_for
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

_EMPTY = """
from airflow.sdk import DAG, chain, task

with DAG("empty", schedule=None):

    @task
    def nothing():
        pass

    chain(*(nothing.override(task_id=f"task_{number}")() for number in range({count})))
"""
_TESTS_OWN = (
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL",
    "AIRFLOW__CORE__PARALLELISM",
    "GNNFLOW_POLL_SECONDS",
    "GNNFLOW_DEFER_SECONDS",
)
_ADVISED = {"AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1"}
_DEFERRED = "Pausing task as DEFERRED"


@dataclass
class UsualSystem(System):
    """A live system without what makes tests quick, whose DAGs are the repository's and an empty one."""

    advised: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of all processes."""
        found = {key: value for key, value in super().environment.items() if key not in _TESTS_OWN}
        return found | {
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "GNNFLOW_MODELS": str(self.home / "models"),
            "GNNFLOW_WORKSPACES": "",
            **(_ADVISED if self.advised else {}),
        }

    def write_dags(self, config: Path, *, empty_tasks: int) -> None:
        """Write the folders of DAGs and of models."""
        (self.home / "dags").mkdir(parents=True)
        (self.home / "models").mkdir()
        (self.home / "models" / "again.yaml").write_text(yaml.safe_dump({"config": str(config)}))
        for name in ("gnnflow_pipeline.py", "gnnflow_models.py"):
            (self.home / "dags" / name).symlink_to(REPOSITORY / "dags" / name)
        (self.home / "dags" / "empty.py").write_text(_EMPTY.replace("{count}", str(empty_tasks)))


@contextlib.contextmanager
def running(home: Path, config: Path, *, empty_tasks: int, advised: bool) -> Iterator[System]:
    """Run an Airflow with its Dask cluster."""
    system = UsualSystem(home, advised=advised)
    system.write_dags(config, empty_tasks=empty_tasks)
    try:
        system.start_storage_and_cluster()
        system.start_airflow(imported_once=IMPORTED_ONCE if advised else "")
        yield system
    finally:
        system.stop()


def trigger(system: System, dag: str, conf: dict[str, Any]) -> LiveRun:
    """Run a DAG to its end."""
    wait_for("the DAG", lambda: system.request("GET", f"/api/v2/dags/{dag}"))
    system.request("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False})
    asked = {"logical_date": None, "conf": conf}
    run = LiveRun(system, dag, system.request("POST", f"/api/v2/dags/{dag}/dagRuns", asked)["dag_run_id"])
    run.wait()
    return run


def rows_of(run: LiveRun) -> Iterator[tuple[str, ...]]:
    """Yield a row for each task: its state, seconds waited for it, seconds it took, deferrals; at last the whole."""
    found = run.live.request("GET", run.path)
    begin, end = _when(found["queued_at"]), _when(found["end_date"])
    tasks = run.live.request("GET", f"{run.path}/taskInstances")["task_instances"]
    before, count, busy = begin, 0, 0.0
    for task in sorted((each for each in tasks if each["start_date"]), key=lambda each: str(each["start_date"])):
        started, ended = _when(task["start_date"]), _when(task["end_date"])
        deferrals = run.log(task["task_id"]).count(_DEFERRED) if task["try_number"] else 0
        count, busy = count + deferrals, busy + ended - started
        yield task["task_id"], task["state"], f"{started - before:.1f}", f"{ended - started:.1f}", str(deferrals)
        before = ended
    yield "whole", found["state"], f"{end - begin - busy:.1f}", f"{end - begin:.1f}", str(count)


def _when(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def by_command_line(config: Path, workspace: Path) -> float:
    """Return the seconds of `gnnflow run` in a new workspace."""
    begin = time.monotonic()
    asked = [BIN / "gnnflow", "run", config, "--workspace", workspace]
    subprocess.run(asked, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return time.monotonic() - begin


def say(line: str) -> None:
    """Write a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def show(title: str, rows: Iterator[tuple[str, ...]]) -> None:
    """Write a table, and the load of the machine."""
    say(f"\n{title}; load {os.getloadavg()[0]:.1f}\n\n| task | state | waited, s | took, s | deferrals |")
    say("|---|---|---|---|---|")
    for row in rows:
        say(f"| {' | '.join(row)} |")


def main(folder: Path, config: Path, *, advised: bool) -> None:
    """Write the tables."""
    from gnnflow.config import load_config
    from gnnflow.config.loading import make_paths_absolute
    from gnnflow.config.stages import run_chain

    read = make_paths_absolute(load_config(config.read_text(), source=str(config), workspace=str(folder / "runs")))
    values = read.model_dump(mode="json", exclude_unset=True) | {"workspace": str(folder / "runs")}
    folder.mkdir(parents=True)
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    say(f"gnnflow run: {by_command_line(file, folder / 'cli'):.1f} s; load {os.getloadavg()[0]:.1f}")
    with running(folder / "home", file, empty_tasks=1 + len(run_chain(read)), advised=advised) as system:
        show("empty tasks", rows_of(trigger(system, "empty", {})))
        for title in ("first run", "the same again"):
            show(title, rows_of(trigger(system, PIPELINE, {"settings": yaml.safe_dump(values)})))
        show("retraining on the same", rows_of(trigger(system, "gnnflow_models.again", {})))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder, for all that is written")
    parser.add_argument("--config", type=Path, default=REPOSITORY / "configs" / "quickstart.yaml")
    parser.add_argument("--advised", action="store_true")
    asked = parser.parse_args()
    main(asked.folder.absolute(), asked.config.absolute(), advised=asked.advised)
