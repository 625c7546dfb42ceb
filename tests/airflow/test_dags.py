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
PARSE = """
import json, sys, time
from airflow.sdk import DAG
begin = time.process_time()  # not by the clock: whatever else runs is not the file's doing
import importlib.util
spec = importlib.util.spec_from_file_location("parsed", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
heavy = [name for name in ("torch", "dask", "distributed", "pandas") if name in sys.modules]
print(json.dumps({"seconds": time.process_time() - begin, "heavy": heavy}))
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


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_parsing_is_quick_and_loads_neither_torch_nor_dask(file):
    done = subprocess.run([sys.executable, "-c", PARSE, str(file)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["heavy"] == []
    assert found["seconds"] < 2
