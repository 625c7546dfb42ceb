"""The DAGs load, quickly and lightly, and can be serialized."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")

from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

FILES = sorted((REPOSITORY / "dags").glob("*.py"))
# One process forks for each file: to import Airflow takes ten times as long as to read one.
PARSE = """
import importlib.util, json, os, sys, time
from airflow.sdk import DAG

for file in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    begin = time.process_time()  # not by the clock: whatever else runs is not the file's doing
    spec = importlib.util.spec_from_file_location("parsed", file)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    heavy = [name for name in ("torch", "dask", "distributed", "pandas") if name in sys.modules]
    print(json.dumps({"file": file, "seconds": time.process_time() - begin, "heavy": heavy}))
    sys.exit()
"""


@pytest.fixture(scope="module")
def bag(airflow_db):
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(REPOSITORY / "dags")


def test_no_import_errors(bag):
    assert bag.import_errors == {}
    assert {"gnnflow_pipeline", "gnnflow_retrain"} <= set(bag.dags)
    assert any(name.startswith("gnnflow_experiments.") for name in bag.dags)


def test_every_dag_serializes_and_comes_back(bag):
    from airflow.serialization.serialized_objects import DagSerialization

    for dag in bag.dags.values():
        content = json.loads(json.dumps(DagSerialization.to_dict(dag)))
        assert DagSerialization.from_dict(content).task_ids == dag.task_ids


def test_parsing_is_quick_and_loads_neither_torch_nor_dask():
    asked = [sys.executable, "-c", PARSE, *map(str, FILES)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["file"] for each in found] == [str(file) for file in FILES]
    assert [each["heavy"] for each in found] == [[] for _ in FILES]
    assert [each for each in found if each["seconds"] >= 2] == []
