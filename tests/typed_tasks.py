"""Configs of links and edge labels of one relation of a small typed graph, and what runs of them stored and said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.config import config_from_dict
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.graph_store import GraphStore
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from gnnflow.config import Config


PAYS, USES, SENDS = "account__pays__merchant", "account__uses__device", "account__sends__account"
REVERSE = "merchant__rev_pays__account"
LINK = {"kind": "link", "width": 8, "split": {"kind": "random", "valid": 0.2, "test": 0.2}}
NEGATIVES = {"kind": "uniform", "pool": 32, "evaluation": 10}
SPLITS = list(enumerate(("train", "valid", "test")))
COLUMNS = ("dst", "src", "edge_key", "weight", "attributes")
Ends = tuple[Any, Any]


def config_of(
    folder: Path,
    tables: dict[str, pa.Table],
    *,
    target: str = PAYS,
    task: dict[str, Any] | None = None,
    **sections: Any,
) -> Config:
    asked = {**LINK, **(task or {})}
    if asked["kind"] == "link":
        asked = {"negatives": NEGATIVES, **asked}
    metric = "mrr" if asked["kind"] == "link" else "accuracy"
    graph = {**write_tables(folder, tables), "target": target, "reverse_edges": True, **sections.pop("graph", {})}
    return config_from_dict(
        {
            "name": "typed-edges",
            "workspace": str(folder / "runs"),
            "graph": graph,
            "task": asked,
            "model": {"kind": "sage", "hidden": 8, "layers": 2, "dropout": 0.0, **sections.pop("model", {})},
            "train": {"epochs": 2, "batch_size": 32, "metric": metric, **sections.pop("train", {})},
            "infer": {"parity_samples": 20, **sections.pop("infer", {})},
            "cluster": {"kind": "synchronous"},
            **sections,
        }
    )


def store_of(config: Config) -> GraphStore:
    made = make_artifact(StageContext.of(config), "ingest")
    return GraphStore.of(made.artifact, made.manifest)


def ids_of(store: GraphStore) -> list[Any]:
    """The users' ids, by dense id."""
    every = range(store.num_partitions), range(store.schema.num_types)
    tables = (store.nodes(part, ["id"], node_type=kind) for part in every[0] for kind in every[1])
    return [each for table in tables for each in table["id"].to_pylist()]


def edges_of(store: GraphStore) -> dict[str, list[Ends]]:
    """The edges of every relation that carry messages, by the users' ids."""
    ids = ids_of(store)
    found: dict[str, list[Ends]] = {}
    for number, relation in enumerate(store.schema.relations):
        tables = [store.edges(part, ["src", "dst"], relation=number) for part in range(store.num_partitions)]
        ends = zip(*(pa.concat_tables(tables)[name].to_pylist() for name in ("src", "dst")), strict=True)
        found[str(relation)] = [(ids[a], ids[b]) for a, b in ends]
    return found


def pairs_of(store: GraphStore) -> dict[Ends, int]:
    ids = ids_of(store)
    table = pa.concat_tables([store.pairs(part, ["src", "dst", "split"]) for part in range(store.num_partitions)])
    rows = zip(*(table[name].to_pylist() for name in ("src", "dst", "split")), strict=True)
    return {(ids[a], ids[b]): split for a, b, split in rows}


def ends_in(table: pa.Table) -> list[Ends]:
    return list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))


def predictions(result: Any) -> pa.Table:
    parts = sorted(Path(result.predictions.removeprefix("file://")).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(path) for path in parts])


def labelled(*, seed: int = 0, times: bool = False) -> dict[str, pa.Table]:
    """Tables whose payments have a label that their amount gives, which is null for some, and perhaps times."""
    tables = typed_tables(seed=seed, num_edges=400)
    rng = np.random.default_rng(seed + 1)
    pays = tables[PAYS]
    amount = pays["amount"].to_numpy()
    illicit = pa.array((amount > 0).astype(np.int64), mask=rng.random(len(amount)) < 0.1)
    tables[PAYS] = pays.append_column("illicit", illicit)
    if times:
        for relation in (PAYS, SENDS):
            stamps = pa.array(rng.permutation(tables[relation].num_rows))
            tables[relation] = tables[relation].append_column("timestamp", stamps)
    return tables
