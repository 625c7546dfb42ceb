"""The page of first steps is run as it stands, and check and run end alike on a config with mistakes."""

from __future__ import annotations

import json
import re
import shlex

from typer.testing import CliRunner

from gnnflow.cli.commands import build_app
from gnnflow.graph.errors import ConfigError, GnnflowError
from tests.conftest import REPOSITORY

_PAGE = REPOSITORY / "docs" / "first-steps.md"
_STOPPED = 2


def test_the_page_of_first_steps_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```bash\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    for line in block.splitlines():
        outcome = CliRunner().invoke(build_app(), shlex.split(line, comments=True)[1:])
        assert outcome.exit_code == 0, outcome.output
    assert "Nothing that can be seen" in outcome.output


def test_check_prints_all_mistakes_and_run_refuses_with_them_before_a_worker_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f,label,split\n0,1.5,0,train\n1,2.5,1,valid\n")
    (tmp_path / "edges.csv").write_text("sender,receiver\n0,1\n1,0\n")
    (tmp_path / "config.yaml").write_text(
        "name: small\ngraph: {nodes: nodes.csv, edges: edges.csv, features: [f]}\nepochs: 3\n"
    )
    outcome = CliRunner().invoke(build_app(), ["check", "config.yaml"])
    assert outcome.exit_code == _STOPPED
    for line in ("epochs: unknown key", "`graph: {src: sender}`", "`graph: {dst: receiver}`", "3 things would stop"):
        assert line in outcome.output
    outcome = CliRunner().invoke(build_app(), ["check", "config.yaml", "--json"])
    assert [stop["kind"] for stop in json.loads(outcome.stdout)["stops"]] == ["ConfigError", "TableError", "TableError"]
    outcome = CliRunner().invoke(build_app(), ["run", "config.yaml", "--set", "cluster.kind=local"])
    assert isinstance(outcome.exception, GnnflowError)
    assert "3 things would stop this run" in str(outcome.exception)
    assert not (tmp_path / "runs" / "artifacts").exists()


def test_init_keeps_a_file_that_is_there(tmp_path):
    (tmp_path / "config.yaml").write_text("name: mine\n")
    outcome = CliRunner().invoke(build_app(), ["init", "nodes.csv", "--out", str(tmp_path / "config.yaml")])
    assert isinstance(outcome.exception, ConfigError)
    assert "exists already" in str(outcome.exception)
    assert (tmp_path / "config.yaml").read_text() == "name: mine\n"
