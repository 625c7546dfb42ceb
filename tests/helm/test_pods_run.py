"""The commands, probes and scripts of the rendered pods, run on this machine instead of in containers."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helm.conftest import CHART, REPOSITORY, WITHOUT_HELM
from tests.ports import free_port

pytestmark = pytest.mark.helm
pytest.importorskip("helm_sdkpy", reason=WITHOUT_HELM)

_SECONDS = 60
FILES = {"ca_file": "ca.crt", "client_cert": "tls.crt", "client_key": "tls.key"}


class Pods:
    """Starts containers of the chart as processes, each port replaced by a free one."""

    def __init__(self, rendered, folder: Path) -> None:
        self.rendered = rendered
        self.folder = folder
        self.stack = ExitStack()
        self.scheduler_port = free_port()
        self.ports: dict[int, int] = {}  # of the containers that started last, by the ports that the chart gives them
        data = rendered.one("ConfigMap", "gnnflow-environment")["data"]
        self.environment = {
            **os.environ,
            **{name: value.replace("/etc/dask-tls", str(folder)) for name, value in data.items()},
            "GNNFLOW_DASK_ADDRESS": f"{data['GNNFLOW_DASK_ADDRESS'].partition(':')[0]}://127.0.0.1:{self.scheduler_port}",
            "GNNFLOW_WORKSPACE": str(folder / "workspace"),
            "HOME": str(folder),
            "MEMORY_LIMIT": "1000000000",
        }

    def start(self, deployment: str, name: str):
        """Start the deployment's container; return its process once its startup probe answers."""
        (container,) = self.rendered.one("Deployment", deployment)["spec"]["template"]["spec"]["containers"]
        ports = {8786: self.scheduler_port}
        numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
        for number in numbers.values():
            ports.setdefault(number, free_port())
        environment = {**self.environment, "POD_NAME": name}
        environment |= {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}
        self.ports |= ports
        process = self.spawn([local(argument, ports, environment) for argument in container["args"]], environment)
        assert "httpGet" in container["startupProbe"]
        probe = container["startupProbe"]["httpGet"]
        url = f"http://127.0.0.1:{ports[numbers[probe['port']]]}{probe['path']}"
        until(lambda: answers(url))
        return process

    def script(self, name: str, *arguments: str, pod: str = "test") -> tuple[int, str]:
        """Run one of the chart's scripts as its pod would; return its exit code and what it said."""
        environment = {**self.environment, "POD_NAME": pod}
        process = self.spawn([sys.executable, str(CHART / "files" / name), *arguments], environment)
        return process.wait(timeout=_SECONDS), (self.folder / f"{pod}.log").read_text()

    def spawn(self, command, environment):
        if command[0] == "dask":
            command = [sys.executable, "-m", "dask", *command[1:]]
        log = self.stack.enter_context((self.folder / f"{environment['POD_NAME']}.log").open("w"))
        process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=log, stderr=log)
        self.stack.callback(process.wait, timeout=30)
        self.stack.callback(process.terminate)
        return process


def local(argument: str, ports, environment) -> str:
    """Return an argument of a container with its variables filled in, as on this machine."""
    argument = re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], argument)
    argument = re.sub(r"(?<!\d)87\d\d$", lambda found: str(ports[int(found[0])]), argument)
    return argument.replace("=/tmp", f"={environment['HOME']}/{environment['POD_NAME']}")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def until(holds) -> None:
    deadline = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def pods(rendered_sets, tmp_path):
    pytest.importorskip("distributed")
    started = Pods(rendered_sets["laptop"], tmp_path)
    with started.stack:
        yield started


def read(pods, url: str) -> str:
    """Return what a page of the chart's pods shows, at the address that it has in the cluster."""
    where = urlsplit(url)
    with urllib.request.urlopen(f"http://127.0.0.1:{pods.ports[where.port]}{where.path}", timeout=20) as answer:
        return answer.read().decode()


def is_refused_without_tls(port: int) -> bool:
    """Return whether a server ends a connection that begins with other bytes than TLS's."""
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as plain:
        plain.sendall(bytes(64))
        try:
            return plain.recv(64)[:1] in {b"", b"\x15"}  # 21: an alert
        except ConnectionResetError:
            return True


def test_a_task_goes_through_the_rendered_cluster_by_tls_and_metrics_count_it(rendered_sets, tmp_path):
    pytest.importorskip("distributed")
    trustme = pytest.importorskip("trustme")
    from distributed import Client, Security

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    issued = authority.issue_cert("dask")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    rendered = rendered_sets["eks with operators"]
    pods = Pods(rendered, tmp_path)
    with pods.stack:
        pods.start("gnnflow-dask-scheduler", "scheduler")
        (wanted, connected) = (
            each["metadata"] for each in rendered.one("ScaledObject", "gnnflow-dask-worker")["spec"]["triggers"]
        )
        idle = json.loads(read(pods, wanted["url"]))
        # KEDA starts workers above these, and stops the last one at or below them.
        assert idle[wanted["valueLocation"]] == 0
        assert idle[connected["valueLocation"]] == int(connected["activationTargetValue"])
        files = {f"tls_{key}": str(tmp_path / name) for key, name in FILES.items()}
        address = pods.environment["GNNFLOW_DASK_ADDRESS"]
        assert address.startswith("tls://")
        assert is_refused_without_tls(pods.scheduler_port)
        with Client(address, security=Security(**files, require_encryption=True)) as client:
            waiting = json.loads(read(pods, connected["url"]))
            assert waiting[connected["valueLocation"]] > int(connected["activationTargetValue"])
            held = client.submit(int, "7", pure=False)
            until(lambda: json.loads(read(pods, wanted["url"]))[wanted["valueLocation"]] > 0)
            pods.start("gnnflow-dask-worker", "worker-0")
            assert held.result(timeout=_SECONDS) == 7
        code, said = pods.script("cluster_test.py")
        assert code == 0, said
        assert "worker-0 wrote" in said
        assert "the same bytes" in said
        told = "".join(read(pods, f"http://{pod}/metrics") for pod in ("scheduler:8787", "worker:8790"))
    table = (REPOSITORY / "docs" / "kubernetes.md").read_text()
    named = re.findall(r"^\| `(dask_\w+)` \| (?:`(\w+)`)? *\|", table, re.MULTILINE)
    assert len(named) >= 5
    for metric, label in named:
        assert re.search(rf"^{metric}{{{label}=" if label else rf"^{metric} ", told, re.MULTILINE), metric


def test_a_drained_worker_finishes_its_task_and_hands_over_its_results(pods):
    from distributed import Client, get_worker

    # Inside the test, so that they travel as code: the workers do not have this file.
    def slow(path) -> None:
        with path.open("a") as starts:
            starts.write("started\n")
        time.sleep(3)

    def name_of_worker() -> str:
        return get_worker().name

    pods.start("gnnflow-dask-scheduler", "scheduler")
    leaving = pods.start("gnnflow-dask-worker", "worker-0")
    with Client(pods.environment["GNNFLOW_DASK_ADDRESS"]) as client:
        held = client.submit(bytes, 1000, key="held")
        held.result(timeout=_SECONDS)
        pods.start("gnnflow-dask-worker", "worker-1")
        running = client.submit(
            slow, pods.folder / "starts", key="running", workers=["worker-0"], allow_other_workers=True
        )
        until((pods.folder / "starts").exists)

        code, said = pods.script("drain.py", "--seconds", "30", pod="worker-0")
        assert (code, said.splitlines()[-1]) == (0, "drained")
        assert running.done()
        where = client.submit(name_of_worker, pure=False).result(timeout=_SECONDS)
        leaving.terminate()
        leaving.wait(timeout=_SECONDS)
        assert where == "worker-1"
        assert held.result(timeout=_SECONDS) == bytes(1000)
        running.result(timeout=_SECONDS)
    assert (pods.folder / "starts").read_text() == "started\n"  # once


def test_draining_without_a_scheduler_does_not_hold_the_pod(pods):
    code, said = pods.script("drain.py", "--seconds", "600")
    assert code == 0
    assert "no scheduler" in said


def test_a_worker_ends_with_its_scheduler_and_joins_the_next(pods):
    scheduler = pods.start("gnnflow-dask-scheduler", "scheduler")
    worker = pods.start("gnnflow-dask-worker", "worker-0")
    assert pods.script("cluster_test.py")[0] == 0
    scheduler.kill()
    worker.wait(timeout=_SECONDS)  # Kubernetes then starts the container again, as the next lines do
    pods.start("gnnflow-dask-scheduler", "scheduler")
    pods.start("gnnflow-dask-worker", "worker-0")
    code, said = pods.script("cluster_test.py")
    assert code == 0, said
