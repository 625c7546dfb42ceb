"""A small graph with planted classes, as shards that need no files: features alone say little, neighbours say a lot."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnnflow.config import MiniBatchConfig, model_from_dict
from gnnflow.graph.arrays import Array, offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import Shard
from gnnflow.layers.model import ModelInputs, ModelSpec
from gnnflow.progress import Silent
from gnnflow.train.job import JobFiles, Shards, TrainJob
from gnnflow.train.minibatch import MiniBatchSource, open_source

NUM_NODES = 240
WIDTH = 12
NUM_CLASSES = 3
DEGREE = 8


def without_times(row: dict[str, float]) -> dict[str, float]:
    """Return an epoch's row without what differs from run to run."""
    return {key: value for key, value in row.items() if not key.endswith(("seconds", "_per_second"))}


@dataclass(frozen=True)
class Planted:
    """The whole graph as one neighbourhood, and which of its nodes each shard holds."""

    neighborhood: Neighborhood
    labels: Array
    targets: dict[str, Array]

    def read(self, entry: ShardEntry) -> Shard:
        targets = self.targets[entry.name]
        return Shard(self.neighborhood, targets, targets, self.labels[targets])

    def open_source(self, job: TrainJob, *, edges: bool) -> MiniBatchSource:
        return open_source(job, edges=edges, read=self.read)

    def entries(self) -> list[ShardEntry]:
        return [
            ShardEntry(
                name=name,
                split=name.split("-")[0],
                layout="shared",
                num_targets=len(targets),
                num_nodes=NUM_NODES,
                num_edges=self.neighborhood.num_edges,
                num_bytes=1,
            )
            for name, targets in self.targets.items()
        ]


def planted(label_kind: str = "single", *, train_shards: int = 2) -> Planted:
    """Return the graph with labels of a label_kind: 120 train targets, 40 valid, 80 test."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, NUM_CLASSES, NUM_NODES)
    same = np.argsort(classes, kind="stable")
    start = np.searchsorted(classes[same], classes)
    count = np.bincount(classes)[classes]
    sources = same[start[:, None] + rng.integers(0, 2**31, (NUM_NODES, DEGREE)) % count[:, None]]
    noise = rng.random((NUM_NODES, DEGREE)) < 0.2
    sources = np.where(noise, rng.integers(0, NUM_NODES, sources.shape), sources).ravel()
    dense = rng.normal(0, 2, (NUM_NODES, WIDTH)).astype(np.float32)
    dense[:, :NUM_CLASSES] += np.eye(NUM_CLASSES, dtype=np.float32)[classes]
    in_degree = np.full(NUM_NODES, DEGREE)
    neighborhood = Neighborhood(
        roots=np.arange(NUM_NODES),
        node_ids=np.arange(NUM_NODES),
        degrees=Degrees(in_degree, np.bincount(sources, minlength=NUM_NODES), in_degree.astype(np.float32)),
        features=Features(WIDTH, dense=dense),
        edges=InEdges(offsets_of(in_degree), sources.astype(np.int32)),
    )
    order = rng.permutation(NUM_NODES)
    targets = {f"train-{place}": part for place, part in enumerate(np.array_split(order[:120], train_shards))}
    return Planted(
        neighborhood, labels_of(label_kind, classes), {**targets, "valid-0": order[120:160], "test-0": order[160:]}
    )


def labels_of(label_kind: str, classes: Array) -> Array:
    if label_kind == "multi":
        return np.stack([classes == 0, classes > 0, classes == 2], axis=1).astype(np.float32)
    return classes.astype(np.float32) if label_kind == "regression" else classes


def job_for(
    graph: Planted, *, label_kind: str = "single", uri: str = "", kind: str = "sage", **train: object
) -> TrainJob:
    """Return a job for a small two-layer model on the graph."""
    outputs = 1 if label_kind == "regression" else NUM_CLASSES
    settings = {"epochs": 12, "batch_size": 32, "lr": 0.02, "threads": 1, **train}
    return TrainJob(
        model=ModelSpec(
            model_from_dict({"kind": kind, "hidden": 16, **({"heads": 2} if kind == "gat" else {})}),
            ModelInputs(WIDTH, outputs),
        ),
        graph=Shards("planted", graph.entries()),
        label_kind=label_kind,  # type: ignore[arg-type]
        num_classes=NUM_CLASSES,
        train=MiniBatchConfig.model_validate(settings),
        seed=5,
        files=JobFiles(uri),
    )


def with_model(job: TrainJob, **keys: object) -> TrainJob:
    """Return a job with other keys of its model's section."""
    return replace(job, model=replace(job.model, config=job.model.config.model_copy(update=keys)))


class Recording(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps: list[tuple[str, int, int, dict[str, float]]] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def step(self, name, done, total, fields):  # type: ignore[no-untyped-def]
        self.steps.append((name, done, total, dict(fields)))
