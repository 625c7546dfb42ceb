"""The image's recipe. It is linted and not built: a test run has no Docker engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.helm.conftest import CHART, REPOSITORY, SETS, merged

pytestmark = pytest.mark.helm

RECIPE = REPOSITORY / "Dockerfile"


def test_recipe_lints():
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed: run `make test-helm`")
    found = subprocess.run([hadolint, "--no-color", str(RECIPE)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")


def test_what_is_copied_exists_and_is_let_through():
    let_through = {line[1:] for line in (REPOSITORY / ".dockerignore").read_text().split() if line.startswith("!")}
    copied = set(re.findall(r"^COPY --from=build /source/(\S+)", RECIPE.read_text(), re.MULTILINE))
    assert copied <= let_through
    assert {"pyproject.toml", "README.md", "LICENSE", "gnnflow", "operators"} <= let_through
    assert [name for name in sorted(let_through) if not (REPOSITORY / name).exists()] == []


def test_image_has_the_user_that_the_chart_gives_its_pods():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    user = f"{values['podSecurity']['user']}:{values['podSecurity']['group']}"
    assert re.findall(r"^USER (.*)$", RECIPE.read_text(), re.MULTILINE) == [user]
    airflow = values["airflow"]["securityContexts"]["pod"]
    assert f"{airflow['runAsUser']}:{airflow['runAsGroup']}" == user


# What the chart's defaults and examples need of the image, and the package that brings it. No other test finds that it
# is missing, since the image is not built here.
PROGRAMS = {"dask": "distributed", "python": "python", "gnnflow": "gnnflow"}
PAGES = {"8787": "bokeh", "/metrics": "prometheus-client"}
AIRFLOW = {
    "executor": {"LocalExecutor": "apache-airflow", "KubernetesExecutor": "apache-airflow-providers-cncf-kubernetes"},
    "statsd": "statsd",
    "remote_log_conn_id": {"aws_default": "apache-airflow-providers-amazon"},
    "scheme": {"postgresql": "apache-airflow-providers-postgres", "s3": "s3fs"},
}


def installed() -> set[str]:
    """Return the packages that the recipe installs: the project, its dependencies and extras, and what is named."""
    recipe = RECIPE.read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", recipe, re.MULTILINE)
    (others,) = re.findall(r'^ARG BESIDE="(.*)"$', recipe, re.MULTILINE)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *others.split()]
    for extra in extras.split(","):
        wanted += project["optional-dependencies"][extra]
    return {"python", project["name"], *(re.match(r"[\w.-]+", each)[0] for each in wanted)}


def test_programs_and_pages_that_the_chart_uses_are_in_the_image(rendered_sets):
    held = installed()
    for rendered in rendered_sets.values():
        for item in (*rendered.of_kind("Deployment"), *rendered.of_kind("Pod")):
            pod = item["spec"]["template"]["spec"] if item["kind"] == "Deployment" else item["spec"]
            for container in pod["containers"]:
                commands = [container.get("command") or container["args"]]
                if "lifecycle" in container:
                    commands.append(container["lifecycle"]["preStop"]["exec"]["command"])
                assert {PROGRAMS[command[0]] for command in commands} <= held
                assert ("command" in container) == (item["kind"] == "Pod")  # else the image's entry point runs args
    assert set(PAGES.values()) <= held


@pytest.mark.parametrize("name", SETS)
def test_providers_that_airflow_is_told_to_use_are_in_the_image(name):
    held = installed()
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    airflow = merged(defaults, *SETS[name])["airflow"]
    assert AIRFLOW["executor"][airflow["executor"]] in held
    if airflow["statsd"]["enabled"]:
        assert AIRFLOW["statsd"] in held
    logging = airflow.get("config", {}).get("logging", {})
    if logging:
        assert AIRFLOW["remote_log_conn_id"][logging["remote_log_conn_id"]] in held
        assert AIRFLOW["scheme"][logging["remote_base_log_folder"].partition(":")[0]] in held
    assert AIRFLOW["scheme"]["postgresql"] in held


def test_variables_of_the_chart_are_read_by_the_package(rendered_sets):
    code = "".join(
        path.read_text() for folder in ("gnnflow", "operators", "dags") for path in (REPOSITORY / folder).rglob("*.py")
    )
    scripts = "".join(path.read_text() for path in (CHART / "files").iterdir())
    for rendered in rendered_sets.values():
        for name in rendered.one("ConfigMap", "gnnflow-environment")["data"]:
            if name.startswith("GNNFLOW_"):
                assert re.search(rf"\b{name}\b", code + scripts), name


def test_dask_reads_its_variables(rendered_sets):
    config = pytest.importorskip("dask.config")
    pytest.importorskip("distributed")
    for rendered in rendered_sets.values():
        data = dict(rendered.one("ConfigMap", "gnnflow-environment")["data"])
        for item in rendered.of_kind("Deployment"):
            for variable in item["spec"]["template"]["spec"]["containers"][0]["env"]:
                data[variable["name"]] = variable.get("value", "")
        free = "DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON__"  # names of the environment itself
        for name in data:
            if name.startswith("DASK_") and not name.startswith(free):
                key = name.removeprefix("DASK_").lower().replace("__", ".")
                assert config.get(key, default="unknown") != "unknown", name


def test_chart_and_package_have_one_version():
    (version,) = re.findall(
        r'^__version__ = "(.*)"$', (REPOSITORY / "gnnflow" / "__init__.py").read_text(), re.MULTILINE
    )
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (chart["appVersion"], values["airflow"]["images"]["airflow"]["tag"]) == (version, version)
