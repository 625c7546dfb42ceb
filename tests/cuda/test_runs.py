"""Whole runs with a card: the quickstart's graph from tables to certified predictions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from gnnflow.config import load_config
from gnnflow.datasets.payments import write_payments
from gnnflow.stages import pipeline
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The quickstart's tables, and a workspace in which they are trained on and scored by the CPU."""
    folder = tmp_path_factory.mktemp("quickstart")
    write_payments(str(folder / "quickstart-data"), num_nodes=10_000, num_edges=100_000)
    return folder


def run(folder: Path, workspace: str, **keys: str) -> pipeline.RunResult:
    text = (
        (REPOSITORY / "configs" / "quickstart.yaml")
        .read_text()
        .replace("../quickstart-data", f"{folder}/quickstart-data")
    )
    overrides = ["cluster={kind: synchronous}", "model.dropout=0", "train.epochs=4", "train.baseline=false"]
    overrides += [f"{name.replace('__', '.')}={value}" for name, value in keys.items()]
    return pipeline.run_quietly(load_config(text, overrides=overrides, workspace=str(folder / workspace)))


def scores(result: pipeline.RunResult) -> np.ndarray:
    table = pq.read_table(result.predictions).sort_by("id")
    return np.stack(table["probabilities"].to_numpy())


def weights(folder: Path, workspace: str) -> set[bytes]:
    return {path.read_bytes() for path in (folder / workspace / "artifacts" / "train").glob("*/model.safetensors")}


def test_the_quickstart_on_a_card_is_that_of_the_cpu_and_repeats_its_bytes(folder):
    here = run(folder, "cpu")
    for workspace in ("first", "again"):
        shutil.copytree(folder / "cpu", folder / workspace, ignore=shutil.ignore_patterns("train", "infer", "runs"))
    there = run(folder, "first", train__device="cuda")
    again = run(folder, "again", train__device="cuda")
    assert there.metrics["test.accuracy"] == pytest.approx(here.metrics["test.accuracy"], abs=0.02)
    assert there.metrics["infer.parity_max_difference"] <= 1e-4
    assert len(weights(folder, "first") | weights(folder, "again")) == 1
    assert np.array_equal(scores(there), scores(again))
    # The same weights scored on a card: another result of the same training.
    scored = run(folder, "cpu", infer__device="cuda")
    assert scored.uri != here.uri
    assert 0 < np.abs(scores(scored) - scores(here)).max() <= 1e-4


STRATEGIES = {
    "store": "{strategy: mini-batch, source: store, batch_size: 512}",
    "clusters": "{strategy: cluster-batch, clusters_per_batch: 2, boundary_hops: 1}",
    "whole": "{strategy: global-batch}",
    "whole, computed again": "{strategy: global-batch, recompute: true}",
}


@pytest.mark.parametrize("chosen", STRATEGIES)
def test_every_strategy_on_a_card_is_that_of_the_cpu_and_repeats_its_bytes(folder, chosen):
    asked = STRATEGIES[chosen].replace("}", ", lr: 0.01, epochs: 4, metric: macro_f1}")
    # the graph has sampled neighbours, which clusters do not take
    keys = {"train": asked, "graph__partitions": "4", "neighbors__sampling": "{kind: none}"}
    here = run(folder, f"cpu {chosen}", **keys)
    found = []
    for number in range(2):
        there = run(folder, f"card {chosen} {number}", **{**keys, "train": asked.replace("}", ", device: cuda}")})
        assert there.metrics["test.accuracy"] == pytest.approx(here.metrics["test.accuracy"], abs=0.03)
        found.append(weights(folder, f"card {chosen} {number}"))
    assert found[0] == found[1]
