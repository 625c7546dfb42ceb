"""Validation chooses among variants, seeds give their spread, and test is reported."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gnnflow.config.matrix import RunRow
from gnnflow.stages.comparison import ComparisonResult, compare_runs

Scores = dict[str, float]


def compare(folder: Path, metric: str = "accuracy", **variants: Scores | list[Scores | str]) -> ComparisonResult:
    """Compare variants by name: the scores of their one run, or of each seed, where a text says why it failed."""
    record = {"config": {"train": {"metric": metric}}, "artifacts": {}, "name": "tiny", "store": ""}
    rows, runs, broken = [], {}, {}
    for variant, held in variants.items():
        for seed, scores in enumerate(held if isinstance(held, list) else [held]):
            label = f"{variant} seed={seed}" if isinstance(held, list) else variant
            rows.append(RunRow(label, variant, {"kind": variant}, seed))
            if isinstance(scores, str):
                broken[label] = scores
                continue
            runs[label] = str(folder / label)
            (folder / label).mkdir()
            (folder / label / "metrics.json").write_text(json.dumps(scores))
            (folder / label / "run.json").write_text(json.dumps(record))
    return compare_runs(rows, runs, name="sweep", workspace=str(folder), failed=broken)


def valid(*scores: float | str) -> list[Scores | str]:
    return [score if isinstance(score, str) else {"valid.accuracy": score} for score in scores]


def order(result: ComparisonResult) -> list[str]:
    return [row["kind"] for row in read(result.table)]


def read(table: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(table).read_text().splitlines()))


def test_runs_that_failed_are_listed_last(tmp_path: Path) -> None:
    result = compare(tmp_path, broken=["the <loss> is nan"], sound=valid(0.8))
    assert order(result) == ["sound", "broken"]
    assert "broken seed=0  failed: the <loss> is nan" in result.lines
    page = Path(result.page).read_text()
    assert "failed: the &lt;loss&gt; is nan" in page
    assert result.verdict.startswith("Of 2 variants only sound has a score (1 of 2 runs failed): its valid accuracy is")
    assert result.verdict in page


def test_only_variants_with_a_score_are_what_the_best_is_best_of(tmp_path: Path) -> None:
    result = compare(tmp_path, a=valid(0.9, 0.8), b=valid(0.7, "out of memory"), c=["nan", "nan"])
    assert result.verdict.startswith("a is best of 2 variants (3 of 6 runs failed): its mean valid accuracy is 0.850")


def test_rows_of_runs_link_to_reports_of_the_same_workspace(tmp_path: Path) -> None:
    result = compare(tmp_path, **{"a #1": valid(0.8), "b": valid(0.7)})
    page = Path(result.page).read_text()
    for report in ("a%20%231%20seed%3D0/report.html", "b%20seed%3D0/report.html"):
        assert f'<a target="_blank" href="../../../{report}">report</a>' in page


def test_validation_chooses_and_test_is_reported(tmp_path: Path) -> None:
    result = compare(
        tmp_path,
        lucky={"valid.accuracy": 0.7, "test.accuracy": 0.9},
        sound={"valid.accuracy": 0.8, "test.accuracy": 0.75},
    )
    assert order(result) == ["sound", "lucky"]
    assert result.lines[0].split() == ["kind", "valid.accuracy", "test.accuracy", "seeds"]
    assert result.lines[1].split() == ["sound", "0.800", "0.750", "1"]
    page = Path(result.page).read_text()
    assert "sound is best of 2 variants: its valid accuracy is 0.800; test accuracy is 0.750." in page
    assert "One seed does not show noise" in page
    assert "Valid accuracy by variant" in page


def test_a_variant_is_ranked_by_its_mean_and_shown_with_its_spread(tmp_path: Path) -> None:
    result = compare(tmp_path, lucky=valid(0.5, 0.9, 0.7), steady=valid(0.78, 0.8, 0.82))
    first, second = read(result.table)
    assert (first["kind"], first["seeds"], float(first["valid.accuracy"])) == ("steady", "3", pytest.approx(0.8))
    assert float(first["valid.accuracy deviation"]) == pytest.approx(0.02)
    assert float(second["valid.accuracy deviation"]) == pytest.approx(0.2)
    assert [(row["variant"], row["seed"]) for row in read(result.runs_table)[:3]] == [
        ("steady", "0"),
        ("steady", "1"),
        ("steady", "2"),
    ]
    assert result.lines[1].split() == ["steady", "0.800", "+-", "0.020", "3"]
    assert "0.800 ± 0.020" in Path(result.page).read_text()


def test_the_mean_says_over_how_many_seeds_and_why_one_is_missing(tmp_path: Path) -> None:
    result = compare(tmp_path, a=valid(0.8, "out of memory", 0.9), b=valid(0.7, 0.6, 0.5))
    assert read(result.table)[0]["failed"] == "1"
    assert result.lines[1].split()[-3:] == ["2", "of", "3"]
    assert "a seed=1  failed: out of memory" in result.lines
    assert "2 of 3 seeds" in result.verdict
    page = Path(result.page).read_text()
    assert "failed: out of memory" in page
    assert ">2 of 3<" in page
    assert result.difference is not None
    assert result.difference.seeds == 2  # those that both have


def test_a_best_score_of_one_seed_of_several_says_so(tmp_path: Path) -> None:
    result = compare(tmp_path, a=valid(0.9, "out of memory"), b=valid(0.7, 0.6))
    assert "its valid accuracy is 0.900 (1 of 2 seeds)" in result.verdict


@pytest.mark.parametrize(
    ("best", "second", "words"),
    [
        ((0.90, 0.91, 0.92), (0.80, 0.82, 0.81), "It differs from the second, second, beyond the noise of seeds"),
        (
            (0.90, 0.80, 0.92),
            (0.85, 0.86, 0.87),
            "It does not differ from the second, second, beyond the noise of seeds",
        ),
        ((0.90, "failed", 0.92), (0.85, 0.86, "failed"), "fewer than two seeds in common"),
        ((0.5, 0.75), (0.25, 0.5), "by +0.250 on each of 2 seeds, without a spread"),
    ],
)
def test_the_verdict_says_whether_the_best_differs_beyond_noise(
    tmp_path: Path, best: tuple[float | str, ...], second: tuple[float | str, ...], words: str
) -> None:
    result = compare(tmp_path, best=valid(*best), second=valid(*second))
    assert words in result.verdict
    assert result.lines[-1] == result.verdict


def test_a_lower_validation_error_is_better(tmp_path: Path) -> None:
    result = compare(
        tmp_path,
        metric="loss",
        first=[{"valid.rmse": 0.5, "test.rmse": 0.1}, {"valid.rmse": 0.6, "test.rmse": 0.1}],
        second=[{"valid.rmse": 0.4, "test.rmse": 0.6}, {"valid.rmse": 0.3, "test.rmse": 0.6}],
    )
    assert order(result) == ["second", "first"]
    assert result.difference is not None
    assert result.difference.mean == pytest.approx(0.2)  # plus means better


def test_without_validation_no_variant_is_called_best(tmp_path: Path) -> None:
    result = compare(tmp_path, worse={"test.accuracy": 0.1}, better={"test.accuracy": 0.9})
    assert order(result) == ["better", "worse"]  # by name: test does not choose
    page = Path(result.page).read_text()
    assert "No variant is called best of 2" in page
    assert "is best of" not in page
