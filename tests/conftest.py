"""What every test may ask for. Imports nothing heavy, and nothing that the environment of Helm's tests lacks."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import tempfile
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fsspec.asyn import get_loop
from hypothesis import settings

from tests.budget import examples, part_of
from tests.leaks import OF_CLUSTERS, SHARED, held, left_behind

if TYPE_CHECKING:
    from gnnflow.cluster import Cluster
    from gnnflow.config import LocalCluster

ClusterOf = Callable[["LocalCluster"], "Cluster"]

REPOSITORY = Path(__file__).resolve().parents[1]

# Read when OpenMP is loaded: threads that wait for each other sleep, where others need the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# No deadline: the first call of a compiled kernel or a cold import would fail a test that is right.
settings.register_profile("few", deadline=None, max_examples=examples(100), print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

# Fixtures of clusters that outlive a test; all tests of one are run by one process.
_SHARED_CLUSTERS = frozenset({"cluster_of", "shared_client"})
_ADVICE = "End it in the code where a user would have it left too, else in the test: CONTRIBUTING.md, Tests."
_CASES = Counter[str]()  # of each table that were collected


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        type=slice_of,
        default="1/1",
        help="K/N: the K-th of N parts of the selected tests; COMMIT/N: the part that the last commit chooses",
    )


def slice_of(text: str) -> tuple[int, int]:
    """Return K and N of K/N, or of the part that the last commit chooses."""
    found = re.fullmatch(r"(COMMIT|[1-9]\d*)/([1-9]\d*)", text)
    if found is None or (found[1] != "COMMIT" and int(found[1]) > int(found[2])):
        raise ArgumentTypeError(f"{text!r} is no part of the tests: write K/N with K from 1 to N, such as 3/12")
    parts = int(found[2])
    if found[1] != "COMMIT":
        return int(found[1]), parts
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise ArgumentTypeError(
            f"git names no last commit of {REPOSITORY} to choose a part: name one of {parts}, such as 3/{parts} "
            f"(--slice 3/{parts}, or SLICE=3/{parts} for make)"
        )
    return int(asked.stdout, 16) % parts + 1, parts


def pytest_report_header(config: pytest.Config) -> str | None:
    number, parts = config.getoption("--slice")
    if parts == 1:
        return None
    return f"slice: {number}/{parts}; again with --slice {number}/{parts}, or SLICE={number}/{parts} for make"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases of a table beyond those that stand for it, and the properties, whose examples have a budget."""
    if table := item.get_closest_marker("table"):
        name = item.nodeid.partition("[")[0]
        _CASES[name] += 1
        if (_CASES[name] - 1) % table.args[0]:
            item.add_marker(pytest.mark.exhaustive)
    if hasattr(getattr(item, "obj", None), "hypothesis"):
        item.add_marker(pytest.mark.drawn)
    if item.config.pluginmanager.hasplugin("xdist"):
        for shared in _SHARED_CLUSTERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(f"shared-{shared}"))


@pytest.hookimpl(trylast=True)  # once the markers have selected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests, which depends on their names alone, and those that every part has."""
    number, parts = config.getoption("--slice")
    # pytest-xdist may have written the group of those that share a cluster behind a name
    names = [re.sub(r"@shared-\w+$", "", each.nodeid) for each in items]
    is_kept = [
        part_of(name, parts) == number - 1 or "merge" in each.keywords for each, name in zip(items, names, strict=True)
    ]
    config.hook.pytest_deselected(items=[each for each, is_in in zip(items, is_kept, strict=True) if not is_in])
    items[:] = [each for each, is_in in zip(items, is_kept, strict=True) if is_in]
    if config.getoption("loadgroup", default=False):
        from tests.groups import name_group

        for each in items:
            name_group(each)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show an expected failure where it was raised: to show all callers takes longer than the test."""
    if call.excinfo is not None and item.get_closest_marker("xfail"):
        call.excinfo.traceback = call.excinfo.traceback[-1:]
    return (yield)


def pytest_collection_finish() -> None:
    """Let Python's collector come seldom, and leave out modules and tests, which last: it took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give out the tests by their groups such that a process that ends takes no run with it."""
    from tests.groups import Groups

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the process, and those it starts, a temporary folder that nobody else writes to."""
    get_loop()  # s3fs opens its event loop once, when it is first needed
    before, folder = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", folder)
        tempfile.tempdir = folder
        yield
    tempfile.tempdir = before


@pytest.fixture(scope="session", autouse=True)
def _no_crash_of_the_machine() -> Iterator[None]:
    """Let the system write to the disk when it likes: a test may kill processes, which lose nothing by it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves open what it opened: a user who calls the same has it open as well.

    A cluster that tests share outlives them, with its connections and threads, and so does Airflow.
    """
    before = held()
    yield
    kept = request.node.get_closest_marker("keeps")
    shared = OF_CLUSTERS if SHARED or "airflow" in request.keywords else ()
    beside = {*shared, *(kept.args if kept else ())}
    if found := left_behind(before, beside=beside):
        names = "; ".join(f"{kind}: {names[:5]}" for kind, names in found.items())
        pytest.fail(f"left behind: {names}\n{_ADVICE}", pytrace=False)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """On small graphs a second thread only makes the first one wait."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
                SHARED[:] = [f"of {config.workers} workers"]
            running[0].dask_client().wait_for_workers(config.workers, timeout=120)
            return running[0]

        yield found


@pytest.fixture(scope="module", autouse=True)
def _blank_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the report's pictures blank: to draw them is a third of a small run, and tests/report does.

    For a whole module, whose fixtures run pipelines too; and in the function itself, whichever modules imported it.
    """
    folder = request.path.relative_to(REPOSITORY / "tests").parts[0]
    if folder in {"report", "helm"} or "draws" in request.node.keywords:
        yield
        return
    from gnnflow.report.pictures import canvas

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(canvas.draw, "__code__", _drawn_blank.__code__)
        yield


def _drawn_blank(key: str, painter: object, *, width: float, height: float) -> str:
    return '<svg viewBox="0 0 1 1"></svg>'


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
