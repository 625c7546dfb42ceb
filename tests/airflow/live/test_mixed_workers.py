"""Two workers that cannot run gnnflow beside two that can, and a tenant who uses all four, on a live Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from distributed import Client

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.airflow.live.conftest import running
from tests.airflow.live.journeys import DIVERGES, Retraining, begin_experiment
from tests.airflow.live.runs import PipelineRun, in_bucket
from tests.airflow.live.services import LIVE
from tests.mapreduce.foreign_cluster import another_version, foreign_cluster

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [*LIVE, pytest.mark.exhaustive]


class Tenant:
    """Somebody else's work on every worker of a cluster: a value that each holds, and a long job on unfit ones."""

    def __init__(self, client: Client, folder: Path, *, busy: set[str]) -> None:
        self.client = client
        self.before = self.addresses()
        self._begun, self._over = folder / "begun", folder / "over"
        begun, over = self._begun, self._over

        def job(name: str) -> str:  # within a function, so that it is sent by value
            import time

            with begun.open("a") as file:
                file.write(f"{name}\n")
            while not over.exists():
                time.sleep(0.2)
            return f"result of {name}"

        self._held = [
            client.submit(sum, [1, number], pure=False, workers=[worker])
            for number, worker in enumerate(self.before.values())
        ]
        client.gather(self._held)
        self._jobs = {name: client.submit(job, name, workers=[self.before[name]]) for name in busy}

    def addresses(self) -> dict[str, str]:
        """Return the address of each worker by its name; one that was restarted has another."""
        return {each["name"]: address for address, each in self.client.scheduler_info(-1)["workers"].items()}

    def check_untouched(self) -> None:
        """End the jobs: all give their results at the first try, and all workers still have what they held."""
        assert self.addresses() == self.before
        assert not any(job.done() for job in self._jobs.values())
        self._over.touch()
        assert {job.result(timeout=60) for job in self._jobs.values()} == {f"result of {name}" for name in self._jobs}
        assert sorted(self._begun.read_text().split()) == sorted(self._jobs)
        assert self.client.gather(self._held) == [1 + number for number in range(len(self._held))]


@pytest.fixture
def mixed_live(tmp_path):
    with running(tmp_path / "live") as system, foreign_cluster(tmp_path, port=system.ports["dask"]) as others:
        others.start_worker("bare", modules=None)
        others.start_worker("older", modules=another_version(tmp_path))
        yield system


@pytest.fixture
def tenant(mixed_live, tmp_path):
    with Client(f"tcp://127.0.0.1:{mixed_live.ports['dask']}", timeout=60) as client:
        client.wait_for_workers(4, timeout=120)
        yield Tenant(client, tmp_path, busy={"bare", "older"})


def test_three_runs_use_the_fit_workers_and_leave_another_tenant_alone(mixed_live, tenant, graph, tmp_path):
    form = PipelineRun(mixed_live, in_bucket("mixed", graph.tables, graph.conf))
    form.trigger()
    experiment = begin_experiment(mixed_live, tmp_path / "experiment")
    retraining = Retraining(mixed_live, tmp_path / "retraining")
    try:
        retrained = retraining.first.result()
    finally:
        retraining.stop()
    assert (form.wait(), retrained.state(), experiment.wait()) == ("success", "success", "failed")
    assert form.made() == form.made_by_command_line(tmp_path)
    failed = [task for task, state in experiment.tasks().items() if state != "success"]
    assert sorted(failed) == sorted(["compare", *(f"{DIVERGES}.{task}" for task in ("train", "infer", "run"))])
    for run in (form, retrained, experiment):
        assert {task["try_number"] for task in run.instances()} <= {0, 1}  # one that did not begin has none
    log = form.log("ingest")
    assert f"{tenant.before['bare']}: gnnflow is not installed" in log
    assert f"{tenant.before['older']}: gnnflow 0.0.9 instead of" in log
    tenant.check_untouched()
