"""Each toy at work. Run in a copy of the repository that has them, by test_extending.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

from gnnflow.cli.commands import build_app
from gnnflow.cluster import Cluster
from gnnflow.layers import toy
from gnnflow.layers.saved import load_model
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import RunResult
from tests.robustness.case import verdict
from tests.robustness.value_cases import cases
from tests.small_graphs import graph_config, write_graph
from tests.small_links import TASK, write_groups

QUICK: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}}


def run(folder: Path, **sections: Any) -> RunResult:
    """Run a pipeline over a small graph."""
    write_graph(folder)
    return pipeline.run_quietly(graph_config(folder, **{**QUICK, **sections}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """One run with a layer, a head, a stage, a partitioner and a metric that are toys."""
    return run(
        tmp_path_factory.mktemp("toys"),
        partition={"kind": "toy"},
        model={"kind": "toy", "hidden": 4, "head": "toy"},
        train={"epochs": 1, "metric": "toy"},
    )


def test_layer(trained: RunResult) -> None:
    assert isinstance(load_model(trained.stages["train"].artifact).relations(0).only, toy.Toy)


def test_head(trained: RunResult) -> None:
    assert load_model(trained.stages["train"].artifact).config.head == "toy"


def test_stage(trained: RunResult) -> None:
    assert trained.stages["toy"].manifest.rows_out == 60
    assert "toy" in [command.name for command in build_app().registered_commands]


def test_partitioner(trained: RunResult) -> None:
    assert trained.stages["partition"].manifest.rows_out == 60


def test_metric(trained: RunResult) -> None:
    assert trained.metrics["test.toy"] == pytest.approx(1 - trained.metrics["test.accuracy"])


def test_selection(tmp_path: Path) -> None:
    result = run(tmp_path, neighbors={"kind": "toy"})
    assert result.stages["select"].manifest.rows_out == 60


def test_sampler(tmp_path: Path) -> None:
    sampling = {"kind": "toy", "fanout": [2, 2]}
    result = run(tmp_path, graph={"weight": "weight"}, neighbors={"kind": "direct", "sampling": sampling})
    assert result.stages["select"].manifest.rows_out < 121


def test_decoder(tmp_path: Path) -> None:
    write_groups(tmp_path)
    task = {**TASK, "decoder": {"kind": "toy"}}
    result = pipeline.run_quietly(graph_config(tmp_path, task=task, train={"epochs": 1, "metric": "mrr"}))
    assert result.metrics["test.mrr"] > 0


def test_updater(tmp_path: Path) -> None:
    write_graph(tmp_path)
    with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=None) as cluster:
        config = graph_config(
            tmp_path,
            train={"epochs": 1, "updater": {"kind": "toy"}},
            infer={"parity_samples": 5},
            cluster={"kind": "address", "address": cluster.scheduler_address},
        )
        with Cluster(config.cluster) as joined:
            result = pipeline.run(StageContext.of(config, joined))
    assert result.metrics["train.epochs"] == 1


def test_odd_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (case,) = (case for case in cases() if case.name == "a toy")
    assert verdict(case, tmp_path) == []
