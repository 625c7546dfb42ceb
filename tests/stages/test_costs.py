"""What nodes cost is learned from a run's tasks, and another run's partitions are balanced by it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.graph.errors import StorageError
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.stages.costs import learn_costs
from gnnflow.stages.partition import instances_of
from gnnflow.stages.resolve import resolve
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.filesystem import join, read_json
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import read_manifest
from tests.command_line import printed
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

QUICK: dict[str, Any] = {"train": {"epochs": 1}, "infer": {"parity_samples": 5}}


@pytest.mark.slow
def test_costs_of_a_run_are_keys_of_a_config(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 8}
    config = graph_config(tmp_path, graph=graph, **QUICK)
    result = pipeline.run_quietly(config)
    learned = json.loads(printed(["costs", result.uri]))
    assert learned["per_root"] >= 0
    assert list(learned["relations"]) == [str(relation) for relation in config.graph.schema.relations]
    balanced = graph_config(tmp_path, graph=graph, partition={"kind": "balanced", **learned}, **QUICK)
    assert "partition" in resolve(balanced).stages
    held = learn_costs("small", workspace=config.workspace)
    assert json.loads(json.dumps(held.as_document())) == learned


@pytest.mark.slow
def test_costs_of_metapaths_balance_a_run_of_the_same_metapaths(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 8, "reverse_edges": True}
    paths = [["merchant", "account", "merchant"], ["account", "device", "account"], ["account", "account"]]
    sections = {
        **QUICK,
        "train": {"epochs": 1, "batch_size": 1000, "threads": 1},
        "neighbors": {"kind": "metapaths", "paths": paths, "max_instances": 6},
        "model": {"kind": "magnn", "heads": 2, "hidden": 4, "layers": 2, "dropout": 0.0},
    }
    hashed = graph_config(tmp_path, graph=graph, **sections)
    first = pipeline.run_quietly(hashed)
    learned = json.loads(printed(["costs", first.uri]))
    assert list(learned["relations"]) == [str(each) for each in hashed.aggregated_relations or ()]
    one_of_them = {name: [0, 0, 1] for name in learned["relations"] if "device" in name}
    for relations in (learned["relations"], one_of_them):
        partition = {"kind": "balanced", "threshold": 1.03, "per_root": learned["per_root"], "relations": relations}
        second = pipeline.run_quietly(graph_config(tmp_path, graph=graph, partition=partition, **sections))
        told = read_json(join(second.stages["partition"].artifact, "balance.json"))
        assert told["factor"] <= told["factor_before"]
        tables = [pq.read_table(made.predictions) for made in (first, second)]
        ids, others = (table["id"].to_pylist() for table in tables)
        assert sorted(ids) == sorted(others)
        scores, again = (
            dict(zip(table["id"].to_pylist(), table["probabilities"].to_pylist(), strict=True)) for table in tables
        )
        for key in ids:
            np.testing.assert_allclose(scores[key], again[key], atol=1e-4)


def test_paths_are_counted_under_the_names_that_costs_have(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables(num_edges=300)), "partitions": 4, "reverse_edges": True}
    paths = [["merchant", "account", "merchant"], ["account", "device", "account"], ["account", "account"]]
    neighbors = {"kind": "metapaths", "paths": paths, "max_instances": 7}
    config = graph_config(tmp_path, graph=graph, neighbors=neighbors)
    context = StageContext.of(config)
    made = {stage: make_artifact(context, stage) for stage in ("ingest", "select")}
    selected = GraphStore.of_run(made["ingest"].artifact, made["select"].artifact)
    store = GraphStore.of(made["ingest"].artifact, made["ingest"].manifest)
    pieces = [
        [store.edges(part, ["dst", "src"], relation=number) for part in range(store.num_partitions)]
        for number in range(store.schema.num_relations)
    ]
    joined = [pa.concat_tables(each) for each in pieces]
    ends = [(to_numpy(each["dst"]), to_numpy(each["src"])) for each in joined]
    counts, leaves = instances_of(config).counts(ends, schema=store.schema, num_nodes=store.facts.num_nodes)
    found = np.concatenate([selected.degrees(part).in_degree for part in range(store.num_partitions)])
    # edges that join the same two nodes are one step of a path
    assert np.all(counts >= np.minimum(found, 7))
    assert [str(each) for each in config.aggregated_relations or ()] == [each.name for each in selected.facts.relations]
    np.testing.assert_array_equal(counts > 0, found > 0)
    np.testing.assert_array_equal(leaves, counts * np.array(selected.facts.leaves_of_relations))


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
        learn_costs(result.uri, workspace=str(tmp_path))


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such run"):
        learn_costs("unknown", workspace=str(tmp_path))
