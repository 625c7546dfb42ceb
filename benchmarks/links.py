"""Link prediction against PyTorch Geometric in one run: the same graph, splits, widths, batches and ranked candidates.

    python benchmarks/links.py --config configs/cora_links.yaml [--epochs 20] [--threads 2] [--workspace DIR]

gnnflow runs its stages up to training. PyG's side has its convolutions (SAGEConv, mean) over the whole message graph in
memory, which it encodes once a step without the edges of the step's pairs, and draws uniform negatives itself. Both
keep the epoch of the best validation MRR and rank each test edge among the same pairs. `--gae EPOCHS` adds PyG's own
example of link prediction, examples/autoencoder.py: a graph auto-encoder (Kipf and Welling, 2016) of two GCNConv layers
of 32 and 16 columns, Adam at 0.01, whose steps have all training edges as messages and as targets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import DATA, Benchmark, Chosen, Option, folder_of, run
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import Config, LinkTask, MiniBatchConfig, load_config
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.graphfeature.shards import read_pair_shard
from gnnflow.layers.encoders import BagEncoder
from gnnflow.layers.terms import FeatureTensors
from gnnflow.sampling.pairs import EVALUATION, draw_negatives
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import GraphStore, features_of
from gnnflow.train.metrics import metrics_of
from gnnflow.train.reproducible import compute_settings

_BOTH = 2


@dataclass(frozen=True)
class Links:
    """The message graph [2, E], features of its nodes, and per split sources [P] with candidates [P, 1 + K]."""

    edges: Tensor
    features: FeatureTensors
    pairs: dict[str, tuple[IntArray, IntArray]]


class Peer(nn.Module):
    """Two SAGEConv layers of PyG, after an embedding bag for sparse features; pairs by inner product."""

    def __init__(self, features: FeatureTensors, *, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        sparse = features.dense is None
        self.encoder = BagEncoder(features.width, hidden) if sparse else None
        convolution = import_module("torch_geometric.nn").SAGEConv
        self.first = convolution(hidden if sparse else features.width, hidden)
        self.last = convolution(hidden, width)
        self.dropout = dropout

    def forward(self, features: FeatureTensors, edges: Tensor) -> Tensor:
        """Return the embedding of every node."""
        h = features.dense if self.encoder is None else self.encoder(features)
        assert h is not None
        h = functional.dropout(h, self.dropout, training=self.training)
        h = functional.dropout(self.first(h, edges).relu(), self.dropout, training=self.training)
        rows: Tensor = self.last(h, edges)
        return rows


def ours(config: Config) -> tuple[dict[str, float], Links]:
    """Train with gnnflow and return its metrics and its inputs."""
    context = StageContext.of(config)
    made = {stage: make_artifact(context, stage) for stage in ("ingest", "select", "flat", "train")}
    store = GraphStore.of(made["ingest"].artifact, made["ingest"].manifest)
    return made["train"].facts(TrainFacts).metrics, _links(config, store, made["flat"])


def _links(config: Config, store: GraphStore, flat: Any) -> Links:
    assert isinstance(config.task, LinkTask)
    parts = range(store.num_partitions)
    edges = [store.edges(part, ["src", "dst"]) for part in parts]
    ends = [np.concatenate([to_numpy(each[name]) for each in edges]) for name in ("src", "dst")]
    tables = [features_of(store.nodes(part, store.feature_columns_of(0)), store.facts.features) for part in parts]
    features = FeatureTensors.joined(
        [
            FeatureTensors(
                each.width, *(None if held is None else torch.from_numpy(np.array(held)) for held in _columns(each))
            )
            for each in tables
        ]
    )
    found: dict[str, tuple[IntArray, IntArray]] = {}
    for split in ("train", "valid", "test"):
        shards = [
            read_pair_shard(flat.artifact, entry) for entry in flat.facts(FlatFacts).shards if entry.split == split
        ]
        sources = [shard.shard.targets[shard.sources] for shard in shards]
        candidates = []
        for shard in shards:
            drawn = draw_negatives(
                shard.keys,
                shard.sources,
                shard.targets,
                candidates=shard.pool,
                count=config.task.negatives.evaluation,
                seed=config.seed,
                epoch=EVALUATION,
            )
            candidates.append(shard.shard.targets[np.concatenate([shard.targets[:, None], drawn], 1)])
        found[split] = np.concatenate(sources), np.concatenate(candidates)
    return Links(torch.from_numpy(np.stack(ends)), features, found)


def _columns(features: Any) -> tuple[Any, ...]:
    return features.dense, features.offsets, features.index, features.value


def peer(links: Links, config: Config, *, epochs: int) -> dict[str, float]:
    """Train PyG's layers on the same and return the same metrics."""
    assert isinstance(config.task, LinkTask)
    assert isinstance(config.train, MiniBatchConfig)
    torch.manual_seed(config.seed)
    model = Peer(links.features, hidden=config.model.hidden, width=config.task.width, dropout=config.model.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.lr, weight_decay=config.train.weight_decay)
    sources, candidates = (torch.from_numpy(each) for each in links.pairs["train"])
    batch_size = config.train.batch_size

    def epoch() -> None:
        for batch in torch.split(torch.randperm(len(sources)), batch_size):
            _step(model, optimizer, links, sources[batch], candidates[batch, 0])

    return best_of(model, epoch, lambda: model(links.features, links.edges), links, epochs=epochs)


def best_of(
    model: nn.Module, epoch: Callable[[], None], encode: Callable[[], Tensor], links: Links, *, epochs: int
) -> dict[str, float]:
    """Train for so many epochs and return the test metrics of the one with the best validation MRR."""
    best, scores, seconds = -1.0, dict[str, float](), 0.0
    for _ in range(epochs):
        begin = time.perf_counter()
        model.train()
        epoch()
        seconds += time.perf_counter() - begin
        model.eval()
        with torch.no_grad():
            h = encode()
        valid = _ranked(h, links, "valid")["mrr"]
        if valid > best:
            best, scores = valid, _ranked(h, links, "test")
    return {**{f"test.{name}": value for name, value in scores.items()}, "train.seconds_per_epoch": seconds / epochs}


class GraphEncoder(nn.Module):
    """The encoder of PyG's example of a graph auto-encoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        convolution = import_module("torch_geometric.nn").GCNConv
        self.first, self.last = convolution(width, 32), convolution(32, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the embedding of every node."""
        rows: Tensor = self.last(self.first(x, edges).relu(), edges)
        return rows


def auto_encoder(links: Links, config: Config, *, epochs: int) -> dict[str, float]:
    """Train PyG's graph auto-encoder on the same and return the same metrics."""
    torch.manual_seed(config.seed)
    model = import_module("torch_geometric.nn").GAE(GraphEncoder(links.features.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = _dense(links.features)

    def epoch() -> None:
        optimizer.zero_grad()
        model.recon_loss(model.encode(x, links.edges), links.edges).backward()
        optimizer.step()

    return best_of(model, epoch, lambda: model.encode(x, links.edges), links, epochs=epochs)


def _dense(features: FeatureTensors) -> Tensor:
    if features.dense is not None:
        return features.dense
    assert features.offsets is not None
    assert features.index is not None
    x = torch.zeros(len(features.offsets) - 1, features.width)
    rows = torch.repeat_interleave(features.offsets.diff())
    x[rows, features.index] = 1.0 if features.value is None else features.value
    return x


def _step(model: Peer, optimizer: torch.optim.Optimizer, links: Links, source: Tensor, target: Tensor) -> None:
    optimizer.zero_grad()
    size = int(links.edges.max()) + 1
    own = torch.cat([source * size + target, target * size + source])
    kept = ~torch.isin(links.edges[0] * size + links.edges[1], own)
    h = model(links.features, links.edges[:, kept])
    negatives = torch.randint(0, len(h), target.shape)
    edge, other = ((h[source] * h[ends]).sum(1) for ends in (target, negatives))
    loss = -(functional.logsigmoid(edge).mean() + functional.logsigmoid(-other).mean()) / _BOTH
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _ranked(h: Tensor, links: Links, split: str) -> dict[str, float]:
    sources, candidates = (torch.from_numpy(each) for each in links.pairs[split])
    scores = [
        (h[source][:, None] * h[ends]).sum(2)
        for source, ends in zip(torch.split(sources, 1024), torch.split(candidates, 1024), strict=True)
    ]
    return metrics_of(torch.cat(scores).numpy(), np.zeros(len(sources), np.int64), label_kind="link").values


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the metrics of gnnflow and of PyG."""
    with folder_of(chosen.workspace) as workspace:
        config = load_config(
            Path(chosen.config).read_text(),
            source=chosen.config,
            overrides=[f"train.epochs={chosen.epochs}", f"train.threads={chosen.threads}"],
            workspace=str(workspace),
            environment={**os.environ, "GNNFLOW_DATA": str(Path(chosen.data).resolve())},
        )
        found, links = ours(config)
        with compute_settings(chosen.threads):
            sides = {"gnnflow": found, "PyG": peer(links, config, epochs=chosen.epochs)}
            if chosen.gae:
                sides["PyG's auto-encoder"] = auto_encoder(links, config, epochs=chosen.gae)
    seconds = sides["gnnflow"]["train.seconds_per_epoch"]
    for name, metrics in sides.items():
        shown = (metrics.get(f"test.{each}") for each in METRICS)
        yield name, *shown, metrics["train.seconds_per_epoch"], metrics["train.seconds_per_epoch"] / seconds


METRICS = ("mrr", "hits_at_1", "hits_at_10", "hits_at_50", "roc_auc")
BENCH = Benchmark(
    columns=("side", *METRICS, "s per epoch", "x gnnflow's"),
    rows=rows,
    options={
        "data": DATA,
        "config": Option(str(Path(__file__).resolve().parents[1] / "configs" / "cora_links.yaml"), "a YAML file"),
        "epochs": 20,
        "threads": 2,
        "gae": Option(0, "epochs of PyG's auto-encoder; 0 leaves it out"),
        "workspace": "",
    },
    small={"epochs": 1, "threads": 1},
    needs=("data/cora", "torch_geometric"),
)


if __name__ == "__main__":
    run(BENCH)
