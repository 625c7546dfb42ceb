"""Progress is one readable line a bar, also at 80 columns, and shows no secret."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gnnflow.cli.progress import Lines, Terminal
from gnnflow.progress import place_text
from gnnflow.remote.task_log import TaskLog

FIGURES = {"train_loss": 0.534123, "valid_accuracy": 0.81234, "epochs_per_second": 12.345, "seconds_left": 1234.5}


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["train", "parity_select_frontier_of_neighbourhoods"])
def test_a_bar_is_one_line(width, name):
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=True, color_system=None)
    shown = Terminal(console)
    shown.step(name, 37, 20_000, FIGURES)
    shown.round_started("rounds", 128, 0)
    shown.task_finished("rounds", 0, {})
    with console.capture() as captured:
        console.print(shown.bars.get_renderable())
    lines = captured.get().rstrip("\n").split("\n")
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        assert "37/20000 steps" in lines[0]
        assert "1/128 tasks" in lines[1]
    if width >= 80 and name == "train":
        assert "train loss 0.5341" in lines[0]
        assert "…" not in "".join(lines)


def test_a_message_is_shown_as_it_is_but_for_secrets(capsys):
    Lines().message("took [all] of https://TOKEN@host/n?sig=TOKEN")
    assert capsys.readouterr().err == "took [all] of https://...@host/n?sig=...\n"


def test_the_side_that_waits_is_one_phrase(capsys):
    lines = Lines()
    lines.step("train", 5, 5, {"reader_waits_percent": 40.4, "samples_per_second": 1234.5})
    assert capsys.readouterr().err == (
        "train: 5 of 5 steps, reading stands still 40 % of the time, as batches are ready early, "
        "1,234 targets per second\n"
    )


def test_a_line_of_training_says_the_epoch_the_metric_and_what_is_left(capsys):
    fields = {"epoch": 3, "epochs": 60, "train_loss": 0.5341, "valid_roc_auc": 0.81, "eta_seconds": 12.3}
    Lines().step("train", 50, 1200, fields)
    assert capsys.readouterr().err == (
        "train: 50 of 1,200 steps, epoch 3 of 60, train loss 0.5341, valid roc auc 0.81, about 12 s left\n"
    )


def test_a_round_is_told_in_words(capsys):
    lines = Lines()
    lines.round_started("need_3", 4, 1)
    lines.task_finished("need_3", 0, {"rows": 1025, "sources": 2298})
    assert capsys.readouterr().err == (
        "find rows for layer 3: 1 of 4 tasks were already done\n"
        "find rows for layer 3: 2 of 4 tasks done, the last one with 1,025 rows, 2,298 sources\n"
    )


def test_a_task_log_says_what_is_counted_and_what_is_validated():
    said: list[str] = []
    figures = {"train_loss": 0.5, "valid_roc_auc": 0.98, "samples_per_second": 2125.6, "eta_seconds": 3.0}
    TaskLog(said.append).step("train", 263, 263, figures)
    assert said == [
        "/train: 263 of 263 steps, train loss 0.5, valid roc auc 0.98, 2,126 targets per second, about 3 s left"
    ]


def test_a_task_log_ends_a_stage_with_its_rows_and_the_largest_memory_of_a_process():
    said: list[str] = []
    log = TaskLog(said.append)
    for memory in (300, 512, 200):
        log.count_memory(memory * 2**20)
    log.outcome("ingest", {"reused": False, "rows_in": 2708, "rows_out": 2700, "rows_quarantined": 8})
    log.outcome("ingest", {"reused": True, "rows_in": 2708, "rows_out": 2700, "rows_quarantined": 8})
    log.outcome("run", {"predictions": "somewhere"})
    assert said == [
        "ingest: 2,708 rows in, 2,700 rows out, 8 rows in quarantine, at most 512 MiB of memory in one process",
        "run: at most 512 MiB of memory in one process",
    ]


def test_places_in_training_count_from_one():
    assert place_text(0, 0) == "epoch 1, step 1"
    assert place_text(2, 4) == "epoch 3, step 5"
