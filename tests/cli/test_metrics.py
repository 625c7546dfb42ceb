"""What a run prints of its metrics."""

from __future__ import annotations

from gnnflow.cli.metrics import show_metrics


def test_figures_end_in_one_column_and_stand_apart_from_long_names(capsys):
    show_metrics({"infer.seconds": 13.35, "train.wait_seconds_per_epoch": 0.0002678, "test.accuracy": 0.5})
    lines = capsys.readouterr().out.splitlines()
    assert "infer.seconds" + "13.35".rjust(24) in lines
    assert "train.wait_seconds_per_epoch  0.0002678" in lines
