"""GraphInfer over partitions equals the plain definition on the whole graph, for every layer, sampled or not."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions.reference import WholeGraph, forward
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Block
from gnnflow.graph.edges import InEdges
from gnnflow.infer.job import InferJob
from gnnflow.infer.run import run_rounds
from gnnflow.layers.model import ModelInputs, build_model
from gnnflow.layers.saved import encode_weights, save_model
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.neighbors.direct import SelectJob
from gnnflow.neighbors.direct import run_rounds as select_rounds
from gnnflow.neighbors.selected import Neighbors
from gnnflow.sampling import SamplingKind, priorities
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from gnnflow.storage.graph_store import DEGREE_COLUMNS, GraphStore, degrees_of, features_of
from gnnflow.storage.tables import read_table
from tests.fanouts import sampling_of
from tests.small_graphs import graph_config, write_graph

_FOLDER = TemporaryDirectory()
TOLERANCE = 1e-5
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": "gcn"},
    "sage mean": {"kind": "sage"},
    "sage max": {"kind": "sage", "aggregator": "max"},
    "gat": {"kind": "gat", "heads": 2, "activation": "elu"},
    "gin": {"kind": "gin"},
    "gat_e": {"kind": "gat_e", "heads": 2, "output_heads": 2},
    "message layer": {"kind": "tests.contracts.own_layers:Gated", "head": "linear"},
    "median layer": {"kind": "tests.contracts.own_layers:MedianLayer", "head": "linear"},
    "linear head": {"kind": "gcn", "head": "linear", "encoder": "linear"},
    "jumping head": {"kind": "gat", "heads": 2, "head": "jumping", "layers": 3},
    "one layer": {"kind": "sage", "layers": 1},
    "norm and residual": {"kind": "sage", "head": "linear", "layers": 3, "norm": "layer", "residual": True},
}
if importlib.util.find_spec("torch_geometric") is not None:
    GATV2 = {"kind": "torch_geometric.nn:GATv2Conv", "options": {"heads": 2, "edge_dim": 2}}
    MODELS["layer of PyG"] = {**GATV2, "head": "linear", "residual": True}
SAMPLINGS: dict[str, Any] = {
    "whole": ("none", None),
    "uniform": ("uniform", (4, 3, 2)),
    "widening": ("uniform", (2, 3, 5)),
    "weighted": ("weighted", (4, 3, 2)),
    "weighted and widening": ("weighted", (2, 3, 5)),
    "top_k": ("top_k", (4, 3, 2)),
}


@dataclass(frozen=True)
class Stored:
    store: GraphStore
    nodes: pa.Table
    edges: pa.Table


@cache
def stored(name: str) -> Stored:
    folder = Path(_FOLDER.name) / name
    write_graph(folder, num_nodes=80, num_edges=700, hub=5)
    graph = {"partitions": 3, "edge_features": ["amount", "hour"]}
    result = make_artifact(StageContext.of(graph_config(folder, graph=graph)), "ingest")
    store = GraphStore.of(result.artifact, result.manifest)
    parts = range(store.num_partitions)
    nodes = pa.concat_tables(
        [store.nodes(p, ["id", "split", *DEGREE_COLUMNS, *store.feature_columns_of(0)]) for p in parts]
    )
    edges = pa.concat_tables([store.edges(p, ["dst", "src", "edge_key", *store.edge_columns]) for p in parts])
    return Stored(store, nodes.combine_chunks(), edges.combine_chunks())


def block_of(graph: Stored, kind: SamplingKind, fanout: int | None, seed: int) -> Block:
    """Return the whole graph's adjacency, or its sample with its scale, by the plain definition of sampling."""
    dst, src, key, weight = (graph.edges[name].to_numpy() for name in ("dst", "src", "edge_key", "weight"))
    in_degree = graph.nodes["in_degree"].to_numpy()
    rows, sample_scale, edge_scale = np.arange(len(dst)), None, None
    if fanout is not None:
        priority = priorities(key, kind=kind, seed=seed, weight=None if kind == "uniform" else weight)
        order = np.lexsort((key, priority, dst))
        rank = np.arange(len(dst)) - offsets_of(in_degree)[dst[order]]
        rows = order[rank < fanout]
        if kind == "uniform":
            sample_scale = (in_degree / np.maximum(np.minimum(in_degree, fanout), 1)).astype(np.float32)
            sample_scale[in_degree == 0] = 1
        if kind == "weighted":
            # when the first edge that was not kept arrives at each node, infinity where all were kept
            tau = np.full(len(in_degree), np.inf)
            left_out = order[rank == fanout]
            tau[dst[left_out]] = priority[left_out].view(np.float64)
            chance = 1 - np.exp(-weight[rows].astype(np.float64) * tau[dst[rows]])
            edge_scale = (1 / chance).astype(np.float32)
    edges = InEdges(
        offsets=offsets_of(np.bincount(dst[rows], minlength=len(in_degree))),
        sources=src[rows],
        weight=weight[rows],
        attributes=to_matrix(graph.edges["attributes"])[rows],
    )
    return Block(edges, num_sources=len(in_degree), sample_scale=sample_scale, edge_scale=edge_scale)


def reference(graph: Stored, job: InferJob) -> np.ndarray:
    whole = WholeGraph(
        block_of(graph, "none", None, 0),
        degrees_of([graph.nodes]),
        features_of(graph.nodes, graph.store.facts.features),
    )
    sampled, sampling = None, job.neighbors.sampling
    if sampling.fanouts:
        limits = reversed(sampling.of_hops(job.num_layers))
        sampled = [block_of(graph, sampling.kind, fanout, job.seed) for fanout in limits]
    with torch.no_grad():
        return torch.softmax(forward(job.load_model(), whole, sampled=sampled), 1).numpy()


def neighbors_of(graph: Stored, folder: Path, kind: SamplingKind, fanouts: Any) -> Neighbors:
    if not fanouts:
        return Neighbors(graph.store)
    job = SelectJob(str(folder / "selected"), graph.store, kind, max(fanouts), 3, hub_threshold=50)
    select_rounds(job, RoundRunner(str(folder / "select"), Synchronous()))
    return Neighbors(graph.store, job.artifact, sampling_of(fanouts, kind))


def prepare(graph: Stored, folder: Path, model: dict[str, Any], sampling: Any, **changes: Any) -> InferJob:
    kind, fanouts = sampling
    config = model_from_dict({"hidden": 6, "dropout": 0.3, **model})
    inputs = ModelInputs(feature_width=5, num_outputs=4, attribute_width=2)
    torch.manual_seed(1)
    weights = encode_weights(build_model(config, inputs).state_dict())
    save_model(str(folder / "model"), config, inputs, weights=weights)
    fanouts = fanouts and fanouts[: config.layers]
    return InferJob(
        artifact=str(folder / "artifact"),
        neighbors=neighbors_of(graph, folder, kind, fanouts),
        model=str(folder / "model"),
        num_layers=config.layers,
        label_kind="single",
        targets=changes.get("targets", "all"),
        embeddings=changes.get("embeddings", False),
        parity_samples=0,
        seed=3,
    )


def predictions(job: InferJob, folder: Path) -> pa.Table:
    result = run_rounds(job, RoundRunner(str(folder / "work"), Synchronous()))
    return pa.concat_tables([read_table(f"{job.artifact}/{entry.name}") for entry in result.files])


@pytest.mark.table(22)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("model", MODELS)
def test_graphinfer_equals_reference(tmp_path: Path, model: str, sampling: str) -> None:
    graph = stored("graph")
    job = prepare(graph, tmp_path, MODELS[model], SAMPLINGS[sampling])
    table = predictions(job, tmp_path)
    assert table["id"].to_pylist() == graph.nodes["id"].to_pylist()
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)).max() < TOLERANCE


@pytest.mark.parametrize("sampling", ["whole", "uniform"])
def test_pruned_rounds_score_the_split_alone_and_alike(tmp_path: Path, sampling: str) -> None:
    graph = stored("graph")
    job = prepare(graph, tmp_path, MODELS["jumping head"], SAMPLINGS[sampling], targets=(2,), embeddings=True)
    table = predictions(job, tmp_path)
    rows = np.flatnonzero(graph.nodes["split"].to_numpy() == 2)
    assert table["id"].to_pylist() == graph.nodes["id"].take(pa.array(rows)).to_pylist()
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)[rows]).max() < TOLERANCE
    assert to_matrix(table["embedding"]).shape == (len(rows), 2 * 12 + 6)
