"""The harness gives every benchmark the same options, and shows one table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from harness import Benchmark, Option, Spread, in_turns, missing, run, text_of

TABLE = Benchmark(
    columns=("form", "nodes", "seconds"),
    rows=lambda chosen: [(chosen.form, chosen.max_nodes, 0.25)],
    options={"max_nodes": 1_000, "form": Option("fast", choices=("fast", "FAIL"))},
    small={"max_nodes": 10},
)


def printed(monkeypatch, capsys, *words: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    run(TABLE)
    return capsys.readouterr().out.splitlines()


def test_a_table_has_its_columns_and_rows(monkeypatch, capsys):
    shown = ["| form | nodes | seconds |", "|---|---|---|", "| fast | 1,000 | 0.25 |"]
    assert printed(monkeypatch, capsys) == shown


@pytest.mark.parametrize(("words", "nodes"), [(["--small"], "10"), (["--small", "--max-nodes", "20"], "20")])
def test_small_changes_defaults_alone(monkeypatch, capsys, words, nodes):
    assert printed(monkeypatch, capsys, *words)[-1] == f"| fast | {nodes} | 0.25 |"


def test_the_rows_are_written_as_json_with_the_options(monkeypatch, capsys, tmp_path: Path):
    printed(monkeypatch, capsys, "--json", str(tmp_path / "rows.json"))
    found = json.loads((tmp_path / "rows.json").read_text())
    assert (found["columns"], found["rows"]) == (list(TABLE.columns), [["fast", 1000, 0.25]])
    assert found["options"] == {"max_nodes": "1000", "form": "fast"}


def test_a_figure_that_fails_ends_with_1(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="1"):
        printed(monkeypatch, capsys, "--form", "FAIL")


def test_forms_take_turns_and_the_first_turn_is_not_counted():
    order: list[str] = []
    times = in_turns({name: lambda name=name: order.append(name) for name in "ab"}, repeats=2)
    assert order == ["a", "b"] * 3
    assert [len(each) for each in times.values()] == [2, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1234, "1,234"), (1234.5, "1,234"), (0.12345, "0.123"), ("x", "x"), (Spread([0.5]), "0.5000")],
)
def test_a_value_is_shown_with_three_digits(value, text):
    assert text_of(value) == text


def test_seeds_are_shown_with_their_deviation():
    assert str(Spread([0.8, 0.9])) == "0.8500 +- 0.0707"


def test_needs_that_are_not_there_are_named(tmp_path: Path):
    (tmp_path / "cora").mkdir()
    assert missing(["json", "data/cora", "no_such_module", "data/none"], data=str(tmp_path)) == [
        "no_such_module",
        "data/none",
    ]
