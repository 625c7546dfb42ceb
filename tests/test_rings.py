"""A part of the exhaustive tests is named, and what fails in it fails the run, or is called flaky by name."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests import conftest
from tests.conftest import REPOSITORY, slice_of

ONCE = """
import pathlib, pytest, os

def is_first(name):
    mark = pathlib.Path("first-" + name.encode().hex())
    mark.exists() or mark.touch() or pytest.fail("the first time")
"""


def suite(folder: Path, tests: str, *arguments: str, conftest: str = "") -> subprocess.CompletedProcess[str]:
    """Run .ci/suite on tests in a folder of their own."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [REPOSITORY / ".ci" / "suite", sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(REPOSITORY), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("text", ["0/12", "13/12", "-1/12", "1/0", "3", "x/12", "/12", "COMMIT", "COMMIT/0", ""])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="write K/N with K from 1 to N"):
        slice_of(text)


def test_the_commit_chooses_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho 00000000000000000000000000000000000000ff\n")
    git.chmod(0o755)
    assert slice_of("COMMIT/12") == (255 % 12 + 1, 12)
    assert slice_of("12/12") == (12, 12)


def test_without_a_commit_a_part_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "REPOSITORY", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ArgumentTypeError, match="SLICE=3/12 for make"):
        slice_of("COMMIT/12")


@pytest.mark.slow
def test_a_test_that_fails_twice_fails_the_suite(tmp_path: Path) -> None:
    ended = suite(tmp_path, "def test_fails():\n    assert 0\ndef test_passes():\n    pass")
    assert ended.returncode == 1
    assert "FAILED twice: test_it.py::test_fails\n" in ended.stdout


@pytest.mark.slow
def test_a_test_that_fails_once_is_called_flaky_whatever_its_name(tmp_path: Path) -> None:
    names = ["a b[c]", 'it\'s "q" $HOME `id` *', "a@shared-x", "a::b\n\u00fc]"]
    test = "def test_once(name, record_property):\n    record_property('a', 1)\n    is_first(name)"
    tests = f"{ONCE}@pytest.mark.parametrize('name', {names!r})\n{test}"
    ended = suite(tmp_path, tests)
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("\nFLAKY test_it.py::test_once[") == len(names)


@pytest.mark.slow
def test_a_test_that_is_skipped_the_second_time_did_not_pass(tmp_path: Path) -> None:
    ended = suite(tmp_path, f"{ONCE}def test_it():\n    is_first('it')\n    pytest.skip('now')")
    assert ended.returncode == 1, ended.stdout


@pytest.mark.slow
def test_a_test_that_ends_its_process_with_0_did_not_pass(tmp_path: Path) -> None:
    assert suite(tmp_path, "import os\ndef test_it():\n    os._exit(0)").returncode == 1
    ended = suite(tmp_path, f"{ONCE}def test_it():\n    is_first('it')\n    os._exit(0)")
    assert ended.returncode == 1
    assert "FAILED twice" in ended.stdout


@pytest.mark.slow
def test_a_failure_of_no_test_fails_the_suite(tmp_path: Path) -> None:
    fails = "def pytest_sessionfinish(session):\n    session.exitstatus = 1"
    ended = suite(tmp_path, "def test_passes():\n    pass", conftest=fails)
    assert ended.returncode == 1
    assert "named no test" in ended.stderr


@pytest.mark.slow
def test_the_run_goes_on_where_a_test_ends_its_process(tmp_path: Path) -> None:
    tests = "import os\ndef test_ends():\n    os._exit(0)\n" + "".join(f"def test_{i}(): pass\n" for i in range(6))
    scheduler = "from tests.conftest import pytest_xdist_make_scheduler"
    ended = suite(tmp_path, tests, "--numprocesses", "2", "--dist", "loadgroup", conftest=scheduler)
    assert ended.returncode == 1
    assert "1 failed, 6 passed" in ended.stdout


@pytest.mark.slow
def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    """Finds a pytest under which the group is lost: nothing would fail, and each process would start each cluster."""
    conftest = (
        "import pytest\nfrom tests.conftest import pytest_xdist_make_scheduler\nfrom tests.groups import name_group\n"
        "@pytest.hookimpl(trylast=True)\ndef pytest_collection_modifyitems(items):\n    list(map(name_group, items))"
    )
    test = "def test_it(of):\n    pathlib.Path(f'{of}-{os.getpid()}').touch()"
    tests = f"{ONCE}@pytest.mark.xdist_group('shared-a')\n@pytest.mark.parametrize('of', list('aaaaaa'))\n{test}"
    ended = suite(tmp_path, tests, "--numprocesses", "2", "--dist", "loadgroup", conftest=conftest)
    assert ended.returncode == 0, ended.stdout
    assert len(list(tmp_path.glob("a-*"))) == 1
