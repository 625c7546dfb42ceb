"""What a person who is called finds: a system whose parts are lost one after another, and what its logs say then."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from tests.airflow.live.runs import Case, LiveRun
from tests.airflow.live.services import System, wait_for
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WITHIN_SECONDS = 30.0
"""A lost part stands in the log of a task after at most so long."""
NO_WORKERS_SECONDS = 45
DASK = ("dask-scheduler", "dask-worker-1", "dask-worker-2")
HERE = "on_call_here"
_FULL_BYTES = 48 * 2**20
# The pipeline of the form, with its stages in the processes of their tasks.
_DAG_HERE = """
from airflow.sdk import DAG

from gnnflow.config.stages import every_stage
from gnnflow_airflow.build import default_args, stage_tasks
from gnnflow_airflow.form import form_params
from gnnflow_airflow.prepare import PrepareOperator

with DAG("on_call_here", schedule=None, params=form_params(), default_args=default_args()):
    prepare = PrepareOperator(task_id="prepare", retries=0)
    config = "{{ ti.xcom_pull(task_ids='prepare') }}"
    tasks = stage_tasks(every_stage(), config=config, trigger_rule="none_failed", dask_conn_id=None)
    prepare >> next(iter(tasks.values()))
"""


class OnCallSystem(System):
    """A live system with the settings that docs/on-call.md asks for, one retry, and a DAG without a cluster."""

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "dags"),
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "5",
            "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
            "GNNFLOW_RETRIES": "1",
            "GNNFLOW_RETRY_SECONDS": "20",
            "GNNFLOW_NO_WORKERS_SECONDS": str(NO_WORKERS_SECONDS),
        }

    def start_airflow(self) -> None:
        (self.home / "dags").mkdir()
        for file in (REPOSITORY / "dags").glob("gnnflow_*.py"):
            (self.home / "dags" / file.name).symlink_to(file)
        (self.home / "dags" / f"{HERE}.py").write_text(_DAG_HERE)
        super().start_airflow()

    def lose(self, *names: str) -> None:
        """Kill services and all their processes."""
        for name in names:
            self.services[name].kill(signal.SIGKILL)

    def bring_back(self, *names: str) -> None:
        """Start services again that have ended."""
        for name in names:
            if self.services[name].has_ended():
                self.services[name].start()


@dataclass(frozen=True)
class OnCall:
    """A system whose faults are told in rows of a table. say: shows a row."""

    live: OnCallSystem
    database: str
    say: Callable[[str], None]

    def case(self, folder: Path, name: str, *, dag: str = "", **train: Any) -> Case:
        """Return a run whose training takes some time, in a folder."""
        case = Case(self.live, folder, f"{name}-{self.database}", **{"patience": 0, **train})
        case.dag = dag or case.dag
        return case

    def expect(self, fault: str, run: LiveRun, task: str, needle: str) -> Heard:
        """Return the line with a text in a task's log once it is there, counted from now, the fault."""
        begin = time.monotonic()
        line = str(wait_for(f"{needle!r} in {task}", lambda: find_line(run, task, needle), seconds=240, every=0.2))
        return Heard(self, fault, run, begin, time.monotonic() - begin, line)


@dataclass(frozen=True)
class Heard:
    """A fault whose line was found. seconds: from the fault until the line could be read in the task's log."""

    on_call: OnCall
    fault: str
    run: LiveRun
    begin: float
    seconds: float
    line: str

    def until(self, state: str, *, reason: str = "", task: str = "train", seconds: float = 400) -> None:
        """Wait for the run's end, add the row, and check both. reason: in the log of a run that fails."""
        ended = self.run.wait(seconds=seconds)
        after = time.monotonic() - self.begin
        told = find_lines(self.run, task, reason)[-1] if reason else ""
        end = f"{ended} after {after:.0f} s" + (f": {told}" if told else "")
        self.on_call.say(f"| {self.fault} | {self.line} | {self.seconds:.1f} | {end} | load {os.getloadavg()[0]:.0f} |")
        assert ended == state, self.run.tasks()
        assert self.seconds <= WITHIN_SECONDS


def find_line(run: LiveRun, task: str, needle: str) -> str:
    """Return the first line with a text in the logs of a task's attempts; nothing where there is none."""
    return next(iter(find_lines(run, task, needle)), "")


def find_lines(run: LiveRun, task: str, needle: str) -> list[str]:
    """Return the lines with a text in the logs of a task's attempts."""
    path, found = f"{run.path}/taskInstances/{task}", list[str]()
    for attempt in range(1, run.live.request("GET", path)["try_number"] + 1):
        with contextlib.suppress(OSError):  # this attempt has no log yet
            lines = run.live.request("GET", f"{path}/logs/{attempt}?full_content=true")["content"]
            said = (str(line.get("event", "") if isinstance(line, dict) else line) for line in lines)
            found += [" ".join(line.split()) for line in said if needle in line]
    return found


def until_running_here(case: Case) -> int:
    """Wait until training runs in the process of its task, and return the process."""
    wait_for("training in its task", lambda: find_line(case, "train", "train: started"), seconds=200)
    return int(case.live.request("GET", f"{case.path}/taskInstances/train")["pid"])


def retrain(live: System, config: dict[str, Any]) -> LiveRun:
    """Trigger a run of gnnflow_retrain with a config."""
    live.retrain_config.write_text(yaml.safe_dump(config))
    path = "/api/v2/dags/gnnflow_retrain"
    wait_for("the DAG", lambda: live.request("GET", path))
    live.request("PATCH", f"{path}?update_mask=is_paused", {"is_paused": False})
    # its clock begins a run of its own, at most one of which runs
    first = wait_for("the run by the clock", lambda: live.request("GET", f"{path}/dagRuns")["dag_runs"])[0]
    return LiveRun(live, "gnnflow_retrain", first["dag_run_id"])


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system at a folder. Raises OSError where this user may not."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_FULL_BYTES}", "gnnflow", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        raise OSError(done.stderr.decode())
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system of a folder to its last byte and return the file that does."""
    file = folder / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    return file
