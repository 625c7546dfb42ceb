"""What a run prints of its metrics."""

from __future__ import annotations

from gnnflow.cli.commands import show_metrics


def test_figures_end_in_one_column_and_stand_apart_from_long_names(capsys):
    show_metrics({"infer.seconds": 13.35, "train.wait_seconds_per_epoch": 0.0002678, "test.accuracy": 0.5})
    lines = capsys.readouterr().out.splitlines()
    assert "infer.seconds" + "13.35".rjust(24) in lines
    assert "train.wait_seconds_per_epoch  0.0002678" in lines


def test_errors_in_a_large_unit_stand_apart(capsys):
    errors = {"train.mae": 27069.06, "valid.mae": 28083.4, "test.mae": 27591.29, "baseline.test.mae": 300311.57}
    show_metrics({**errors, "test.mae_low": 25750.9, "test.mae_high": 29443.06, "train.epochs": 60})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["train", "valid", "test"],
        ["mae", "27,069.1", "28,083.4", "27,591.3", "(25,750.9", "to", "29,443.1)"],
        ["mae", "without", "edges", "300,311.6"],
        ["train.epochs", "60"],
    ]
    ends = ("test", "27,591.3", "300,311.6")
    assert len({line.index(end) + len(end) for line, end in zip(lines[:3], ends, strict=True)}) == 1
