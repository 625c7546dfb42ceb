"""What every test may ask for. Imports nothing heavy, so that collecting one folder stays quick."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from gnnflow.cluster import Cluster
    from gnnflow.config import LocalCluster

ClusterOf = Callable[["LocalCluster"], "Cluster"]

REPOSITORY = Path(__file__).resolve().parents[1]

# No deadline: the first call of a compiled kernel or a cold import would fail a test that is right.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=100, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the public graphs, one folder each."""
    named = os.environ.get("GNNFLOW_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public graphs at {folder}; set GNNFLOW_DATA to the folder that holds them")
    return folder


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[ClusterOf]:
    """The cluster that a config names, which tests share: to start one takes longer than most of them.

    It runs until one of another size is asked for, so a test says its size as a parameter whose scope is the session:
    pytest then puts tests of one size after another. All workers are there, also where the test before killed some.
    """
    from gnnflow.cluster import Cluster

    with ExitStack() as stack:
        running: list[Cluster] = []

        def found(config: LocalCluster) -> Cluster:
            if [each.config for each in running] != [config]:
                stack.close()
                running[:] = [stack.enter_context(Cluster(config))]
            running[0].dask_client().wait_for_workers(config.workers, timeout=120)
            return running[0]

        yield found


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the report's pictures blank: to render them is half of a small run, and tests/report does."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    def print_svg(_: FigureCanvasSVG, out: StringIO, **given: object) -> None:
        out.write('<svg viewBox="0 0 1 1"></svg>')

    monkeypatch.setattr(FigureCanvasSVG, "print_svg", print_svg)


def pytest_terminal_summary(terminalreporter):
    """Print which layers which executions cannot run, and why, where their contracts ran.

    It is here because pytest-xdist's main process, which prints, reads the conftest files of the folders named on the
    command line alone, and a plain run names `tests`. It reads reports, so it imports neither torch nor the executions.
    """
    gaps = {
        (report.nodeid.partition("[")[2].rstrip("]"), report.wasxfail)
        for report in terminalreporter.stats.get("xfailed", [])
        if "contracts/test_executions.py::" in report.nodeid
    }
    if gaps:
        terminalreporter.section("gaps of executions")
        width = max(len(pair) for pair, _ in gaps)
        for pair, reason in sorted(gaps):
            terminalreporter.line(f"{pair:{width}}  {reason}")
