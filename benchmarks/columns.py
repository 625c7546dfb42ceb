"""Test scores with columns as tables hold them, with columns prepared by scikit-learn, and PyG's with the latter.

    python benchmarks/columns.py [--only accounts,users] [--seeds 5] [--epochs 60] [--pyg PYTHON]

Five graphs with columns of several kinds and gaps. `accounts` and `users` are CSV exports (`gnnflow.datasets`):
one with its payments, the other joined where they bought an item in turn. `payments` is the quickstart, with its
eight features as columns. `tumours` and `wines` are scikit-learn's tables, each row joined to its five nearest; a tenth
of their numbers is removed, and one column becomes text.

GraphSAGE of 2 layers, hidden 32, over the whole graph. `raw`: gnnflow reads the columns. `prepared`: a list of numbers
made by SimpleImputer(add_indicator), StandardScaler and OneHotEncoder, in the same store otherwise. `pyg`: SAGEConv on
the prepared numbers, with the same optimiser, rate and epochs, and the weights that validation picks. The score is the
area under the ROC curve, or accuracy above two classes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from harness import PYG, Benchmark, Chosen, Found, Option, Spread, cell, run, tell
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.impute import SimpleImputer
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gnnflow.cluster import Cluster
from gnnflow.config import config_from_dict
from gnnflow.datasets import payments, write_accounts, write_shop
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact

Array = Any
TEXT = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=True)
HIDDEN, RATE, NEAREST, GONE = 32, 0.01, 5, 0.1


@dataclass(frozen=True)
class Data:
    """A table of nodes with `id`, `label` and `split`, the columns to learn from, and edges as row numbers [E]."""

    nodes: pa.Table
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    src: Array
    dst: Array

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

    def rows(self, split: str) -> Array:
        """Return the rows of a split."""
        return np.flatnonzero(np.asarray(pc.fill_null(pc.equal(self.nodes["split"], split), fill_value=False)))

    @property
    def prepared(self) -> Array:
        """The columns as scikit-learn prepares them [N, width]."""
        names = (*self.numbers, *self.categories)
        held = np.stack([np.array(self.nodes[name].to_pylist(), object) for name in names], 1)
        for place in range(len(names)):
            none = np.nan if place < len(self.numbers) else "none"
            held[:, place] = [none if value is None else value for value in held[:, place]]
        numbers = make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True))
        made = ColumnTransformer(
            [
                ("numbers", numbers, list(range(len(self.numbers)))),
                ("categories", OneHotEncoder(sparse_output=False), list(range(len(self.numbers), len(names)))),
            ]
        )
        return np.asarray(made.fit_transform(held), np.float32)


def with_splits(nodes: pa.Table, label: pa.Array) -> pa.Table:
    """Return the nodes with a label, and a split of the labelled: 60, 20 and 20 in a hundred."""
    drawn = np.random.default_rng(7).choice(["train", "valid", "test"], len(label), p=[0.6, 0.2, 0.2])
    split = pc.if_else(pc.is_valid(label), pa.array(drawn), pa.scalar(None, pa.string()))
    return nodes.append_column("label", label).append_column("split", split)


def read(uri: str) -> pa.Table:
    """Return an exported table."""
    return pyarrow.csv.read_csv(uri, convert_options=TEXT).combine_chunks()


def accounts(folder: str) -> Data:
    """Return accounts and their payments."""
    table, edges = map(read, write_accounts(folder))
    ids = table["account_id"].combine_chunks()
    nodes = pa.table({"id": ids, **{name: table[name] for name in ("age", "balance", "country", "premium")}})
    src, dst = (np.asarray(pc.index_in(edges[name], ids)) for name in ("sender", "receiver"))
    return Data(
        with_splits(nodes, table["fraud"].combine_chunks()), ("age", "balance"), ("country", "premium"), src, dst
    )


def users(folder: str) -> Data:
    """Return users, joined to whoever bought an item before them."""
    table, _, _, orders = map(read, write_shop(folder))
    ids = table["user_id"].combine_chunks()
    nodes = pa.table({"id": ids, **{name: table[name] for name in ("birth_year", "city", "newsletter")}})
    orders = orders.sort_by([("item_id", "ascending"), ("ordered_at", "ascending")])
    buyer, item = np.asarray(pc.index_in(orders["user_id"], ids)), np.asarray(orders["item_id"].to_pylist())
    same = np.flatnonzero((item[1:] == item[:-1]) & (buyer[1:] != buyer[:-1]))
    src, dst = np.r_[buyer[same], buyer[same + 1]], np.r_[buyer[same + 1], buyer[same]]
    return Data(
        with_splits(nodes, table["churned"].combine_chunks()), ("birth_year",), ("city", "newsletter"), src, dst
    )


def network(folder: str) -> Data:
    """Return the quickstart's payments, its features as eight columns, and people told from merchants by text."""
    graph = payments(num_nodes=4_000, num_edges=40_000)
    ids = graph.nodes["id"].combine_chunks()
    x = np.stack(graph.nodes["x"].to_numpy(zero_copy_only=False))
    names = tuple(f"x{place}" for place in range(x.shape[1]))
    kind = pc.utf8_slice_codeunits(ids, 0, 3)
    nodes = pa.table({"id": ids, **{name: x[:, place] for place, name in enumerate(names)}, "kind": kind})
    src, dst = (np.asarray(pc.index_in(graph.edges[end], ids)) for end in ("src", "dst"))
    label = pc.binary_join_element_wise("c", graph.nodes["label"].cast(pa.string()), "").combine_chunks()
    return Data(with_splits(nodes, label), names, ("kind",), src, dst)


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
    nodes = with_splits(pa.table({"id": ids, **columns, "band": band}), label)
    return Data(nodes, names, ("band",), joined.col, joined.row)


GRAPHS: dict[str, Callable[[str], Data]] = {
    "accounts": accounts,
    "users": users,
    "payments": network,
    "tumours": lambda _: nearest(load_breast_cancer(), "t"),
    "wines": lambda _: nearest(load_wine(), "w"),
}


def score(scores: Array, labels: Array) -> float:
    """Return the area under the ROC curve of two classes, the accuracy of more."""
    if scores.shape[1] > 2:  # noqa: PLR2004 - classes
        return float(accuracy_score(labels, scores.argmax(1)))
    return float(roc_auc_score(labels, scores[:, 1]))


def trained(chosen: Chosen) -> Found:
    """Return gnnflow's test score."""
    with tempfile.TemporaryDirectory() as folder:
        data = GRAPHS[chosen.graph](f"{folder}/export")
        nodes, features = data.nodes, [*data.numbers, *data.categories]
        if chosen.form == "prepared":
            x = data.prepared
            nodes, features = nodes.append_column("x", pa.array(list(x), pa.list_(pa.float32(), x.shape[1]))), ["x"]
        pq.write_table(nodes, f"{folder}/nodes.parquet")
        pq.write_table(data.edges, f"{folder}/edges.parquet")
        is_binary = data.labels.max() == 1
        config = config_from_dict(
            {
                "name": "columns",
                "seed": chosen.seed,
                "workspace": f"{folder}/runs",
                "graph": {
                    "nodes": f"{folder}/nodes.parquet",
                    "edges": f"{folder}/edges.parquet",
                    "features": features,
                    "normalize": "standard" if chosen.form == "raw" else "none",
                },
                "model": {"kind": "sage", "hidden": HIDDEN, "layers": 2, "dropout": 0.0},
                "train": {
                    "strategy": "global-batch",
                    "epochs": chosen.epochs,
                    "lr": RATE,
                    "patience": chosen.epochs,
                    "metric": "roc_auc" if is_binary else "accuracy",
                },
                "cluster": {"kind": "synchronous"},
            }
        )
        with Cluster(config.cluster) as cluster:
            context = StageContext.of(config, cluster)
            for stage in context.run.stages[: context.run.stages.index("train")]:
                make_artifact(context, stage)
            facts = make_artifact(context, "train").facts(TrainFacts)
        return {"score": facts.metrics["test.roc_auc" if is_binary else "test.accuracy"], "width": 0}


def peer_trained(chosen: Chosen) -> Found:
    """Return the test score of PyG's SAGEConv on the prepared columns."""
    import torch
    from torch_geometric.nn import SAGEConv

    with tempfile.TemporaryDirectory() as folder:
        data = GRAPHS[chosen.graph](folder)
    torch.manual_seed(chosen.seed)
    x, labels = torch.from_numpy(data.prepared), data.labels
    edges, truth = torch.tensor(np.stack([data.src, data.dst]).astype(np.int64)), torch.tensor(labels).long()
    first, second = SAGEConv(x.shape[1], HIDDEN), SAGEConv(HIDDEN, int(labels.max()) + 1)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=RATE)
    rows = {split: data.rows(split) for split in ("train", "valid", "test")}
    best, test = -1.0, 0.0
    for _ in range(chosen.epochs):
        optimizer.zero_grad()
        outputs = second(first(x, edges).relu(), edges)
        torch.nn.functional.cross_entropy(outputs[rows["train"]], truth[rows["train"]]).backward()
        optimizer.step()
        with torch.no_grad():
            found = torch.softmax(second(first(x, edges).relu(), edges), 1).numpy()
        valid = score(found[rows["valid"]], labels[rows["valid"]])
        if valid > best:
            best, test = valid, score(found[rows["test"]], labels[rows["test"]])
    return {"score": test, "width": x.shape[1]}


def rows(chosen: Chosen) -> Iterator[tuple[Any, ...]]:
    """Yield the scores of each graph by form."""
    for graph in chosen.only.split(","):
        found: dict[str, list[float]] = {}
        for seed in range(chosen.seeds):
            for form in ("raw", "prepared", *(("pyg",) if chosen.pyg else ())):
                given = {"graph": graph, "form": form, "seed": seed}
                ran = cell(
                    chosen, "pyg" if form == "pyg" else "own", python=chosen.pyg if form == "pyg" else "", **given
                )
                found.setdefault(form, []).append(ran["score"])
                tell(f"{graph} {form} seed {seed}: {ran['score']:.4f}")
        means = {form: statistics.mean(scores) for form, scores in found.items()}
        apart = means["raw"] - max(mean for form, mean in means.items() if form != "raw")
        yield (
            graph,
            *(Spread(found.get(form, ())) if found.get(form) else "" for form in ("raw", "prepared", "pyg")),
            apart,
        )


BENCH = Benchmark(
    columns=("graph", "raw", "prepared", "pyg", "raw - best other"),
    rows=rows,
    options={
        "only": Option(",".join(GRAPHS), "graphs"),
        "seeds": 5,
        "epochs": 60,
        "pyg": PYG,
        "graph": "",
        "form": "",
        "seed": 0,
    },
    small={"only": "wines", "seeds": 1, "epochs": 3},
    cells={"own": trained, "pyg": peer_trained},
)


if __name__ == "__main__":
    run(BENCH)
