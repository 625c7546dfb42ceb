"""Link prediction beside PyTorch Geometric in one run: the same graph, splits, widths, batches and ranked candidates.

    python benchmarks/links.py configs/cora_links.yaml [--epochs 20] [--threads 2] [--workspace DIR]

gnnflow runs its stages up to training. PyG's side has its convolutions (SAGEConv, mean) over the whole message graph in
memory, which it encodes once a step without the edges of the step's pairs, and draws its own uniform negatives. Both
keep the epoch of the best validation MRR and rank each test edge among the same pairs. `--gae EPOCHS` adds PyG's own
example of link prediction, examples/autoencoder.py: a graph auto-encoder (Kipf and Welling, 2016) of two GCNConv layers
of 32 and 16 columns, Adam at 0.01, whose steps have all training edges as messages and as targets. Prints one JSON
line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GAE, GCNConv, SAGEConv

from gnnflow.config import Config, LinkTask, MiniBatchConfig, load_config
from gnnflow.graph.arrays import IntArray
from gnnflow.graph.facts import FlatFacts
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.graphfeature.pairs import read_pair_shard
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
    """Two SAGEConv layers of PyG behind an embedding bag where features are sparse; pairs by inner product."""

    def __init__(self, features: FeatureTensors, *, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        sparse = features.dense is None
        self.encoder = BagEncoder(features.width, hidden) if sparse else None
        self.first = SAGEConv(hidden if sparse else features.width, hidden)
        self.last = SAGEConv(hidden, width)
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
    """Train with gnnflow and return its metrics, and what it trained on."""
    context = StageContext.of(config)
    made = {stage: make_artifact(context, stage) for stage in ("ingest", "select", "flat", "train")}
    store = GraphStore.of(made["ingest"].artifact, made["ingest"].manifest)
    return made["train"].facts(TrainFacts).metrics, _links(config, store, made["flat"])


def _links(config: Config, store: GraphStore, flat: Any) -> Links:
    assert isinstance(config.task, LinkTask)
    parts = range(store.num_partitions)
    edges = [store.edges(part, ["src", "dst"]) for part in parts]
    ends = [np.concatenate([to_numpy(each[name]) for each in edges]) for name in ("src", "dst")]
    tables = [features_of(store.nodes(part, store.feature_columns), store.facts.features.width) for part in parts]
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
    torch.manual_seed(config.seed)
    model = Peer(links.features, hidden=config.model.hidden, width=config.task.width, dropout=config.model.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.lr, weight_decay=config.train.weight_decay)
    sources, candidates = (torch.from_numpy(each) for each in links.pairs["train"])
    assert isinstance(config.train, MiniBatchConfig)
    best, scores, seconds = -1.0, dict[str, float](), 0.0
    for _ in range(epochs):
        begin = time.perf_counter()
        model.train()
        for batch in torch.split(torch.randperm(len(sources)), config.train.batch_size):
            _step(model, optimizer, links, sources[batch], candidates[batch, 0])
        seconds += time.perf_counter() - begin
        valid = _score(model, links, "valid")["mrr"]
        if valid > best:
            best, scores = valid, _score(model, links, "test")
    return {**{f"test.{name}": value for name, value in scores.items()}, "train.seconds_per_epoch": seconds / epochs}


class GraphEncoder(nn.Module):
    """The encoder of PyG's example of a graph auto-encoder."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = GCNConv(width, 32), GCNConv(32, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Return the embedding of every node."""
        rows: Tensor = self.last(self.first(x, edges).relu(), edges)
        return rows


def auto_encoder(links: Links, config: Config, *, epochs: int) -> dict[str, float]:
    """Train PyG's graph auto-encoder on the same and return the same metrics."""
    torch.manual_seed(config.seed)
    model = GAE(GraphEncoder(links.features.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = _dense(links.features)
    assert isinstance(config.train, MiniBatchConfig)
    best, scores, seconds = -1.0, dict[str, float](), 0.0
    for _ in range(epochs):
        begin = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        model.recon_loss(model.encode(x, links.edges), links.edges).backward()
        optimizer.step()
        seconds += time.perf_counter() - begin
        with torch.no_grad():
            h = model.eval().encode(x, links.edges)
        valid = _ranked(h, links, "valid")["mrr"]
        if valid > best:
            best, scores = valid, _ranked(h, links, "test")
    return {**{f"test.{name}": value for name, value in scores.items()}, "train.seconds_per_epoch": seconds / epochs}


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
    loss.backward()
    optimizer.step()


@torch.no_grad()
def _score(model: Peer, links: Links, split: str) -> dict[str, float]:
    model.eval()
    return _ranked(model(links.features, links.edges), links, split)


def _ranked(h: Tensor, links: Links, split: str) -> dict[str, float]:
    sources, candidates = (torch.from_numpy(each) for each in links.pairs[split])
    scores = [
        (h[source][:, None] * h[ends]).sum(2)
        for source, ends in zip(torch.split(sources, 1024), torch.split(candidates, 1024), strict=True)
    ]
    return metrics_of(torch.cat(scores).numpy(), np.zeros(len(sources), np.int64), label_kind="link").values


def main() -> None:
    """Compare on one config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gae", type=int, default=0, metavar="EPOCHS", help="also PyG's auto-encoder, so many epochs")
    parser.add_argument("--workspace", default="")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        config = load_config(
            Path(asked.config).read_text(),
            source=asked.config,
            overrides=[
                f"workspace={asked.workspace or scratch}",
                f"train.epochs={asked.epochs}",
                f"train.threads={asked.threads}",
            ],
        )
        metrics, links = ours(config)
        with compute_settings(asked.threads):
            theirs = peer(links, config, epochs=asked.epochs)
            example = auto_encoder(links, config, epochs=asked.gae) if asked.gae else {}
    compared = [name for name in theirs if name in metrics]
    print(
        json.dumps(
            {
                "config": config.name,
                "epochs": asked.epochs,
                "gnnflow": {name: metrics[name] for name in compared},
                "pyg": {name: theirs[name] for name in compared},
                "pyg's auto-encoder": {name: example[name] for name in compared if name in example},
                "ratio of seconds, pyg / gnnflow": theirs["train.seconds_per_epoch"]
                / metrics["train.seconds_per_epoch"],
            }
        )
    )


if __name__ == "__main__":
    main()
