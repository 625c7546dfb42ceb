"""Whatever goes wrong arrives as one message, or as two lines about a bug with a log; --json prints it as an object."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.cli import main
from tests.small_graphs import write_graph


def run_cli(*argv: str) -> int:
    before = sys.argv
    sys.argv = ["gnnflow", *argv]
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_graph(tmp_path)
    content = {
        "name": "small",
        "workspace": str(tmp_path / "runs"),
        "graph": {"nodes": str(tmp_path / "nodes.parquet"), "edges": str(tmp_path / "edges.parquet"), "partitions": 2},
        "train": {"epochs": 2},
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


def test_an_unforeseen_error_is_two_lines_and_a_log(config, logs, capsys, monkeypatch):
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("content-of-a-row")))
    assert run_cli("run", str(config)) == 1
    shown = capsys.readouterr()
    first, second = shown.err.splitlines()
    assert first == "error: this is a bug of gnnflow (KeyError); what was finished is kept"
    (log,) = logs.iterdir()
    assert str(log) in second
    assert "Traceback" in log.read_text()
    assert "content-of-a-row" not in shown.err
    assert shown.out == ""
    assert log.stat().st_mode & 0o077 == 0


def test_the_traceback_is_shown_where_it_is_asked_for(config, logs, capsys, monkeypatch):
    monkeypatch.setenv("GNNFLOW_DEBUG", "1")
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("x")))
    assert run_cli("run", str(config)) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_is_said(config, logs, capsys, monkeypatch):
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(KeyError("x")))
    monkeypatch.setattr(tempfile, "mkstemp", raising(OSError(errno.ENOSPC, "full")))
    assert run_cli("run", str(config)) == 1
    assert "GNNFLOW_DEBUG=1" in capsys.readouterr().err


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
def test_json_holds_the_error(error, expected, config, capsys, monkeypatch):
    code, words = expected
    monkeypatch.setattr("gnnflow.stages.base.resolve", raising(error))
    assert run_cli("run", str(config), "--json") == code
    shown = json.loads(capsys.readouterr().out)
    assert list(shown) == ["error"]
    assert set(shown["error"]) == {"kind", "where", "problem", "fix"}
    assert words in shown["error"]["problem"]


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
def test_arguments_are_refused_in_one_line(argv, words, as_json, logs, capsys):
    assert run_cli(*argv, *(["--json"] if as_json and argv[0] != "bogus" else [])) == 2
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert "TOKEN@" not in line
    assert list(logs.iterdir()) == []
    if as_json and argv[0] != "bogus":
        assert words in json.loads(shown.out)["error"]["problem"]


def test_a_config_that_is_not_text_is_refused(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("name: a", encoding="utf-16")
    assert run_cli("run", str(tmp_path / "c.yaml")) == 2
    assert "not UTF-8" in capsys.readouterr().err


def without(column: str, folder: Path) -> None:
    table = pq.read_table(folder / "nodes.parquet")
    pq.write_table(table.drop_columns([column]), folder / "nodes.parquet")


@pytest.mark.parametrize("command", ["run", "run --json"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: without("label", folder), "graph.label"),
        (lambda folder: without("split", folder), "graph.split"),
        (
            lambda folder: pq.write_table(
                pq.read_table(folder / "nodes.parquet")
                .drop_columns(["label"])
                .append_column("label", pa.array(np.linspace(0.1, 0.9, 60))),
                folder / "nodes.parquet",
            ),
            "accuracy is not defined for regression labels",
        ),
        (lambda folder: (folder / "runs").write_text(""), "workspace cannot be written"),
    ],
    ids=["no label", "no split", "metric", "workspace is a file"],
)
def test_what_is_known_beforehand_is_said_before_the_first_stage(spoil, words, command, config, capsys):
    spoil(config.parent)
    before = {file for file in config.parent.rglob("*") if file.is_file()}
    name, *flags = command.split()
    assert run_cli(name, str(config), *flags) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert "ingest: started" not in shown.err
    assert {file for file in config.parent.rglob("*") if file.is_file()} == before


def test_stages_that_need_no_labels_run_without(config, capsys):
    without("label", config.parent)
    without("split", config.parent)
    assert run_cli("ingest", str(config)) == 0


def test_a_layer_of_ones_own_that_raises_is_named_with_its_line(config, logs, capsys, monkeypatch):
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
    assert run_cli("run", str(config), "--set", "model.kind=careless_layer:Careless") == 2
    shown = capsys.readouterr().err
    assert "careless_layer.py, line 7" in shown
    assert "KeyError" in shown
