"""A cluster that others started is asked what it has installed before anything of gnnflow is sent there."""

from __future__ import annotations

import json
import pickle

import dask
import pytest

import gnnflow
from gnnflow.cluster import Cluster
from gnnflow.config import AddressCluster
from gnnflow.graph.errors import ClusterError
from gnnflow.mapreduce import preflight, schedulers
from tests.mapreduce.foreign_cluster import foreign_cluster

pytestmark = [pytest.mark.merge, pytest.mark.filterwarnings("default")]


def twice(index):
    return 2 * index


def test_the_question_names_no_module_of_ours():
    from distributed.protocol.pickle import dumps

    asked = preflight.question()
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(asked)
    assert b"gnnflow." not in dumps(asked).replace(b"gnnflow/", b"")
    told = json.loads(asked(("dask", "no_such_package"), ("torch", "no_such_package")))
    assert told["versions"]["dask"]
    assert told["versions"]["no_such_package"] is None
    assert told["present"] == {"torch": True, "no_such_package": False}


def test_what_gnnflow_requires_is_asked_for():
    import tomllib

    from tests.conftest import REPOSITORY

    names = {"protobuf": "google.protobuf", "pyyaml": "yaml", "scikit-learn": "sklearn"}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    local = {"rich", "typer", "psutil"}  # the command line's, and those of who plans
    required = {line.split(">")[0] for line in project["dependencies"]} - local
    asked = set(preflight._IMPORTED) | set(preflight._VERSIONED) - {"gnnflow"}
    assert asked == {names.get(name, name) for name in required}


def test_of_an_environment_without_gnnflow_one_lack_is_named():
    names = preflight._VERSIONED + preflight._RELEASED
    versions = {**dict.fromkeys(names), "dask": "2020.1.0"}
    told = {"versions": versions, "present": dict.fromkeys(preflight._IMPORTED, False)}
    assert preflight._misfits(told) == ["gnnflow is not installed", f"dask 2020.1.0 instead of {dask.__version__}"]
    told["versions"] |= {"gnnflow": gnnflow.__version__, "dask": dask.__version__}
    assert preflight._misfits(told)[:2] == ["distributed is not installed", "torch is not installed"]


@pytest.mark.distributed
def test_a_scheduler_without_gnnflow_is_refused_too(tmp_path):
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler(modules=None)
        cluster.start_worker("good")
        with (
            Cluster(AddressCluster(kind="address", address=cluster.address)) as ours,
            pytest.raises(ClusterError, match="gnnflow is not installed on the scheduler"),
        ):
            list(ours.run(twice, range(2)))


@pytest.mark.distributed
def test_a_cluster_without_workers_is_told_of_within_half_a_minute(tmp_path, monkeypatch):
    assert schedulers._LOOK_SECONDS < 30  # it is told of after one look
    monkeypatch.setattr(schedulers, "_LOOK_SECONDS", 0.5)
    said = []
    with foreign_cluster(tmp_path) as cluster:
        cluster.start_scheduler()
        with Cluster(AddressCluster(kind="address", address=cluster.address), say=said.append) as ours:
            results = ours.run(twice, range(2))

            def start(line):
                said.append(line)
                cluster.start_worker("late")

            ours.scheduler().say = start
            assert sorted(results) == [0, 2]
    assert said == ["the Dask cluster has no workers; 2 tasks wait for one"]
