"""The page of first steps is run as it stands, and check and run end alike on a config with mistakes."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from gnnflow.cli.commands import build_app
from gnnflow.graph.errors import ConfigError, GnnflowError
from gnnflow.stages import check, resolve
from tests.command_line import run_block
from tests.conftest import REPOSITORY

_PAGE = REPOSITORY / "docs" / "first-steps.md"
_STOPPED = 2


@pytest.mark.parametrize("number", [0, 1], ids=["accounts", "shop"])
def test_the_page_of_first_steps_runs_from_top_to_bottom(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"```bash\n(.*?)```", _PAGE.read_text(), re.DOTALL)[number]
    shown = run_block(block)
    assert "Nothing that can be seen" in shown["check"]
    # better than a guess: the columns and the edges that init chose tell something of the label
    (test,) = re.findall(r"^roc_auc +(?:[\d.]+ +){2}([\d.]+)", shown["run"], re.MULTILINE)
    assert float(test) > 0.65


def test_check_prints_all_mistakes_and_run_refuses_with_them_before_a_worker_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f,label,split\n0,1.5,0,train\n2,3.5,1,train\n1,2.5,1,valid\n")
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


def test_run_looks_at_the_tables_once_before_its_first_stage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f,label,split\n0,1.5,0,train\n0,2.5,1,valid\n")
    (tmp_path / "edges.csv").write_text("src,dst\n0,0\n")
    (tmp_path / "config.yaml").write_text("name: small\ngraph: {nodes: nodes.csv, edges: edges.csv, features: [f]}\n")
    looks = []
    for module, name in ((resolve, "stamps_of"), (check, "preview_of")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, real=real, **k: looks.append(name) or real(*a, **k))
    outcome = CliRunner().invoke(build_app(), ["run", "config.yaml"])
    assert "2 things would stop this run" in str(outcome.exception)
    assert looks == ["stamps_of", "preview_of"]


_MISTAKES = {
    "config": ("--set epochs=3: unknown key", "publish.name: the environment variable GNNFLOW_NO_SUCH is not set"),
    "tables": ("`graph: {src: sender}`", "`graph: {dst: receiver}`"),
    "labels": ("train.metric: mae",),
    "machine": ("train.scratch: '/no/such/folder'",),
}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("plan", {"config", "tables", "labels", "machine"}),
        ("ingest", {"config", "tables", "labels"}),
        ("train", {"config", "tables", "labels", "machine"}),
        ("score", {"config"}),
    ],
)
def test_every_command_tells_all_mistakes_of_a_config_at_once(tmp_path, monkeypatch, command, told):
    """Also those that stop a later stage; not those of a machine on which another stage may run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f,label,split\n0,1.5,a,train\n2,3.5,b,train\n1,2.5,b,valid\n")
    (tmp_path / "edges.csv").write_text("sender,receiver\n0,1\n1,0\n")
    graph = "graph: {nodes: nodes.csv, edges: edges.csv, features: [f]}"
    train = "train: {strategy: global-batch, metric: mae, memory: 1GiB, scratch: /no/such/folder}"
    (tmp_path / "config.yaml").write_text(f"name: small\n{graph}\n{train}\n")
    wrong = ("--set", "epochs=3", "--set", "publish.name=${GNNFLOW_NO_SUCH}")
    for said, words in ((told, wrong), (told - {"config"}, ())):
        if not said:
            continue
        shown = str(CliRunner().invoke(build_app(), [command, "config.yaml", *words]).exception)
        parts = {part: kind in said for kind, parts in _MISTAKES.items() for part in parts}
        assert {part: part in shown for part in parts} == parts, shown
    assert not (tmp_path / "runs" / "artifacts").exists()


def test_a_stage_that_needs_no_labels_asks_for_none_and_a_later_one_reads_no_table_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f\n0,1.5\n2,3.5\n1,2.5\n")
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n1,0\n")
    (tmp_path / "config.yaml").write_text("name: bare\ngraph: {nodes: nodes.csv, edges: edges.csv, features: [f]}\n")
    shown = str(CliRunner().invoke(build_app(), ["ingest", "config.yaml", "--set", "graph.features=[g]"]).exception)
    assert "no column 'g'" in shown
    assert "nothing can be trained" not in shown
    assert CliRunner().invoke(build_app(), ["ingest", "config.yaml"]).exit_code == 0
    monkeypatch.setattr(check, "preview_of", lambda *_, **__: pytest.fail("the tables are ingested"))
    shown = str(CliRunner().invoke(build_app(), ["train", "config.yaml", "--set", "train.lr=fast"]).exception)
    assert "--set train.lr=fast: 'fast' is not allowed" in shown
    assert "nothing can be trained" in shown


def test_init_keeps_a_file_that_is_there(tmp_path):
    (tmp_path / "config.yaml").write_text("name: mine\n")
    outcome = CliRunner().invoke(build_app(), ["init", "nodes.csv", "--out", str(tmp_path / "config.yaml")])
    assert isinstance(outcome.exception, ConfigError)
    assert "exists already" in str(outcome.exception)
    assert (tmp_path / "config.yaml").read_text() == "name: mine\n"


def test_a_run_without_a_config_file_names_the_options_to_type(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("id,f\n0,1.5\n2,3.5\n1,2.5\n")
    (tmp_path / "edges.csv").write_text("sender,receiver\n0,1\n1,0\n")
    line = ["flat", "-n", "nodes.csv", "-e", "edges.csv", "--set", "graph.features=[f]"]
    shown = str(CliRunner().invoke(build_app(), line).exception)
    assert "`--set graph.src=sender`" in shown
    assert "`graph: {" not in shown
    options = ["--set", "graph.src=sender", "--set", "graph.dst=receiver", "--workspace", "runs"]
    assert CliRunner().invoke(build_app(), [*line, *options]).exit_code == 0
