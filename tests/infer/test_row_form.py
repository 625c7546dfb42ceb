"""Rows that travel in half precision: half the bytes, scores within the limit, never a silent loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gnnflow.config import config_from_dict
from gnnflow.config.stage_keys import infer as keys_of_infer
from gnnflow.infer.choice import Exchange
from gnnflow.infer.row_form import PARITY_LIMITS, from_column, rounded, to_column
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix
from tests.contracts.test_graphinfer import MODELS, SAMPLINGS, predictions, prepare, stored

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.config import RowKind

HALVES: list[RowKind] = ["float16", "bfloat16"]


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("model", ["gat", "sage mean"])
def test_scores_stay_within_the_limit(kind: RowKind, model: str, tmp_path: Path) -> None:
    """Finds rows that are not rounded, or by more than the certificate allows."""
    job = replace(
        prepare(stored("graph"), tmp_path, MODELS[model], SAMPLINGS["whole"]), exchange=Exchange(mapped=False)
    )
    exact = to_matrix(predictions(job, tmp_path / "exact")["probabilities"])
    other = replace(job, rows=kind, artifact=str(tmp_path / "other"))
    difference = np.abs(to_matrix(predictions(other, tmp_path / "rounded")["probabilities"]) - exact).max()
    assert 1e-6 < difference < PARITY_LIMITS[kind]


@pytest.mark.parametrize("kind", HALVES)
def test_rows_travel_in_half_the_bytes(kind: RowKind, tmp_path: Path) -> None:
    job = prepare(stored("graph"), tmp_path, MODELS["sage mean"], SAMPLINGS["whole"])
    job = replace(job, exchange=Exchange("rows", mapped=False))

    def row_bytes(rows: RowKind) -> int:
        own = replace(job, rows=rows, artifact=str(tmp_path / rows))
        return run_rounds(own, RoundRunner(str(tmp_path / f"work-{rows}"), Synchronous())).sent.row_bytes

    assert 2 * row_bytes(kind) == row_bytes("float32") > 0


@pytest.mark.parametrize("kind", HALVES)
def test_what_is_read_is_what_was_rounded(kind: RowKind) -> None:
    """Finds NaN or infinity that become numbers on the way: scores of them are refused later."""
    matrix = np.array([[1.1, -0.0, 1e-9], [np.nan, -np.nan, np.inf], [1e5, -3.4e38, -np.inf]], np.float32)
    matrix[1, 1] = np.array([0xFFFFFFFF], np.uint32).view(np.float32)[0]
    here, there = rounded(matrix, kind), from_column(to_column(matrix, kind), kind)
    assert here.tobytes() == there.tobytes()
    assert (np.isnan(here) == np.isnan(matrix)).all()
    assert np.isinf(here[~np.isfinite(matrix) & ~np.isnan(matrix)]).all()
    assert np.isinf(here[2, 0]) == (kind == "float16")
    assert rounded(np.zeros((0, 2, 3), np.float32), kind).shape == (0, 2, 3)


def test_only_another_form_makes_another_artifact() -> None:
    """Finds a default that would score every earlier run again."""

    def keys(**infer: str) -> object:
        graph = {"nodes": "nodes.parquet", "edges": "edges.parquet"}
        return keys_of_infer(config_from_dict({"name": "x", "graph": graph, "model": {"kind": "sage"}, "infer": infer}))

    assert "rows" not in str(keys(rows="float32"))
    assert keys(rows="float16") != keys() != keys(rows="bfloat16")
