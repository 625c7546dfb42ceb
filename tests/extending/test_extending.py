"""docs/extending.md lists all files that something new touches: a toy of each kind needs no other, and works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.extending.edits import TOYS

PAGE = (REPOSITORY / "docs" / "extending.md").read_text()
CONTRACT = "tests/contracts/test_executions.py"


def listed(heading: str) -> set[str]:
    """Return the files in the first column of a heading's table."""
    (section,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {path for cell in cells for path in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_touches_what_the_page_lists(name: str) -> None:
    assert TOYS[name].files <= listed(TOYS[name].heading)


@pytest.mark.slow
@pytest.mark.merge
def test_every_toy_works_in_a_copy_of_the_repository(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("gnnflow", "tests"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for toy in TOYS.values():
        toy.apply(tmp_path)
    uses = [f"tests/extending/use_toys.py::test_{name.replace(' ', '_')}" for name in TOYS if name != "execution"]
    uses += [f"{CONTRACT}::test_every_execution_has_an_adapter"]
    uses += [f"{CONTRACT}::test_scores_equal_reference[toy x {layer}]" for layer in ("gcn", "gat", "sage-max")]
    options = ["-q", "-n0", "-m", "", "-pno:randomly", "-pno:cacheprovider", f"--basetemp={tmp_path}/of-toys"]
    command = [sys.executable, "-m", "pytest", *options, *uses]
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert f"{len(uses)} passed" in done.stdout, done.stdout + done.stderr
