"""Models of typed graphs on IMDB against PyTorch Geometric, and MAGNN's table 3 against the paper.

    python benchmarks/typed.py --data DIR [--seeds 3] [--only sage,rgcn,han,hgt,magnn]

sage, rgcn, han, hgt: gnnflow runs as `gnnflow run` on configs/imdb.yaml with the model replaced, all stages in this
process. PyG's has the whole graph in memory and a linear map of each type's features before RGCNConv, HANConv, HGTConv,
or SAGEConv per relation summed (HeteroConv). Both take Adam with the same rate and decay and keep the epoch of the best
validation macro-F1.

magnn: the protocol of section 5.3 of the paper (Fu et al., WWW 2020): configs/imdb_magnn.yaml is trained on the labels
of 400 movies and stopped by the labels of 400 others; a linear SVM is then trained on the embeddings of 20, 40, 60 and
80 % of the 3,478 test movies and scored on the rest, ten times each.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from harness import DATA, Benchmark, Chosen, Option, Spread, folder_of, run
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.config import Config, load_config
from gnnflow.stages import pipeline
from gnnflow.storage.columns import to_matrix, to_ragged
from gnnflow.train.metrics import metrics_of

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
METRICS = ("accuracy", "macro_f1")
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
    """IMDB in memory for PyG: dense features by type, edges by relation, labels and splits of movies."""

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
    """Linear maps of each type's features, two layers of a PyG convolution, and a linear map of movies."""

    def __init__(self, kind: str, tables: Tables, hidden: int = 64) -> None:
        super().__init__()
        self.kind, self.types, self.relations = kind, sorted(tables.x), list(tables.edges)
        metadata = (self.types, self.relations)
        self.maps = nn.ModuleDict({name: nn.Linear(x.shape[1], hidden) for name, x in tables.x.items()})
        pyg = import_module("torch_geometric.nn")
        make: dict[str, Callable[[], nn.Module]] = {
            "rgcn": lambda: pyg.RGCNConv(hidden, hidden, len(self.relations)),
            "han": lambda: pyg.HANConv(hidden, hidden, metadata, heads=HEADS, dropout=0.5),
            "hgt": lambda: pyg.HGTConv(hidden, hidden, metadata, heads=HEADS),
            "sage": lambda: pyg.HeteroConv({each: pyg.SAGEConv(hidden, hidden) for each in self.relations}, aggr="sum"),
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
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(tables).numpy()
        valid = _metrics(logits, tables, rows["valid"])
        if valid["macro_f1"] > best:
            best, found = valid["macro_f1"], _metrics(logits, tables, rows["test"])
    return found


def _metrics(logits: Any, tables: Tables, rows: Any) -> Metrics:
    return dict(metrics_of(logits[rows], tables.labels[rows], label_kind="single", names=METRICS).values)


def ours(kind: str, config: Config, seed: int) -> Metrics:
    """Return gnnflow's test metrics on the same task."""
    overrides = {"seed": seed, "train": config.train.model_copy(update={"patience": 0})}
    metrics = pipeline.run_quietly(config.model_copy(update=overrides)).metrics
    return {name: metrics[f"test.{name}"] for name in METRICS}


SHARES = (0.2, 0.4, 0.6, 0.8)
REPEATS = 10
# table 3 of the paper
PAPER = {"macro-F1": (0.5935, 0.6027, 0.6066, 0.6144), "micro-F1": (0.5960, 0.6050, 0.6088, 0.6153)}


def embeddings(config: Config) -> tuple[Any, Any]:
    """Return the embeddings of the test movies and their classes, from a run of all stages."""
    run = pipeline.run_quietly(config)
    folder = Path(run.predictions)
    scored = pq.read_table(sorted(folder.glob("*.parquet")), columns=["id", "embedding"]).sort_by("id")
    movies = pq.read_table(config.graph.node_tables["movie"], columns=["id", "label", "split"]).sort_by("id")
    assert scored["id"].equals(movies["id"])
    test = np.flatnonzero(np.array(movies["split"].to_pylist()) == "test")
    return to_matrix(scored["embedding"])[test], movies["label"].to_numpy()[test]


def svm_scores(rows: Any, labels: Any, share: float) -> list[tuple[float, float]]:
    """Return (macro-F1, micro-F1) of a linear SVM trained on a share of the rows, ten times."""
    found = []
    for repeat in range(REPEATS):
        train, rest, of_train, of_rest = train_test_split(
            rows, labels, train_size=share, shuffle=True, random_state=repeat
        )
        predicted = LinearSVC(dual=False).fit(train, of_train).predict(rest)
        found.append(tuple(f1_score(of_rest, predicted, average=kind) for kind in ("macro", "micro")))
    return found


def pyg_rows(kind: str, chosen: Chosen, workspace: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the accuracy and macro-F1 of a model in gnnflow and in PyG."""
    config = config_of("imdb", chosen, workspace, f"model={MODELS[kind]}", "cluster={kind: synchronous}")
    tables = Tables(config)
    found = [ours(kind, config, seed) for seed in range(chosen.seeds)]
    peers = [theirs(kind, tables, config, seed) for seed in range(chosen.seeds)]
    for name in METRICS:
        sides = [Spread(each[name] for each in runs) for runs in (found, peers)]
        yield kind, name, *sides, statistics.mean(sides[0]) - statistics.mean(sides[1]), None


def paper_rows(chosen: Chosen, workspace: Path) -> Iterator[tuple[Any, ...]]:
    """Yield the macro-F1 and micro-F1 of SVMs on MAGNN's embeddings, here and in the paper."""
    scores: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    for seed in range(chosen.seeds):
        found, labels = embeddings(config_of("imdb_magnn", chosen, workspace, f"seed={seed}"))
        for share in SHARES:
            scores[share] += svm_scores(found, labels, share)
    for place, (name, figures) in enumerate(PAPER.items()):
        for share, paper in zip(SHARES, figures, strict=True):
            held = Spread(pair[place] for pair in scores[share])
            yield f"magnn, SVM on {share:.0%}", name, held, None, statistics.mean(held) - paper, paper


def config_of(name: str, chosen: Chosen, workspace: Path, *overrides: str) -> Config:
    """Return the run of a file of configs/."""
    more = [each.strip() for each in chosen.set.split(";") if each.strip()]
    return load_config(
        (CONFIGS / f"{name}.yaml").read_text(),
        overrides=[f"workspace={workspace}", *overrides, *more],
        environment={**os.environ, "GNNFLOW_DATA": str(Path(chosen.data).resolve())},
    )


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of each model."""
    with folder_of("") as workspace:
        for kind in chosen.only.split(","):
            yield from paper_rows(chosen, workspace) if kind == "magnn" else pyg_rows(kind, chosen, workspace)


BENCH = Benchmark(
    columns=("model", "metric", "gnnflow", "PyG", "difference", "paper"),
    rows=rows,
    options={
        "data": DATA,
        "only": Option("sage,rgcn,han,hgt,magnn", "models"),
        "seeds": 3,
        "set": Option("", "KEY=VALUE of the config, several separated by ';'"),
    },
    small={"only": "sage", "seeds": 1, "set": "train.epochs=2"},
    needs=("data/imdb", "torch_geometric"),
)


if __name__ == "__main__":
    run(BENCH)
