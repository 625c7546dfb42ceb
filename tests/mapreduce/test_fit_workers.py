"""On a cluster that others use too, fit workers get tasks, and all others are left alone."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import distributed
import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import AddressCluster
from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce import fit_workers, preflight
from gnnflow.storage import access
from gnnflow.storage.access import Access
from tests.conftest import REPOSITORY
from tests.mapreduce.foreign_cluster import another_torch, another_version, foreign_cluster
from tests.ports import free_port

pytestmark = [pytest.mark.merge, pytest.mark.filterwarnings("default")]


def process(index):
    return index, os.getpid()


def process_slowly(index):
    time.sleep(0.5)
    return index, os.getpid()


def open_slowly(index):
    time.sleep(0.5)
    return index, access.options_of("s3://bank/x").get("secret"), os.getpid()


def held(name):
    return access.held(name) is not None


def addresses(client):
    return {worker["name"]: address for address, worker in client.scheduler_info(-1)["workers"].items()}


@contextmanager
def joined(cluster, *, workspace="", say=lambda _: None, **keys):
    with Cluster(AddressCluster(address=cluster.address, **keys), workspace=workspace, say=say) as ours:
        yield ours


def test_access_is_taken_back_from_unfit_workers_too(monkeypatch):
    """An unfit worker was handed it to be asked whether it sees the workspace, and may have kept it."""
    handed, taken = [], []

    async def find_problems(_, due, *__, **___):
        handed.extend(due)
        return {each: ["does not answer"] for each in due}

    async def ncores():
        return {"tcp://one": 1, "tcp://two": 1}

    async def run_on_scheduler(_):
        return {"tcp://one": ("first", 1), "tcp://two": ("second", 1)}

    async def run(_, name, *, workers, on_error):
        taken.append((name, workers, on_error))

    async def fit(_):
        return None

    monkeypatch.setattr(fit_workers, "find_problems", find_problems)
    monkeypatch.setattr(fit_workers, "refuse_unfit_scheduler", fit)
    scheduler = SimpleNamespace(ncores=ncores)
    client = SimpleNamespace(status="running", scheduler=scheduler, run=run, run_on_scheduler=run_on_scheduler)
    store = Access("store", {"s3://bank/": {"secret": "it"}})
    found = fit_workers.FitWorkers(client, AddressCluster(address="tcp://it"), marker="", say=print, access=store)

    async def ask():
        assert await found.look() == {}
        await found.release()

    asyncio.run(ask())
    assert taken == [("store", handed, "ignore")]


@pytest.mark.distributed
def test_only_fit_workers_get_tasks_and_another_tenant_is_left_alone(tmp_path, monkeypatch):
    """A worker of each kind: fit, without gnnflow, with an older one, with another torch, and one that stands still."""
    from distributed import Client

    monkeypatch.setattr(preflight, "_ANSWER_SECONDS", 3.0)
    said, workspace = [], str(tmp_path / "runs")
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("fit", resources="ours=1")
        cluster.start_worker("other")
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("older", modules=another_version(tmp_path))
        cluster.start_worker("torch", modules=another_torch(tmp_path))
        cluster.start_worker("still")
        with Client(cluster.address, timeout=60) as tenant:
            tenant.wait_for_workers(6, timeout=60)
            before = addresses(tenant)
            held = [tenant.submit(sum, [1, number], pure=False, workers=[each]) for number, each in enumerate(before)]
            assert [each.result(timeout=60) for each in held] == [1 + number for number in range(6)]
            cluster.processes["still"].send_signal(signal.SIGSTOP)
            with joined(cluster, workspace=workspace, say=said.append) as ours:
                found = list(ours.run(process, range(12)))
                assert sorted(index for index, _ in found) == list(range(12))
                fit = {cluster.processes[name].pid for name in ("fit", "other")}
                assert {pid for _, pid in found} <= fit
                assert list(Path(workspace).iterdir()) != []
                elsewhere = fit_workers.FitWorkers(
                    ours.scheduler().client, ours.config, marker=f"{workspace}/none", say=said.append
                )
                assert ours.scheduler().client.sync(elsewhere.look) == {}
            assert list(Path(workspace).iterdir()) == []
            with joined(cluster, resource="ours") as ours:
                assert {pid for _, pid in ours.run(process, range(4))} == {cluster.processes["fit"].pid}
            with (
                joined(cluster, workers=3, start_seconds=1) as ours,
                pytest.raises(ClusterError, match=r"2 of 6 workers can run gnnflow's tasks after 1 s, and 3 are asked"),
            ):
                list(ours.run(process, range(4)))
            cluster.processes["still"].send_signal(signal.SIGCONT)
            assert addresses(tenant) == before
            assert tenant.gather(held) == [1 + number for number in range(6)]
        for name in ("bare", "older"):
            assert "ModuleNotFoundError" not in cluster.log(name)
    first, *_, unseen = [line for line in said if line.startswith("these workers get no task")]
    assert first.splitlines()[1:] == sorted(
        [
            f"  {before['bare']}: gnnflow is not installed",
            f"  {before['older']}: gnnflow 0.0.9 instead of 0.1.0",
            f"  {before['torch']}: torch 1.0.0 instead of {preflight_torch()}",
            f"  {before['still']}: did not answer within 3 s",
        ]
    )
    assert f"{before['fit']}: does not see the workspace (StorageError: {workspace}/none" in unseen


@pytest.mark.distributed
def test_a_worker_with_another_source_of_the_users_code_gets_no_task(tmp_path):
    """As a branch gives it, which moved between the starts of two workers: their results had one fingerprint."""
    from distributed import Client

    for name, text in (("same", "A = 1\n"), ("moved", "A = 2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_code_of_a_test.py").write_text(text)
    digest = hashlib.sha256(b"A = 1\n").hexdigest()
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        for name in ("same", "moved"):
            cluster.start_worker(name, modules=os.pathsep.join((str(REPOSITORY), str(tmp_path / name))))
        cluster.start_worker("without")
        keys = {"address": cluster.address, "start_seconds": 20}
        with Client(cluster.address, timeout=60) as client:
            client.wait_for_workers(3, timeout=60)
            there = addresses(client)
            code = {"own_code_of_a_test:A": digest}
            with Cluster(AddressCluster(**keys), say=said.append, code=code) as ours:
                assert list(ours.scheduler().client.sync(ours.fit_workers().look)) == [there["same"]]
    (line,) = said
    for name in ("moved", "without"):
        assert f"{there[name]}: has another source of own_code_of_a_test:A, or none" in line


def preflight_torch():
    from importlib.metadata import version

    return version("torch")


def test_files_of_runs_that_were_killed_are_deleted_after_a_week(tmp_path):
    old, young = (tmp_path / f".seen-{int(time.time()) - days * 86400}-{'0' * 32}" for days in (8, 6))
    for file in (old, young, tmp_path / ".seen-other"):
        file.touch()
    new = Path(fit_workers.mark(str(tmp_path)))
    assert set(tmp_path.iterdir()) == {young, new, tmp_path / ".seen-other"}


@pytest.mark.distributed
def test_where_none_is_fit_the_run_ends_with_a_list(tmp_path, monkeypatch):
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("older", modules=another_version(tmp_path))
        with joined(cluster, start_seconds=2) as ours:
            ours.scheduler().client.wait_for_workers(2, timeout=60)
            workers = addresses(ours.scheduler().client)
            with pytest.raises(ClusterError) as refused:
                list(ours.run(process, range(4)))
            client = ours.scheduler().client
            monkeypatch.setattr(preflight.platform, "python_version", lambda: "2.7.18")
            told = client.sync(preflight.find_problems, client, [workers["bare"]], Access("a"))[workers["bare"]]
            assert [text.partition(" instead of ")[2] for text in told] == ["2.7"]
    message = str(refused.value)
    assert "0 of 2 workers can run gnnflow's tasks after 2 s, and 1 is asked for. Start workers with gnnflow" in message
    lines = message.splitlines()
    assert lines[0].endswith("These are not fit and get no task:")
    assert lines[1:] == sorted(
        [
            f"  {workers['bare']}: gnnflow is not installed",
            f"  {workers['older']}: gnnflow 0.0.9 instead of 0.1.0",
        ]
    )


@pytest.mark.distributed
def test_workers_that_join_get_tasks_also_of_those_that_were_lost(tmp_path, monkeypatch):
    """The only fit worker is killed with tasks that none but it may run."""
    from gnnflow.mapreduce import schedulers

    monkeypatch.setattr(schedulers, "_LOOK_SECONDS", 1)
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("bare", modules=None)
        cluster.start_worker("first")
        said = []
        with joined(cluster, start_seconds=60, say=said.append) as ours:
            client = ours.scheduler().client
            client.wait_for_workers(2, timeout=60)
            results = ours.run(process_slowly, range(12))
            found = [next(results)]
            cluster.start_worker("second")
            client.wait_for_workers(3, timeout=60)
            while found[-1][1] == found[0][1]:
                found.append(next(results))  # a worker that joined gets those that were not sent yet
            for name in ("first", "second"):
                cluster.processes[name].kill()
            cluster.start_worker("third")
            found += results
    assert sorted(index for index, _ in found) == list(range(12))
    assert found[-1][1] == cluster.processes["third"].pid
    assert any("have left" in line or "has left" in line for line in said)


@pytest.mark.distributed
def test_a_process_that_is_new_at_a_known_address_begins_no_task_before_it_is_asked(tmp_path, monkeypatch):
    """A fixed port, as in the chart: Dask takes the process that a nanny starts again for the one that was killed."""
    from gnnflow.mapreduce import schedulers

    monkeypatch.setattr(schedulers, "_LOOK_SECONDS", 2)
    port = free_port()
    worker = f"tcp://127.0.0.1:{port}"
    bank = Access("store", {"s3://bank": {"secret": "of the run"}})
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        cluster.start_worker("first", port=port)
        with Cluster(AddressCluster(address=cluster.address, start_seconds=60), access=bank) as ours:
            client = ours.scheduler().client
            client.wait_for_workers(1, timeout=60)
            results = ours.run(open_slowly, range(4))
            found = [next(results)]
            for name, modules in (("bare", None), ("again", REPOSITORY)):
                for process in cluster.processes.values():
                    if process is not cluster.processes["scheduler"]:
                        process.kill()
                        process.wait()
                cluster.start_worker(name, port=port, modules=modules)
                while name not in addresses(client) or not client.processing().get(worker):
                    time.sleep(0.05)  # until Dask has sent it a task
            found += results
            assert client.run(held, bank.name) == {worker: True}
        with distributed.Client(cluster.address, timeout=60) as other:
            assert other.run(held, bank.name) == {worker: False}
        assert "ModuleNotFoundError" not in cluster.log("bare")
    assert sorted(index for index, *_ in found) == list(range(4))
    assert {secret for _, secret, _ in found} == {"of the run"}
    assert {pid for *_, pid in found} == {cluster.processes[name].pid for name in ("first", "again")}


def test_nothing_but_one_module_submits_tasks():
    """A call of Dask's client elsewhere could send a task to any worker."""
    calls = re.compile(r"client\.(submit|map|restart|restart_workers|upload_file|scatter|get|compute)\(")
    found = {
        str(path.relative_to(REPOSITORY))
        for folder in ("gnnflow", "operators")
        for path in (REPOSITORY / folder).rglob("*.py")
        if calls.search(path.read_text())
    }
    assert found == {"gnnflow/mapreduce/submitting.py"}
