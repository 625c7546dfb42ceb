"""Small graphs of several types as tables, and as a graph store, shared by tests."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.config import GraphConfig
from gnnflow.ingest.job import IngestJob
from gnnflow.ingest.run import run_rounds
from gnnflow.ingest.tables import read_tables
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import from_matrix, from_ragged
from gnnflow.storage.graph_store import GraphStore
from gnnflow.storage.manifest import Manifest, commit

if TYPE_CHECKING:
    from pathlib import Path

SPLITS = np.array(["train", "valid", "test", None], dtype=object)
SIZES = {"account": 40, "device": 13, "merchant": 25}
RELATIONS = ("account__pays__merchant", "account__sends__account", "account__uses__device")


def typed_tables(*, seed: int = 0, num_edges: int = 120, parallel: bool = True) -> dict[str, pa.Table]:
    """Return random tables of accounts, devices and merchants, by type and by relation.

    Accounts have labels and dense features, merchants sparse ones and some of the accounts' ids, devices none and text
    for ids. Payments have weights and amounts, transfers weights alone. parallel: some edges are there twice.
    """
    rng = np.random.default_rng(seed)
    ids: dict[str, Any] = {
        "account": rng.permutation(SIZES["account"]) * 3 + 1,
        "device": np.array([f"device {number}" for number in rng.permutation(SIZES["device"])]),
        "merchant": rng.permutation(SIZES["merchant"]) * 3 + 31,
    }
    entries = rng.integers(0, 3, SIZES["merchant"])
    places, index = np.r_[0, np.cumsum(entries)], rng.integers(0, 9, entries.sum()).astype(np.int32)
    tables = {
        "account": pa.table(
            {
                "id": ids["account"],
                "x": from_matrix(rng.standard_normal((SIZES["account"], 3)).astype(np.float32)),
                "label": rng.integers(0, 3, SIZES["account"]),
                "split": pa.array(SPLITS[np.arange(SIZES["account"]) % 4], pa.string()),
            }
        ),
        "device": pa.table({"id": ids["device"]}),
        "merchant": pa.table({"id": ids["merchant"], "x_index": from_ragged(places, index)}),
    }
    for relation in RELATIONS:
        source, _, target = relation.split("__")
        pair = rng.integers(0, SIZES[source] * SIZES[target], num_edges)
        pair = pair if parallel else rng.permutation(np.unique(pair))
        columns: dict[str, Any] = {
            "src": ids[source][pair // SIZES[target]],
            "dst": ids[target][pair % SIZES[target]],
        }
        if relation != "account__uses__device":
            columns["weight"] = rng.random(len(pair)).astype(np.float32) + 0.1
        if relation == "account__pays__merchant":
            columns["amount"] = rng.standard_normal(len(pair)).astype(np.float32)
        tables[relation] = pa.table(columns)
    return tables


def write_tables(folder: Path, tables: dict[str, pa.Table], *, row_group_size: int = 1 << 20) -> dict[str, Any]:
    """Write tables by type and relation; return the graph section of a config that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=row_group_size)
    paths = {name: str(folder / f"{name}.parquet") for name in tables}
    return {
        "nodes": {name: path for name, path in paths.items() if "__" not in name},
        "edges": {name: path for name, path in paths.items() if "__" in name},
        "target": "account",
        "edge_features": ["amount"],
        "partitions": 3,
    }


def ingested(folder: Path, graph: dict[str, Any]) -> tuple[GraphStore, Manifest]:
    """Return the graph store that ingest makes of a graph section, below a folder, and its manifest."""
    config, artifact = GraphConfig(**graph), str(folder / "store")
    runner = RoundRunner(str(folder / "work"), Synchronous())
    result = run_rounds(IngestJob(artifact, config, read_tables(config, runner)), runner, check_rows=lambda _: None)
    facts = asdict(result.facts)
    rows = result.rows
    made = Manifest("ingest", "", 1, result.files, {}, rows.rows_in, rows.rows_out, rows.rows_quarantined, facts)
    return GraphStore(artifact, result.facts, 0), commit(artifact, made)
