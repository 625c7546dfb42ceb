"""What other people's environments meet: names, and the entry point that Airflow reads."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

from tests.conftest import REPOSITORY


def run_python(code: str, *places: object) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(place) for place in places)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_folder_operators_beside_the_dags_is_the_users_own(tmp_path):
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").write_text("WHOSE = 'mine'\n")
    code = "import operators, gnnflow_airflow, gnnflow_airflow.provider; print(operators.WHOSE)"
    assert run_python(code, REPOSITORY, REPOSITORY / "operators", tmp_path) == "mine"


@pytest.mark.airflow
def test_everything_the_provider_names_can_be_imported():
    pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
    from airflow.sdk.module_loading import import_string

    from gnnflow_airflow.provider import get_provider_info

    info = get_provider_info()
    named = [each["hook-class-name"] for each in info["connection-types"]] + info["extra-links"]
    assert all(import_string(name) for name in named)


@pytest.mark.airflow
def test_the_plugin_is_one_that_airflow_loads_and_imports_no_page_by_itself():
    pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
    from airflow.plugins_manager import is_valid_plugin
    from airflow.sdk.module_loading import import_string

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    place = project["entry-points"]["airflow.plugins"]["gnnflow"]
    assert is_valid_plugin(import_string(place.replace(":", ".")))
    code = f"import sys, {place.partition(':')[0]}; print('gnnflow_airflow.pages.app' in sys.modules)"
    assert run_python(code, REPOSITORY, REPOSITORY / "operators") == "False"


@pytest.mark.airflow
def test_what_is_imported_before_tasks_are_forked_starts_no_thread_and_spares_them_the_rest():
    """A thread does not survive a fork, and what it held stays locked. Torch is for workers, which the cluster has."""
    pytest.importorskip("airflow", reason="needs apache-airflow: pip install 'gnnflow[airflow]'")
    code = (
        "import sys, threading, gnnflow_airflow.preload;"
        "held = {name.split('.')[0] for name in sys.modules};"
        "print(threading.active_count(), sorted(held & {'distributed', 'gnnflow', 'pyarrow', 'torch'}))"
    )
    assert run_python(code, REPOSITORY, REPOSITORY / "operators") == "1 ['distributed', 'gnnflow', 'pyarrow']"


def test_what_runs_on_a_worker_imports_nothing_of_airflow():
    code = (
        "import sys, gnnflow.remote.driver, gnnflow.stages.running;"
        "print([name for name in sys.modules if name.split('.')[0] in {'airflow', 'gnnflow_airflow', 'operators'}])"
    )
    assert run_python(code, REPOSITORY) == "[]"
