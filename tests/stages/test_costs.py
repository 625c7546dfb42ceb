"""What nodes cost is learned from a run's tasks, and another run's partitions are balanced by it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.stages import pipeline
from gnnflow.stages.costs import costs_of
from gnnflow.stages.resolve import resolve
from gnnflow.storage.manifest import read_manifest
from tests.small_graphs import graph_config, write_graph
from tests.stages.test_tasks import run_main
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

QUICK: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}}


def test_costs_of_a_run_are_keys_of_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 8}
    config = graph_config(tmp_path, graph=graph, **QUICK)
    result = pipeline.run_quietly(config)
    run_main(["costs", result.uri])
    learned = json.loads(capsys.readouterr().out)
    assert learned["per_root"] >= 0
    assert list(learned["relations"]) == [str(relation) for relation in config.graph.schema.relations]
    balanced = graph_config(tmp_path, graph=graph, partition={"kind": "balanced", **learned}, **QUICK)
    assert "partition" in resolve(balanced).stages
    held = costs_of("small", workspace=config.workspace)
    assert json.loads(json.dumps(held.as_document())) == learned


def test_the_seconds_of_each_task_are_in_the_manifest(tmp_path: Path) -> None:
    write_graph(tmp_path)
    result = pipeline.run_quietly(graph_config(tmp_path, **QUICK))
    for made in result.stages.values():
        for each in read_manifest(made.artifact).timings["rounds"]:
            assert len(each["task_seconds"]) == each["tasks"]
            assert all(0 < seconds < 60 for seconds in each["task_seconds"])


def test_too_few_partitions_teach_nothing(tmp_path: Path) -> None:
    write_graph(tmp_path)
    result = pipeline.run_quietly(graph_config(tmp_path, **QUICK))
    with pytest.raises(StorageError, match=r"has 3 partitions.*graph\.partitions: 16"):
        costs_of(result.uri, workspace=str(tmp_path))


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such run"):
        costs_of("unknown", workspace=str(tmp_path))
