"""Notebooks run as they are written, and hold nothing of the machine that wrote them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

NOTEBOOKS = sorted(REPOSITORY.glob("docs/notebooks/*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[each.name for each in NOTEBOOKS])
def test_a_notebook_keeps_no_results(notebook: Path) -> None:
    cells = pytest.importorskip("nbformat").read(notebook, 4).cells
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]


@pytest.mark.slow
@pytest.mark.merge
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[each.name for each in NOTEBOOKS])
def test_a_notebook_runs_in_a_new_kernel(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = pytest.importorskip("nbformat").read(notebook, 4)
    monkeypatch.delenv("GNNFLOW_WORKSPACE", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    # in a process of its own, whose kernel, loop and sockets end with it
    program = (
        "import sys, nbformat; from nbclient import NotebookClient\n"
        "held = nbformat.read(sys.argv[1], 4)\n"
        "NotebookClient(held, timeout=120, resources={'metadata': {'path': sys.argv[2]}}).execute()\n"
        "nbformat.write(held, sys.argv[3])\n"
    )
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", program, str(notebook), str(tmp_path), str(tmp_path / "done.ipynb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-3000:]
    cells = pytest.importorskip("nbformat").read(tmp_path / "done.ipynb", 4).cells
    assert len(cells) == len(held.cells)
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
