"""Whatever goes wrong arrives as one message, or as two lines about a bug with a log; --json prints it as an object."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow import __version__, cluster
from tests.command_line import run_cli
from tests.conftest import REPOSITORY
from tests.robustness.case import refusal_faults
from tests.small_graphs import write_graph


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_graph(tmp_path)
    content = {
        "name": "small",
        "workspace": str(tmp_path / "runs"),
        "graph": {"nodes": str(tmp_path / "nodes.parquet"), "edges": str(tmp_path / "edges.parquet"), "partitions": 2},
        "train": {"epochs": 2, "metric": "accuracy"},
        "cluster": {"kind": "synchronous"},
    }
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.delenv("GNNFLOW_DEBUG", raising=False)
    return folder


def raising(error: Exception):
    def raise_it(*_, **__):
        raise error

    return raise_it


def test_an_unforeseen_error_is_two_lines_and_a_log(config, logs, monkeypatch):
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("content-of-a-row")))
    shown = run_cli(["run", str(config)])
    assert shown.code == 1
    first, second = shown.err.splitlines()
    assert first == "error: this is a bug of gnnflow (KeyError); what was finished is kept"
    (log,) = logs.iterdir()
    assert str(log) in second
    assert "Traceback" in log.read_text()
    assert "content-of-a-row" not in shown.err
    assert shown.out == ""
    assert log.stat().st_mode & 0o077 == 0


def test_the_traceback_is_shown_where_it_is_asked_for(config, logs, monkeypatch):
    monkeypatch.setenv("GNNFLOW_DEBUG", "1")
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("x")))
    shown = run_cli(["run", str(config)])
    assert shown.code == 1
    assert "Traceback" in shown.err


def test_a_log_that_cannot_be_written_is_said(config, logs, monkeypatch):
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("x")))
    monkeypatch.setattr(tempfile, "mkstemp", raising(OSError(errno.ENOSPC, "full")))
    shown = run_cli(["run", str(config)])
    assert shown.code == 1
    assert "GNNFLOW_DEBUG=1" in shown.err


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("x"), (1, "bug of gnnflow")),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/some/place"), (2, "no space left on device")),
        (MemoryError(), (2, "not enough memory")),
        (RecursionError("x"), (1, "bug of gnnflow")),
    ],
)
@pytest.mark.usefixtures("logs")
def test_json_holds_the_error(error, expected, config, monkeypatch):
    code, words = expected
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(error))
    shown = run_cli(["run", str(config), "--json"])
    assert shown.code == code
    printed = json.loads(shown.out)
    assert list(printed) == ["error"]
    assert set(printed["error"]) == {"kind", "where", "problem", "fix"}
    assert words in printed["error"]["problem"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["run"], "Missing argument 'CONFIG'"),
        (["run", "x.yaml", "--bogus"], "No such option"),
        (["flat", "--hops", "x"], "'--hops'"),
        (["run", "x\0y"], "control character"),
        (["run", "https://TOKEN@example.com/c.yaml"], "token before the @"),
        (["run", "/dev/zero"], "is not a file"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_arguments_are_refused_in_one_line(argv, words, as_json, logs):
    shown = run_cli([*argv, *(["--json"] if as_json and argv[0] != "bogus" else [])])
    assert shown.code == 2
    (line,) = shown.err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert "TOKEN@" not in line
    assert list(logs.iterdir()) == []
    if as_json and argv[0] != "bogus":
        assert words in json.loads(shown.out)["error"]["problem"]


def test_a_config_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "c.yaml").write_text("name: a", encoding="utf-16")
    shown = run_cli(["run", str(tmp_path / "c.yaml")])
    assert shown.code == 2
    assert "not UTF-8" in shown.err


def without(column: str, folder: Path) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    pq.write_table(table.drop_columns([column]), folder / "nodes.parquet")


@pytest.mark.parametrize("command", ["run", "run --json"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: without("label", folder), "graph.label"),
        (
            lambda folder: pq.write_table(
                pq.read_table(folder / "nodes.parquet")
                .drop_columns(["label"])
                .append_column("label", pa.array(np.linspace(0.1, 0.9, 60))),
                folder / "nodes.parquet",
            ),
            "holds floats, numbers to predict, and train.metric is accuracy",
        ),
        (lambda folder: (folder / "runs").write_text(""), "workspace cannot be written"),
    ],
    ids=["no label", "metric", "workspace is a file"],
)
def test_what_is_known_beforehand_is_said_before_the_first_stage(spoil, words, command, config):
    spoil(config.parent)
    before = {file for file in config.parent.rglob("*") if file.is_file()}
    name, *flags = command.split()
    shown = run_cli([name, str(config), *flags])
    assert shown.code == 2
    assert words in shown.err
    assert "ingest: started" not in shown.err
    assert {file for file in config.parent.rglob("*") if file.is_file()} == before


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_said_and_nothing_is_left(config, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1)
    before = {file for file in config.parent.rglob("*") if file.is_file()}
    address = ["--set", "cluster.kind=address", "--set", "cluster.address=tcp://127.0.0.1:9"]
    shown = run_cli(["ingest", str(config), *address])
    assert shown.code == 2
    assert refusal_faults(shown, ("tcp://127.0.0.1:9", "dask scheduler")) == []
    assert {file for file in config.parent.rglob("*") if file.is_file()} == before


def test_stages_that_need_no_labels_run_without(config):
    without("label", config.parent)
    without("split", config.parent)
    assert run_cli(["ingest", str(config)]).code == 0


def test_a_layer_of_ones_own_that_raises_is_named_with_its_line(config, logs, monkeypatch):
    (config.parent / "careless_layer.py").write_text(
        "from gnnflow.layers import GCN\n"
        "class Careless(GCN):\n"
        "    @classmethod\n"
        "    def from_config(cls, config, place):\n"
        "        return cls(place.in_width, place.width)\n"
        "    def transform(self, h, node):\n"
        "        return {}['missing']\n"
    )
    monkeypatch.syspath_prepend(config.parent)
    shown = run_cli(["run", str(config), "--set", "model.kind=careless_layer:Careless"])
    assert shown.code == 2
    assert "careless_layer.py, line 7" in shown.err
    assert "KeyError" in shown.err


def test_models_are_looked_for_in_the_workspace_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("GNNFLOW_WORKSPACE", str(tmp_path / "elsewhere"))
    shown = run_cli(["models", "show", "mine"])
    assert shown.code == 2
    assert str(tmp_path / "elsewhere") in shown.err


@pytest.mark.parametrize("module", ["gnnflow", "gnnflow.cli"])
def test_both_packages_run_as_modules(module):
    asked = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (done.returncode, done.stdout) == (0, f"gnnflow {__version__}\n")


def test_a_library_is_told_no_secret_that_it_could_tell_of(logs, monkeypatch):
    monkeypatch.setenv("GNNFLOW_DEBUG", "1")
    shown = run_cli(["report", "s3://AKIA:s3cr3t@bucket/runs"])
    assert shown.code == 2
    assert "holds a user and password" in shown.message
    assert "s3cr3t" not in shown.err
