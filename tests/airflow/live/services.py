"""The processes of a live system: Airflow's four, a Dask scheduler and workers, and an S3 server.

Each is started in a process group of its own, so that stopping it stops its children too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from gnnflow.graph.errors import ClusterError
from tests.conftest import REPOSITORY
from tests.ports import free_port

LIVE = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(1500)]
"""The marks of tests on a live Airflow."""

BIN = Path(sys.executable).parent
SECRET = "planted-secret-Zq7"
EDITOR, VIEWER = "ann", "vic"
PASSWORDS = {EDITOR: "the-password-of-ann", VIEWER: "the-password-of-vic"}
POOL, POOL_SLOTS = "graphs", 2  # of the stages of experiments
AIRFLOW_PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
PORTS = ("api", "dask", "s3", "board", "worker-logs", "trigger-logs")
PAGES = {
    **{name: f"s3://live-{name}-by-form/runs" for name in ("cora", "generated")},
    **{name: f"s3://live-{name}/runs" for name in ("retrain", "layers")},
}
START_SECONDS = 240
STOP_SECONDS = 20
LAST_LINES = 30
REQUEST_SECONDS = 20  # for how long one is repeated
# Airflow's scheduler forks a process for each try of a task: what it has imported they find, which is half their work.
IMPORTED_ONCE = """
import sys
if "scheduler" in sys.argv:
    import s3fs
    import gnnflow_airflow.preload
"""


def wait_for(what: str, ready: Any, *, seconds: float = START_SECONDS, every: float = 0.3) -> Any:
    """Return what `ready()` returns once that is true. Raises TimeoutError naming what was waited for."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError, KeyError, ClusterError):
            if found := ready():
                return found
        time.sleep(every)
    raise TimeoutError(f"{what}: not within {seconds} s")


@dataclass
class Service:
    """A process with a log file."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.environment, start_new_session=True, cwd=REPOSITORY
            )

    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def send(self, number: int) -> None:
        """Send it and its children a signal."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def last_words(self) -> str:
        said = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([f"{self.name} has ended; the last it said:", *said])

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.send(number)
        if self.process is not None:
            try:
                self.process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:  # Airflow's scheduler waits for tasks that may never end
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


@dataclass
class System:
    """A running system and how to talk to it. workspaces: other places with pages, by name."""

    home: Path
    database: str = ""
    workspaces: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=lambda: {n: free_port() for n in PORTS})
    services: dict[str, Service] = field(default_factory=dict)
    token: str = ""
    started: time.struct_time = field(default_factory=time.gmtime)

    @property
    def base(self) -> str:
        """The address of Airflow's web pages."""
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def retrain_config(self) -> Path:
        """The config of gnnflow_retrain, which is read when that DAG is parsed and when it runs."""
        return self.home / "retrain.yaml"

    @property
    def environment(self) -> dict[str, str]:
        dask = {"conn_type": "dask", "host": "127.0.0.1", "port": self.ports["dask"], "password": SECRET}
        dask["extra"] = {"token": SECRET}
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "AWS_"))},
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
            "AIRFLOW__CORE__PARALLELISM": "3",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{EDITOR}:admin,{VIEWER}:viewer",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.base}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": "",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self.database or f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW__API__BASE_URL": self.base,
            "AIRFLOW__API__PORT": str(self.ports["api"]),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__WORKERS": "1",
            # another Airflow of this machine has the usual ones, and would refuse to show our logs
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self.ports["worker-logs"]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self.ports["trigger-logs"]),
            "AIRFLOW__API_AUTH__JWT_SECRET": "only-for-this-test-and-long-enough-for-a-hash-of-512-bits-0123456789",
            # the DAGs' files stay as they are, and to read one anew takes a second of a core
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "300",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",  # also for how long a task's end may go unnoticed
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW_CONN_DASK_DEFAULT": json.dumps(dask),
            "GNNFLOW_DASK_CONN_ID": "dask_default",
            "GNNFLOW_RETRY_SECONDS": "2",
            "GNNFLOW_POLL_SECONDS": "1",
            "GNNFLOW_DEFER_SECONDS": "1",  # so that stages which tests disturb are deferred, and others are not
            "GNNFLOW_LINKS": f"s3://={self.s3['AWS_ENDPOINT_URL']}/",
            "GNNFLOW_WORKSPACES": " ".join(f"{name}={uri}" for name, uri in {**PAGES, **self.workspaces}.items()),
            "GNNFLOW_EXPERIMENTS": str(self.home / "experiments"),
            "GNNFLOW_EXPERIMENTS_POOL": POOL,
            "GNNFLOW_RETRAIN_CONFIG": str(self.retrain_config),
            # Once a year, at the minute this system starts: a DAG that starts its clock soon after its last date runs
            # for that at once, and then no more.
            "GNNFLOW_RETRAIN_CRON": time.strftime("%M %H %d %m *", self.started),
            "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "operators"))),
            "OMP_NUM_THREADS": "1",
            **self.s3,
        }

    @property
    def s3(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.ports['s3']}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def service(self, name: str, *command: str) -> Service:
        made = Service(name, [str(part) for part in command], self.home / f"{name}.log", self.environment)
        self.services[name] = made
        made.start()
        return made

    def start_storage_and_cluster(self) -> None:
        self.home.mkdir(exist_ok=True)
        self.service("s3", BIN / "moto_server", "-H", "127.0.0.1", "-p", str(self.ports["s3"]))
        board = f"127.0.0.1:{self.ports['board']}"
        where = ("--host", "127.0.0.1", "--port", str(self.ports["dask"]), "--dashboard-address", board)
        self.service("dask-scheduler", BIN / "dask", "scheduler", *where)
        for number in (1, 2):
            self.start_worker(number)

    def start_worker(self, number: int) -> None:
        address = f"tcp://127.0.0.1:{self.ports['dask']}"
        options = ("--nthreads", "1", "--no-dashboard", "--local-directory", str(self.home / "dask"))
        self.service(f"dask-worker-{number}", BIN / "dask", "worker", address, "--name", f"w{number}", *options)

    def start_airflow(self, *, imported_once: str = IMPORTED_ONCE) -> None:
        (self.home / "passwords.json").write_text(json.dumps(PASSWORDS))
        (self.home / "config").mkdir()
        (self.home / "config" / "airflow_local_settings.py").write_text(imported_once)
        subprocess.run([BIN / "airflow", "db", "migrate"], env=self.environment, check=True, capture_output=True)
        for part in AIRFLOW_PARTS:
            self.service(part, BIN / "airflow", part)
        wait_for("S3", lambda: urllib.request.urlopen(self.s3["AWS_ENDPOINT_URL"], timeout=2).status == 200)
        wait_for("a token", self._sign_in)
        self.request("POST", "/api/v2/pools", {"name": POOL, "slots": POOL_SLOTS, "include_deferred": True})
        self.wait_until_healthy()

    def _sign_in(self) -> bool:
        asked = {"username": EDITOR, "password": PASSWORDS[EDITOR]}
        self.token = self.request("POST", "/auth/token", asked)["access_token"]
        return True

    def is_healthy(self) -> bool:
        found = self.request("GET", "/api/v2/monitor/health")
        return all(found[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor"))

    def wait_until_healthy(self, *, seconds: float = START_SECONDS) -> None:
        """Raise TimeoutError with the ends of the logs of what has ended where Airflow is not healthy in time."""
        try:
            wait_for("healthy Airflow", self.is_healthy, seconds=seconds)
        except TimeoutError as late:
            late.add_note("\n".join(each.last_words() for each in self.services.values() if each.has_ended()))
            raise

    def request(self, method: str, path: str, content: Any = None) -> Any:
        """Return what Airflow's API answers.

        Asks again after a 500: on SQLite a part of Airflow that waited too long for another one's writing gives up, and
        has then written nothing. Raises OSError with what the API said.
        """
        end = time.monotonic() + REQUEST_SECONDS
        while True:
            status, said = self._answer(method, path, content)
            if status != HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > end:
                break
            time.sleep(1)
        if status >= HTTPStatus.BAD_REQUEST:
            raise OSError(f"{method} {path}: {status} {said.decode(errors='replace')}")
        return json.loads(said or b"null")

    def _answer(self, method: str, path: str, content: Any) -> tuple[int, bytes]:
        """Return the status and body of an answer, of a refusal too."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        asked = urllib.request.Request(
            f"{self.base}{path}",
            method=method,
            headers=headers,
            data=None if content is None else json.dumps(content).encode(),
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()

    def stop(self) -> None:
        """Stop all: Airflow's parts but its API server at once, since each takes seconds; then what they talked to."""
        for part in AIRFLOW_PARTS[1:]:
            if part in self.services:
                self.services[part].send(signal.SIGTERM)
        for service in reversed(self.services.values()):  # what a service talks to outlives it
            service.kill(signal.SIGTERM if service.name in AIRFLOW_PARTS else signal.SIGKILL)
