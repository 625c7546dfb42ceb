"""Two small graphs of pairs as shards that need no files: one whose links follow from features, one of chance alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnnflow.config import LinkTask, MiniBatchConfig, model_from_dict
from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.batch import Degrees, Features
from gnnflow.graph.edges import InEdges
from gnnflow.graph.facts import ShardEntry
from gnnflow.graph.hashing import hash_integers
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.neighborhood import Neighborhood
from gnnflow.graphfeature.shards import PairShard, Shard
from gnnflow.layers.decoders import DecoderInputs
from gnnflow.layers.model import ModelInputs, ModelSpec
from gnnflow.sampling.pairs import pair_keys, random_splits
from gnnflow.train.job import JobFiles, Shards, TrainJob
from gnnflow.train.minibatch import MiniBatchSource, open_source

NUM_NODES = 120
WIDTH = 8


@dataclass(frozen=True)
class Links:
    """The message graph as one neighbourhood, and the pairs of each split as node numbers [P, 2]."""

    neighborhood: Neighborhood
    pairs: Mapping[str, np.ndarray]

    def read(self, entry: ShardEntry) -> PairShard:
        pairs = self.pairs[entry.split]
        every = np.arange(NUM_NODES)
        keys = pair_keys(hash_integers(pairs[:, 0]), hash_integers(pairs[:, 1]))
        labels = np.zeros(len(pairs), np.int64)
        return PairShard(Shard(self.neighborhood, every, every, None), pairs[:, 0], pairs[:, 1], keys, every, labels)

    def open_source(self, job: TrainJob, *, edges: bool) -> MiniBatchSource:
        return open_source(job, edges=edges, read=self.read)

    def entries(self) -> list[ShardEntry]:
        return [
            ShardEntry(f"{split}-0", split, "shared", NUM_NODES, NUM_NODES, 1, 1, num_pairs=len(pairs))
            for split, pairs in self.pairs.items()
        ]


def links(*, chance: bool = False, leak: bool = False, seed: int = 0) -> Links:
    """Return edges within planted groups, or of chance alone; leak: held-out edges carry messages too."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 4, NUM_NODES)
    ends = rng.integers(0, NUM_NODES, (3000, 2))
    kept = ends[:, 0] < ends[:, 1]
    kept &= (rng.random(len(ends)) < 0.2) if chance else (groups[ends[:, 0]] == groups[ends[:, 1]])
    ends = np.unique(ends[kept], axis=0)
    split = random_splits(
        pair_keys(hash_integers(ends[:, 0]), hash_integers(ends[:, 1])), seed=seed, valid=0.15, test=0.15
    )
    x = rng.normal(0, 1, (NUM_NODES, WIDTH)).astype(np.float32)
    if not chance:
        x[:, :4] += np.eye(4, dtype=np.float32)[groups]
    carrying = ends if leak else ends[split == 0]
    return Links(message_graph(carrying, x), {name: ends[split == code] for code, name in enumerate(SPLITS)})


def message_graph(ends: np.ndarray, x: np.ndarray) -> Neighborhood:
    """Return the graph of these edges in both directions."""
    both = np.concatenate([ends, ends[:, ::-1]])
    both = both[np.lexsort((both[:, 0], both[:, 1]))]
    degree = np.bincount(both[:, 1], minlength=len(x))
    return Neighborhood(
        roots=np.arange(len(x)),
        node_ids=np.arange(len(x)),
        degrees=Degrees(degree, degree, degree.astype(np.float32)),
        features=Features(x.shape[1], dense=x),
        edges=InEdges(offsets_of(degree), both[:, 0].astype(np.int32)),
    )


def link_job(graph: Links, *, task: Mapping[str, object] | None = None, uri: str = "", **train: object) -> TrainJob:
    """Return a job for a small two-layer model on the graph."""
    asked = LinkTask.model_validate({"width": 16, "negatives": {"kind": "uniform", "evaluation": 60}, **(task or {})})
    settings = {"epochs": 15, "batch_size": 64, "lr": 0.02, "metric": "mrr", **train}
    hidden = getattr(asked.decoder, "hidden", 64)
    return TrainJob(
        model=ModelSpec(
            model_from_dict({"kind": "sage", "hidden": 16, "dropout": 0.0}),
            ModelInputs(WIDTH, asked.width, decoder=DecoderInputs(asked.decoder.kind, hidden=hidden)),
        ),
        graph=Shards("links", graph.entries()),
        label_kind="link",
        num_classes=0,
        train=MiniBatchConfig.model_validate(settings),
        seed=5,
        files=JobFiles(uri),
        task=asked,
    )
