"""A run that is not complete is told apart by its note: at work, failed with its problem, or stopped."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from gnnflow.cli.run_table import age_text, table_lines
from gnnflow.graph.errors import TrainingError
from gnnflow.storage.attempts import ATTEMPT, kept_attempt, list_attempts
from gnnflow.storage.workspace import Workspace


def test_a_run_is_running_until_its_block_ends(tmp_path: Path):
    workspace = Workspace.at(str(tmp_path))
    run = workspace.run("small", "f" * 16)
    with kept_attempt(run):
        (found,) = list_attempts(workspace)
        assert (found.name, found.uri, found.status, found.problem) == ("small", run, "running", "")
    assert list_attempts(workspace) == []


def test_a_failed_run_keeps_its_problem_without_secrets_and_an_interrupted_one_none(tmp_path: Path):
    workspace = Workspace.at(str(tmp_path))
    with pytest.raises(TrainingError), kept_attempt(workspace.run("lost", "a" * 16)):
        raise TrainingError("the loss is nan", where="https://TOKEN@host/n", fix="Lower train.lr.")
    with pytest.raises(KeyboardInterrupt), kept_attempt(workspace.run("left", "b" * 16)):
        raise KeyboardInterrupt
    found = {each.name: each for each in list_attempts(workspace)}
    assert [found["lost"].status, found["left"].status] == ["failed", "stopped"]
    assert "the loss is nan. Lower train.lr." in found["lost"].problem
    assert "TOKEN" not in found["lost"].problem
    head, *lines = table_lines([], [found["lost"], found["left"]])
    assert head.split() == ["NAME", "AGE", "STATUS", "SCORE", "RUN"]
    assert any(line.startswith("  ") and "the loss is nan" in line for line in lines)


def test_a_run_whose_process_is_gone_was_stopped(tmp_path: Path):
    workspace = Workspace.at(str(tmp_path))
    run = workspace.run("killed", "c" * 16)
    with kept_attempt(run):
        note = Path(run, ATTEMPT)
        held = json.loads(note.read_text())
        note.write_text(json.dumps({**held, "pid": 2**22 + 1}))  # above any pid of Linux
        expected = "stopped" if held["place"] else "running"
        assert [each.status for each in list_attempts(workspace)] == [expected]


def test_a_complete_or_read_only_run_gets_no_note(tmp_path: Path):
    run = Workspace.at(str(tmp_path)).run("done", "d" * 16)
    Path(run).mkdir(parents=True)
    Path(run, "run.json").write_text("{}")
    with suppress(ValueError), kept_attempt(run):
        raise ValueError
    assert not Path(run, ATTEMPT).exists()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59, "59 s"), (150, "2 min"), (3700, "1 hour"), (2e5, "2 days")]
)
def test_an_age_has_its_largest_unit(seconds, text):
    assert age_text(seconds) == text
