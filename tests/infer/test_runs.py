"""Slices that are computed and sent in runs of rows give what one run gives, for every layer and sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gnnflow.infer import sending
from gnnflow.infer.choice import Exchange
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix
from tests.contracts.test_graphinfer import MODELS, SAMPLINGS, TOLERANCE, predictions, prepare, reference, stored

if TYPE_CHECKING:
    from pathlib import Path

CASES = [(model, "widening") for model in MODELS]
CASES += [(model, sampling) for model in ("gcn", "gat_e") for sampling in ("whole", "weighted", "top_k")]


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_LEAST_PIECE_BYTES", 1)


@pytest.mark.table(15)
@pytest.mark.parametrize(("model", "sampling"), CASES)
def test_runs_equal_reference(tmp_path: Path, model: str, sampling: str) -> None:
    graph = stored("graph")
    if model == "median layer":
        sampling = "whole"
    job = prepare(graph, tmp_path, MODELS[model], SAMPLINGS[sampling])
    table = predictions(job, tmp_path)
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)).max() < TOLERANCE


@pytest.mark.table(4)
@pytest.mark.parametrize("model", ["jumping head", "gat"])
def test_runs_of_pruned_layers_carry_what_the_end_needs(tmp_path: Path, model: str) -> None:
    graph = stored("graph")
    job = prepare(graph, tmp_path, MODELS[model], SAMPLINGS["widening"], targets=(2,), embeddings=True)
    rows = np.flatnonzero(graph.nodes["split"].to_numpy() == 2)
    table = predictions(job, tmp_path)
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)[rows]).max() < TOLERANCE


@pytest.mark.parametrize(
    ("exchange", "files"), [(Exchange("rows", mapped=False), 4), (Exchange("states", "every piece", mapped=False), 1)]
)
def test_a_slice_sends_four_files_where_it_sends_rows_alone(tmp_path: Path, exchange: Exchange, files: int) -> None:
    job = replace(prepare(stored("graph"), tmp_path, MODELS["gcn"], SAMPLINGS["whole"]), exchange=exchange)
    sent: list[dict[str, int]] = []

    class Heard(RoundRunner):
        def run(self, step):  # type: ignore[no-untyped-def]
            records = super().run(step)
            sent.extend(record.sent for record in records if step.name == "slice_0")
            return records

    run_rounds(job, Heard(str(tmp_path / "work"), Synchronous()))
    assert {(each["source_1_0"], each["own_1"]) for each in sent} == {(files, files)}


def test_runs_give_the_same_bytes_again_whether_written_behind_or_after(tmp_path: Path) -> None:
    graph = stored("graph")
    found = []
    for name, exchange in (("behind", Exchange()), ("after", Exchange("rows", "nothing"))):
        job = prepare(graph, tmp_path / name, MODELS["sage mean"], SAMPLINGS["widening"])
        found.append(run_rounds(replace(job, exchange=exchange), RoundRunner(f"{job.artifact}-work", Synchronous())))
    assert found[0].files == found[1].files
