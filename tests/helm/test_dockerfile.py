"""The image's recipe. It is linted and not built: a test run has no Docker engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helm.conftest import CHART, REPOSITORY

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


def test_chart_and_package_have_one_version():
    (version,) = re.findall(
        r'^__version__ = "(.*)"$', (REPOSITORY / "gnnflow" / "__init__.py").read_text(), re.MULTILINE
    )
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert (chart["appVersion"], values["airflow"]["images"]["airflow"]["tag"]) == (version, version)
