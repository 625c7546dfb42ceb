"""Models of typed graphs beside PyTorch Geometric's in one run: IMDB, the same split, widths and epochs, several seeds.

    python benchmarks/typed.py --data DIR [--seeds 3] [--only rgcn,han,hgt,sage]

gnnflow's side is `gnnflow run` on configs/imdb.yaml with the model replaced, all stages in this process. PyG's has the
whole graph in memory and a linear map of each type's features before RGCNConv, HANConv, HGTConv, or SAGEConv per
relation summed (HeteroConv). Both take Adam with the same rate and decay and keep the epoch of the best validation
macro-F1. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import HANConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

from gnnflow.config import Config, load_config
from gnnflow.stages import pipeline
from gnnflow.storage.columns import to_ragged
from gnnflow.train.metrics import metrics_of

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "imdb.yaml"
HEADS = 8
MODELS = {
    "sage": "{kind: sage, hidden: 64, layers: 2, dropout: 0.5, head: linear}",
    "rgcn": "{kind: rgcn, hidden: 64, layers: 2, dropout: 0.5, head: linear}",
    "han": f"{{kind: han, hidden: 8, heads: {HEADS}, layers: 2, dropout: 0.5, head: linear}}",
    "hgt": f"{{kind: hgt, hidden: 64, heads: {HEADS}, layers: 2, dropout: 0.5, head: linear}}",
}
Metrics = dict[str, float]
Relation = tuple[str, str, str]


class Tables:
    """IMDB in memory as PyG reads it: dense features by type, edges by relation, labels and splits of movies."""

    def __init__(self, config: Config) -> None:
        graph = config.graph
        nodes = {name: pq.read_table(uri) for name, uri in graph.node_tables.items()}
        place = {name: {key: row for row, key in enumerate(table["id"].to_pylist())} for name, table in nodes.items()}
        self.x = {name: _dense(table) for name, table in nodes.items()}
        self.edges: dict[Relation, Tensor] = {}
        for relation, uri in graph.edge_tables.items():
            source, name, target = str(relation).split("__")
            table = pq.read_table(uri)
            ends = [
                [place[kind][key] for key in table[end].to_pylist()] for kind, end in ((source, "src"), (target, "dst"))
            ]
            self.edges[source, name, target] = torch.tensor(ends)
        self.labels = nodes["movie"]["label"].to_numpy()
        self.splits = np.array(nodes["movie"]["split"].to_pylist())


def _dense(table: Any) -> Tensor:
    width = int((table.schema.metadata or {})[b"feature_dim"])
    offsets, index = to_ragged(table["x_index"])
    rows = np.zeros((table.num_rows, width), np.float32)
    rows[np.repeat(np.arange(table.num_rows), np.diff(offsets)), index] = to_ragged(table["x_value"])[1]
    return torch.from_numpy(rows)


class Peer(nn.Module):
    """Maps of each type's features, two layers of one of PyG's convolutions, a linear map of movies."""

    def __init__(self, kind: str, tables: Tables, hidden: int = 64) -> None:
        super().__init__()
        self.kind, self.types, self.relations = kind, sorted(tables.x), list(tables.edges)
        metadata = (self.types, self.relations)
        self.maps = nn.ModuleDict({name: nn.Linear(x.shape[1], hidden) for name, x in tables.x.items()})
        make: dict[str, Callable[[], nn.Module]] = {
            "rgcn": lambda: RGCNConv(hidden, hidden, len(self.relations)),
            "han": lambda: HANConv(hidden, hidden, metadata, heads=HEADS, dropout=0.5),
            "hgt": lambda: HGTConv(hidden, hidden, metadata, heads=HEADS),
            "sage": lambda: HeteroConv({each: SAGEConv(hidden, hidden) for each in self.relations}, aggr="sum"),
        }
        self.layers = nn.ModuleList([make[kind](), make[kind]()])
        self.head = nn.Linear(hidden, 3)

    def forward(self, tables: Tables) -> Tensor:
        """Return the logits of every movie."""
        h = {name: self.maps[name](x) for name, x in tables.x.items()}
        for layer in self.layers:
            h = {name: functional.dropout(rows, 0.5, training=self.training) for name, rows in h.items()}
            h = self._as_one(layer, h, tables) if self.kind == "rgcn" else layer(h, tables.edges)
            h = {name: rows.relu() for name, rows in h.items()}
        logits: Tensor = self.head(functional.dropout(h["movie"], 0.5, training=self.training))
        return logits

    def _as_one(self, layer: nn.Module, h: dict[str, Tensor], tables: Tables) -> dict[str, Tensor]:
        """Return RGCNConv's rows by type: it reads one array of nodes and a number per edge."""
        sizes = [len(h[name]) for name in self.types]
        starts = dict(zip(self.types, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        pairs = [tables.edges[each] + torch.tensor([[starts[each[0]]], [starts[each[2]]]]) for each in self.relations]
        number = torch.repeat_interleave(torch.tensor([each.shape[1] for each in pairs]))
        rows = layer(torch.cat([h[name] for name in self.types]), torch.cat(pairs, 1), number)
        return dict(zip(self.types, rows.split(sizes), strict=True))


def theirs(kind: str, tables: Tables, config: Config, seed: int) -> Metrics:
    """Return PyG's test metrics at the epoch of the best validation macro-F1."""
    torch.manual_seed(seed)
    model = Peer(kind, tables)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.train.lr, weight_decay=config.train.weight_decay)
    rows = {split: np.flatnonzero(tables.splits == split) for split in ("train", "valid", "test")}
    labels, best, found = torch.from_numpy(tables.labels), -1.0, Metrics()
    for _ in range(config.train.epochs):
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tables)[rows["train"]], labels[rows["train"]])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(tables).numpy()
        valid = _metrics(logits, tables, rows["valid"])
        if valid["macro_f1"] > best:
            best, found = valid["macro_f1"], _metrics(logits, tables, rows["test"])
    return found


def _metrics(logits: Any, tables: Tables, rows: Any) -> Metrics:
    names = ("accuracy", "macro_f1")
    return dict(metrics_of(logits[rows], tables.labels[rows], label_kind="single", names=names).values)


def ours(kind: str, config: Config, seed: int) -> Metrics:
    """Return gnnflow's test metrics of the same."""
    overrides = {"seed": seed, "train": config.train.model_copy(update={"patience": 0})}
    metrics = pipeline.run_quietly(config.model_copy(update=overrides)).metrics
    return {name: metrics[f"test.{name}"] for name in ("accuracy", "macro_f1")}


def main() -> None:
    """Train all, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default=",".join(MODELS))
    chosen = parser.parse_args()
    os.environ["GNNFLOW_DATA"] = str(Path(chosen.data).resolve())
    print("| IMDB | gnnflow, accuracy | PyG | gnnflow, macro-F1 | PyG |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as workspace:
        for kind in chosen.only.split(","):
            settings = [f"model={MODELS[kind]}", f"workspace={workspace}", "cluster={kind: synchronous}"]
            config = load_config(CONFIG.read_text(), overrides=settings)
            tables = Tables(config)
            sides = [
                [ours(kind, config, seed) for seed in range(chosen.seeds)],
                [theirs(kind, tables, config, seed) for seed in range(chosen.seeds)],
            ]
            cells = [_cell([run[name] for run in runs]) for name in ("accuracy", "macro_f1") for runs in sides]
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)


def _cell(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.4f} +- {spread:.4f}"


if __name__ == "__main__":
    main()
