"""A cluster that a config names by its class: it runs tasks on fit workers and is closed, or says what is wrong."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest

from gnnflow.cluster import Cluster
from gnnflow.config import OwnCluster, load_config
from gnnflow.graph.errors import ClusterError, ConfigError, Interrupted
from gnnflow.mapreduce.own_cluster import cluster_class
from tests.conftest import REPOSITORY
from tests.small_graphs import graph_config, write_graph

HERE = "tests.mapreduce.test_own_cluster"
LOCAL = {"n_workers": 0, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}

closed: list[object] = []
released = threading.Event()


class Broken:
    """Fails as it starts."""

    def __init__(self, **options):
        raise RuntimeError(f"no quota for {sorted(options)}")

    def scale(self, count):
        """Never called."""

    def close(self):
        closed.append(self)


class Slow(Broken):
    """Starts when it is released."""

    def __init__(self):
        released.wait(60)


class Half:
    """Starts one worker, however many are asked for; derives from no class of Dask's, as some clusters do."""

    def __init__(self):
        from distributed import LocalCluster

        self.local = LocalCluster(**LOCAL)

    def __getattr__(self, name):
        return getattr(self.local, name)

    def scale(self, count):
        self.local.scale(1)

    def close(self):
        self.local.close()
        closed.append(self)


def process(index):
    return index, os.getpid()


def told(**keys):
    """Return the error of a cluster with these keys."""
    with Cluster(OwnCluster(**keys)) as cluster, pytest.raises(ClusterError) as caught:
        list(cluster.run(process, [0]))
    return str(caught.value)


def wait_until(is_so):
    while not is_so():
        time.sleep(0.01)


def sections_of_the_docs():
    """Return the sections `cluster` that the page shows, by their kinds."""
    page = (REPOSITORY / "docs" / "clusters.md").read_text()
    found = [load_config(f"name: it\ngraph: {{nodes: n, edges: e}}\n{block}") for block in fenced(page)]
    return {config.cluster.kind: config.cluster for config in found}


def fenced(page):
    return re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)


def test_the_examples_of_the_docs_are_configs():
    kinds = {"address", "dask_jobqueue:SLURMCluster", "dask_kubernetes.operator:KubeCluster", "coiled:Cluster"}
    assert set(sections_of_the_docs()) == kinds | {"distributed:LocalCluster"}


@pytest.mark.distributed
@pytest.mark.filterwarnings("default")
def test_a_cluster_starts_with_its_options_scales_finds_fit_workers_and_is_closed(tmp_path):
    said = []
    config = sections_of_the_docs()["distributed:LocalCluster"]
    with Cluster(config, workspace=str(tmp_path), say=said.append) as cluster:
        found = list(cluster.run(process, range(8)))
        started = cluster.dask_client().cluster
        assert len(started.workers) == 2
        assert not cluster.on_this_machine
        assert cluster.fit_workers() is not None
    assert sorted(index for index, _ in found) == list(range(8))
    assert os.getpid() not in {pid for _, pid in found}
    assert said[0] == "starts 2 workers of distributed:LocalCluster, for at most 600 s"
    assert started.status.name == "closed"
    assert list(tmp_path.iterdir()) == []  # the file that workers were to see is gone


@pytest.mark.distributed
@pytest.mark.filterwarnings("default")
def test_a_cluster_is_closed_though_the_process_ends_next():
    """Workers of this machine end with the process; workers of a queue or a cloud would stay."""
    cluster = Cluster(OwnCluster(kind="distributed:LocalCluster", options=LOCAL))
    started = cluster.dask_client().cluster
    cluster.__exit__(Interrupted, Interrupted(2), None)
    assert started.status.name == "closed"


@pytest.mark.distributed
@pytest.mark.filterwarnings("default")
def test_too_few_workers_in_time_are_counted_and_the_cluster_is_closed():
    closed.clear()
    said = told(kind=f"{HERE}:Half", workers=3, start_seconds=4)
    assert re.search(rf"[01] of 3 workers of {HERE}:Half have started after 4 s", said)
    assert closed


def test_what_is_wrong_is_said():
    assert "there is no module 'dask_nowhere'" in told(kind="dask_nowhere:SLURMCluster")
    assert "'distributed:Clusters' does not exist" in told(kind="distributed:Clusters")
    no_cluster = told(kind="distributed:Client")
    assert "'distributed:Client' is not a class of Dask clusters" in no_cluster
    assert "Its module's clusters are:" in no_cluster
    assert "LocalCluster" in no_cluster
    assert f"{HERE}:Broken did not start: RuntimeError: no quota for ['account']" in told(
        kind=f"{HERE}:Broken", options={"account": "a"}
    )


def test_a_cluster_that_starts_too_late_is_closed_by_itself():
    released.clear()
    assert f"{HERE}:Slow has not started after 0.1 s" in told(kind=f"{HERE}:Slow", start_seconds=0.1)
    closed.clear()
    released.set()
    wait_until(lambda: closed)


def test_a_service_imports_no_class_that_it_does_not_allow(tmp_path, monkeypatch):
    write_graph(tmp_path)
    monkeypatch.setenv("GNNFLOW_SERVICE", "1")
    own = {"kind": "distributed:LocalCluster", "options": {}}
    with pytest.raises(ConfigError, match=r"cluster\.kind: module 'distributed' may not be imported here"):
        graph_config(tmp_path, cluster=own)
    with pytest.raises(ConfigError, match="may not be imported here"):
        cluster_class(own["kind"])
    monkeypatch.setenv("GNNFLOW_MODULES", "distributed")
    assert graph_config(tmp_path, cluster=own).cluster == OwnCluster(kind="distributed:LocalCluster")
