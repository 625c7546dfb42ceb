"""Graphs to divide into partitions, and what holds for the stores they are divided into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.progress import Silent
from gnnflow.stages import pipeline
from gnnflow.stages.base import ArtifactResult, StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import GraphStore, edges_file, nodes_file
from gnnflow.storage.tables import read_artifact_table
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gnnflow.cluster import Cluster
    from gnnflow.config import Config
    from gnnflow.progress import Progress
    from tests.conftest import ClusterOf

BALANCED = {"kind": "balanced", "threshold": 1.03}
KINDS = ["one type", "several types"]


@pytest.fixture(params=KINDS)
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A graph with a hub and parallel edges, or one with three types, as the graph section of a config."""
    if request.param == "one type":
        write_graph(tmp_path, num_nodes=90, num_edges=1200, hub=7)
        return {"edge_features": ["amount", "hour"], "partitions": 4}
    return {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 4}


def config_of(folder: Path, graph: dict[str, Any], **sections: Any) -> Config:
    kind = "han" if "target" in graph else "gat_e"
    return graph_config(
        folder,
        graph=graph,
        **{
            "partition": BALANCED,
            "neighbors": {"sampling": {"kind": "uniform", "fanout": [4, 3]}},
            "model": {"kind": kind, "hidden": 4, "heads": 2, "dropout": 0.0},
            "train": {"epochs": 3, "batch_size": 1000, "lr": 0.05},
            "infer": {"parity_samples": 20},
            **sections,
        },
    )


def stores(config: Config) -> tuple[ArtifactResult, ArtifactResult]:
    """Return what ingest and partition made."""
    context = StageContext.of(config)
    first, second = (make_artifact(context, stage) for stage in ("ingest", "partition"))
    return first, second


def assert_same_on_workers(
    configure: Callable[..., Config],
    folder: Path,
    workers: int,
    cluster_of: ClusterOf,
    *,
    watch: Callable[[Cluster], Progress] = lambda _: Silent(),
) -> Any:
    """Assert that workers write the same bytes as this process, and return the progress that watched them."""
    undisturbed = stores(configure())[1].digest
    cluster = {"kind": "local", "workers": workers, "memory_limit": "2GiB"}
    config = configure(workspace=str(folder / "others"), cluster=cluster)
    running = cluster_of(config.cluster)
    make_artifact(StageContext.of(config, running), "ingest")
    progress = watch(running)
    assert make_artifact(StageContext.of(config, running, progress), "partition").digest == undisturbed
    return progress


def store_of(made: ArtifactResult) -> GraphStore:
    return GraphStore.of(made.artifact, made.manifest)


def assert_same_tables(one: ArtifactResult, other: ArtifactResult) -> None:
    """Assert that two stores have the same files of nodes and edges, row by row."""
    names, others = (
        {entry.name for entry in made.manifest.files if entry.name.startswith(("nodes-", "edges-"))}
        for made in (one, other)
    )
    assert names == others
    for name in names:
        assert read_artifact_table(one.artifact, name).equals(read_artifact_table(other.artifact, name))


def node_rows(store: GraphStore, node_type: int) -> pa.Table:
    """Return the rows of all nodes of a type in the order of their keys, without their dense ids."""
    parts = range(store.num_partitions)
    names = [nodes_file(number, store.schema, node_type=node_type) for number in parts]
    tables = [read_artifact_table(store.artifact, name) for name in names]
    return pa.concat_tables(tables).drop_columns(["node"]).combine_chunks().sort_by("key")


def edge_rows(store: GraphStore, relation: int) -> pa.Table:
    """Return all edges of a relation in the order of their keys, ends as the nodes' keys."""
    parts = range(store.num_partitions)
    types = range(store.schema.num_types)
    keys = np.concatenate([to_numpy(store.nodes(p, ["key"], node_type=t)["key"]) for p in parts for t in types])
    names = [edges_file(number, store.schema, relation=relation) for number in parts]
    table = pa.concat_tables([read_artifact_table(store.artifact, name) for name in names]).combine_chunks()
    for number, name in enumerate(table.column_names):
        if name in {"dst", "src"}:
            table = table.set_column(number, name, pa.array(keys[to_numpy(table[name])]))
    return table.sort_by("edge_key")


def assert_edges_lie_at_their_targets(store: GraphStore) -> None:
    """Assert that each partition has the edges into its own nodes, in the order of targets and sources."""
    for partition in range(store.num_partitions):
        for number in range(store.schema.num_relations):
            edges = store.edges(partition, ["dst", "src"], relation=number)
            dst, src = to_numpy(edges["dst"]), to_numpy(edges["src"])
            assert np.all(store.book.owner(dst) == partition)
            assert np.all(np.diff(dst * store.book.num_nodes + src) >= 0)


def predictions(config: Config) -> dict[Any, np.ndarray]:
    result = pipeline.run_quietly(config)
    rows: dict[Any, np.ndarray] = {}
    table = pq.read_table(result.predictions)
    scores = next(name for name in ("probabilities", "scores", "prediction") if name in table.column_names)
    for key, score in zip(table["id"].to_pylist(), table[scores].to_pylist(), strict=True):
        rows[key] = np.asarray(score)
    return rows


def selected(config: Config) -> list[tuple[int, int, int]]:
    """Return the in-edges that were sampled: relation, and the keys of target and source."""
    context = StageContext.of(config)
    made = {stage: make_artifact(context, stage) for stage in context.run.stages[:-3]}
    store = store_of(made[context.run.store_stage])
    parts, types = range(store.num_partitions), range(store.schema.num_types)
    keys = np.concatenate([to_numpy(store.nodes(p, ["key"], node_type=t)["key"]) for p in parts for t in types])
    found: list[tuple[int, int, int]] = []
    for partition in parts:
        for relation in range(store.schema.num_relations):
            name = edges_file(partition, store.schema, relation=relation)
            rows = read_artifact_table(made["select"].artifact, name, ["dst", "src"])
            ends = (keys[to_numpy(rows[end])].tolist() for end in ("dst", "src"))
            found += [(relation, *pair) for pair in zip(*ends, strict=True)]
    return sorted(found)
