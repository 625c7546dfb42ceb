"""docs/tables.md is run as it stands: what a reader pastes must work, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gnnflow.cli.commands import build_app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOWNLOADS = ("pyg:Planetoid", "pyg:Heterophilous", "pyg:PPI")


def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    pytest.importorskip("torch_geometric.datasets", reason="needs gnnflow[pyg]")
    pytest.importorskip("networkx", reason="needs gnnflow[networkx]")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert {language for language, _ in blocks} == {"bash", "python", "text", "yaml"}
    for language, text in blocks:
        if language == "yaml":
            name = text.split("\n", 1)[0].removeprefix("name: ")
            Path(f"{name}.yaml").write_text(text + "cluster: {kind: synchronous}\n")
        elif language == "python":
            exec(compile(text, str(PAGE), "exec"), {})
        elif language == "bash":
            run_commands(text)
    written = {str(path.relative_to(tmp_path / "data").parent) for path in tmp_path.glob("data/*/nodes.parquet")}
    assert written == {"karate", "club", "club-file", "calls", "calls-turned", "payments"}
    typed = {str(path.relative_to(tmp_path / "data").parents[1]) for path in tmp_path.glob("data/*/nodes/*.parquet")}
    assert typed == {"calls-typed", "movies", "payments-typed", "ratings"}


def run_commands(text):
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if any(word.startswith(DOWNLOADS) for word in words):
            continue
        assert words[0] == "gnnflow"
        outcome = CliRunner().invoke(build_app(), words[1:])
        assert outcome.exit_code == 0, outcome.output
