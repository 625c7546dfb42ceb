"""Shards of features that stay where their owners read them, against shards of features that were sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.mapreduce import way
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.running import make_artifact
from gnnflow.storage.filesystem import list_names
from gnnflow.storage.writing import remove_tree
from tests.small_graphs import graph_config, write_graph
from tests.typed_stores import PAYMENTS, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path


def neighbors_in(folder: Path, kind: str) -> Neighbors:
    """Return a graph: of types with dense, sparse and no features, or of one type stored in a kind of numbers."""
    if kind == "typed":
        return Neighbors(write_store(folder / "store", random_tables(PAYMENTS, 3), partitions=3))
    write_graph(folder)
    context = StageContext.of(graph_config(folder, graph={"storage": kind, "partitions": 3}))
    make_artifact(context, "ingest")
    make_artifact(context, "select")
    return neighbors_of(context)


def cut(job: FlatJob, folder: Path) -> Any:
    return run_rounds(job, RoundRunner(str(folder / "work"), Synchronous()), shard_size=6).files


@pytest.mark.parametrize("kind", ["typed", "float32", "float16", "int8"])
def test_mapped_features_give_the_same_files(tmp_path: Path, kind: str) -> None:
    job = FlatJob(str(tmp_path / "shards"), neighbors_in(tmp_path, kind), 2, "shared", "all", mapped=True)
    mapped = cut(job, tmp_path)
    assert [name for name in list_names(str(tmp_path / "work" / "nodes")) if name.startswith("features_")]
    # a run that goes on where rows are sent does not count what was kept
    remove_tree(str(tmp_path / "work" / "shards"))
    remove_tree(job.artifact)
    assert cut(replace(job, mapped=False), tmp_path) == mapped


def test_large_features_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FlatJob(str(tmp_path / "shards"), neighbors_in(tmp_path, "float32"), 2, "shared", "all")
    monkeypatch.setattr(way, "machine_memory", lambda: 2 * job.mapped_bytes - 1)
    cut(job, tmp_path)
    assert not [name for name in list_names(str(tmp_path / "work" / "nodes")) if name.startswith("features_")]
