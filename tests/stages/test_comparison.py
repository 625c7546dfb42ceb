"""Validation chooses among runs, and test is reported."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from gnnflow.stages.comparison import ComparisonResult, compare_runs


def compare(
    folder: Path, metric: str = "accuracy", failed: dict[str, str] | None = None, **runs: dict[str, float]
) -> ComparisonResult:
    record = {"config": {"train": {"metric": metric}}, "artifacts": {}, "name": "tiny", "store": ""}
    for label, metrics in runs.items():
        (folder / label).mkdir()
        (folder / label / "metrics.json").write_text(json.dumps(metrics))
        (folder / label / "run.json").write_text(json.dumps(record))
    return compare_runs(
        {label: str(folder / label) for label in runs}, name="sweep", workspace=str(folder), failed=failed
    )


def test_runs_that_failed_are_listed_last(tmp_path: Path) -> None:
    result = compare(tmp_path, failed={"broken": "the <loss> is nan"}, sound={"valid.accuracy": 0.8})
    assert order(result) == ["sound", "broken"]
    assert result.order == ("sound",)
    assert result.lines[-1] == "broken  failed: the <loss> is nan"
    page = Path(result.page).read_text()
    assert "failed: the &lt;loss&gt; is nan" in page
    assert "sound is best of 1 runs" in page


def order(result: ComparisonResult) -> list[str]:
    return [row["run"] for row in csv.DictReader(Path(result.table).read_text().splitlines())]


def test_validation_chooses_and_test_is_reported(tmp_path: Path) -> None:
    result = compare(
        tmp_path,
        lucky={"valid.accuracy": 0.7, "test.accuracy": 0.9},
        sound={"valid.accuracy": 0.8, "test.accuracy": 0.75},
    )
    assert order(result) == ["sound", "lucky"]
    assert result.lines[0].split() == ["run", "valid.accuracy", "test.accuracy"]
    assert result.lines[1].split() == ["sound", "0.800", "0.750"]
    page = Path(result.page).read_text()
    assert "sound is best of 2 runs: its valid accuracy is 0.800; test accuracy is 0.750." in page
    assert "Valid accuracy by run" in page or "valid accuracy by run" in page


def test_a_lower_validation_error_is_better(tmp_path: Path) -> None:
    result = compare(
        tmp_path,
        metric="loss",
        first={"valid.rmse": 0.5, "test.rmse": 0.1},
        second={"valid.rmse": 0.4, "test.rmse": 0.6},
    )
    assert order(result) == ["second", "first"]


def test_without_validation_no_run_is_called_best(tmp_path: Path) -> None:
    result = compare(tmp_path, worse={"test.accuracy": 0.1}, better={"test.accuracy": 0.9})
    assert order(result) == ["better", "worse"]  # by name: test does not choose
    page = Path(result.page).read_text()
    assert "No run is called best of 2" in page
    assert "is best of" not in page
    other = compare(tmp_path, a={"test.accuracy": 0.1}, b={"test.accuracy": 0.9})
    assert order(other) == ["a", "b"]
