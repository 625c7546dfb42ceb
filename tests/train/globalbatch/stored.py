"""A small graph as a graph store on disk, and jobs that train on the whole of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnflow.config import Config, config_from_dict, model_from_dict
from gnnflow.graph.facts import SelectFacts
from gnnflow.layers.model import ModelSpec
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.stages.train import model_inputs
from gnnflow.storage.graph_store import GraphStore
from gnnflow.train.job import JobFiles, StoredGraph, TrainJob
from tests.small_graphs import write_graph

NUM_NODES, NUM_EDGES = 120, 900


def write(folder: Path) -> None:
    write_graph(folder, num_nodes=NUM_NODES, num_edges=NUM_EDGES, hub=3)


def config_of(folder: Path, *, partitions: int = 4, sampling: Any = None, **train: Any):
    keys = {"strategy": "global-batch", "epochs": 8, "lr": 0.05, **train}
    return config_from_dict(
        {
            "name": "whole",
            "workspace": str(folder / "runs"),
            "graph": {
                "nodes": str(folder / "nodes.parquet"),
                "edges": str(folder / "edges.parquet"),
                "partitions": partitions,
            },
            "neighbors": {"sampling": sampling or {"kind": "none"}},
            "model": {"kind": "gcn", "hidden": 8, "dropout": 0.0},
            "train": keys,
            "cluster": {"kind": "local", "workers": keys.get("workers", 1)},
        }
    )


def job_for(folder: Path, *, model: Any = None, uri: str = "", **keys: Any) -> TrainJob:
    """Return a job on the stored graph; train keys, and those of `config_of`."""
    return job_of(config_of(folder, **keys), model=model, uri=uri)


def job_of(config: Config, *, model: Any = None, uri: str = "") -> TrainJob:
    """Return a config's job on the stored graph."""
    context = StageContext.of(config)
    made = {stage: make_artifact(context, stage) for stage in ("ingest", "select")}
    store = GraphStore.of(made["ingest"].artifact, made["ingest"].manifest)
    kept = made["select"].facts(SelectFacts).kept is not None
    selected = made["select"].artifact if kept else ""
    return TrainJob(
        model=ModelSpec(
            config.model if model is None else model_from_dict(model), model_inputs(store.facts, config.task)
        ),
        graph=StoredGraph(Neighbors(store, selected, config.sampling)),
        label_kind=store.facts.label_kind,
        num_classes=store.facts.num_classes,
        train=config.train,
        seed=config.seed,
        files=JobFiles(uri),
    )
