"""S3 that resets, slows, cuts answers and says 503 changes no byte; what it stops is said readably and goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command_line import run_cli
from tests.robustness.case import refusal_faults
from tests.robustness.flaky_s3 import FlakyS3
from tests.small_graphs import graph_config, write_graph

pytestmark = [pytest.mark.slow, pytest.mark.s3, pytest.mark.timeout(900)]

RUNS = 2
ATTEMPTS = 6
RATE = 0.05
BUCKET = "robustness"


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, int]]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flaky")
    write_graph(folder)
    return folder


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, upstream: tuple[str, int]) -> Callable[[str], None]:
    """Point S3's clients at an endpoint, with a bucket there."""
    import s3fs

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    def point(endpoint: str) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        s3fs.S3FileSystem.clear_instance_cache()

    point("http://{}:{}".format(*upstream))
    if not s3fs.S3FileSystem().exists(BUCKET):
        s3fs.S3FileSystem().mkdir(BUCKET)
    return point


def config_file(graph: Path, workspace: str, name: str) -> str:
    config = graph_config(
        graph,
        workspace=workspace,
        neighbors={"sampling": {"kind": "uniform", "fanout": [4, 3]}},
        model={"kind": "sage", "hidden": 4},
        train={"epochs": 2, "batch_size": 16, "threads": 1},
        infer={"parity_samples": 8},
    )
    file = graph / f"{name}.yaml"
    file.write_text(config.model_dump_json(exclude_none=True))
    return str(file)


def test_faults_of_s3_change_no_byte(
    graph: Path,
    upstream: tuple[str, int],
    environment: Callable[[str], None],
    record_property: Callable[[str, object], None],
) -> None:
    local = json.loads(run_cli(["run", config_file(graph, str(graph / "local"), "local"), "--json"]).out)
    undisturbed = {name: stage["digest"] for name, stage in local["stages"].items()}
    faults, refusals = Counter[str](), []
    for seed in range(RUNS):
        proxy = FlakyS3(upstream, rate=RATE, seed=seed)
        environment(proxy.url)
        name = f"flaky-{seed}"
        file = config_file(graph, f"s3://{BUCKET}/{name}", name)
        for _ in range(ATTEMPTS):
            shown = run_cli(["run", file, "--json"])
            if shown.code == 0:
                break
            refusals.append(refusal_faults(shown))
            faults["runs that stopped"] += 1
        assert shown.code == 0, shown.err
        proxy.stop()
        faults += proxy.faults
        environment("http://{}:{}".format(*upstream))
        assert {stage: held["digest"] for stage, held in json.loads(shown.out)["stages"].items()} == undisturbed
        assert left_in_work(name) == []
    record_property("faults of S3", dict(faults))
    assert [wrong for wrong in refusals if wrong] == []
    assert sum(faults.values()) >= 20 * RUNS * RATE


def left_in_work(name: str) -> list[str]:
    import s3fs

    return [str(file) for file in s3fs.S3FileSystem().find(f"{BUCKET}/{name}/work")]
