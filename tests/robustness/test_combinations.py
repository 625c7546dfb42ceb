"""Keys of the whole configuration put together at random: a run gives certified predictions, or is refused by a key.

A key that is refused is left out and the run tried again, so that most of them end with predictions: what is looked for
is a combination that nobody thought of and that neither is refused nor works. Half a minute in CI; more with
GNNFLOW_FUZZ_SECONDS. A failure prints the seed and the configuration.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.command_line import Shown, run_cli
from tests.small_graphs import write_graph
from tests.typed_graphs import SPLITS, typed_tables, write_tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SECONDS = float(os.environ.get("GNNFLOW_FUZZ_SECONDS", "30"))
MOST_REFUSED = 12  # keys of one configuration
REFUSED_KEY = re.compile(r"^(?:error: |  )(?:\S+\.yaml: )?([a-z_]+\.[a-z_.]+): ", re.MULTILINE)

TYPED_PATHS = [["account", "account"], ["account", "merchant", "account"], ["account", "account", "account"]]
PLAIN_PATHS = [["node", "node"], ["node", "node", "node"]]
TYPED_EDGES = ["account__sends__account", "account__pays__merchant", "account__uses__device"]
DRAWN = {"kind": "random", "valid": 0.2, "test": 0.2}

# Sections as wholes, of which one is drawn each time; fan-outs are cut to the layers of the model.
TASKS: list[dict[str, Any]] = [
    *[{"kind": "node"}] * 3,
    {"kind": "node", "split": DRAWN},
    *[
        {"kind": "link", "width": 8, "decoder": {"kind": decoder}, "split": split, "negatives": negatives}
        for decoder, split in (("dot", {"kind": "random"}), ("mlp", {"kind": "column"}), ("distmult", {"kind": "time"}))
        for negatives in ({"kind": "uniform", "evaluation": 7}, {"kind": "in_batch", "evaluation": 7})
    ],
    *[
        {"kind": "edge", "width": 8, "messages": messages, "split": {"kind": split}}
        for messages in (True, False)
        for split in ("random", "column", "time")
    ],
]
PARTITIONS = [
    *[{"kind": kind} for kind in ("hash", "hash", "range", "balanced", "metis", "louvain")],
    {"kind": "ldg", "even": ["nodes", "edges", "targets"]},
]
NEIGHBORS: list[dict[str, Any]] = [
    *[{"kind": "direct"}] * 3,
    *[{"sampling": {"kind": kind, "fanout": [3, 2, 2]}} for kind in ("uniform", "weighted", "top_k")],
    {"kind": "walks", "walks": 4, "top_k": 3},
    {"kind": "metapaths", "max_instances": 20},
    {"kind": "anchors"},
    {"kind": "rings", "max_nodes": 20},
]
KINDS = ("gcn", "sage", "gin", "gat", "gat_e", "ggcn", "ggnn", "rgcn", "hgt", "han", "pinsage", "magnn", "pgnn")
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "mini-batch", "batch_size": 16},
    {"strategy": "mini-batch", "source": "store", "batch_size": 8, "accumulate": 3},
    {"strategy": "mini-batch", "source": "store", "resample": "epoch"},
    {"strategy": "cluster-batch", "boundary_hops": 1},
    {"strategy": "global-batch", "recompute": True},
    {"strategy": "global-batch", "memory": "200MiB"},
    {"strategy": "global-batch", "memory": "64MiB"},
]
# Single keys, each of which is there in some runs.
KEYS: dict[str, list[Any]] = {
    "graph.partitions": [1, 2, 5],
    "graph.reverse_edges": [True],
    "graph.normalize": ["row", "standard"],
    "graph.edge_features": [["amount"]],
    "graph.edge_normalize": ["standard"],
    "flat.layout": ["inline"],
    "flat.targets": ["all"],
    "flat.shard_size": [10],
    "model.heads": [2],
    "model.norm": ["layer"],
    "model.residual": [True],
    "model.head": ["linear", "jumping"],
    "model.jumping": ["max"],
    "model.encoder": ["linear"],
    "model.across": ["mean", "max", "attention", "concat"],
    "train.precision": ["bfloat16"],
    "train.loss": [{"kind": "focal"}, {"kind": "huber"}],
    "train.schedule": [{"kind": "linear"}, {"kind": "cosine"}, {"kind": "plateau"}],
    "train.class_weight": ["balanced"],
    "train.baseline": [True],
    "train.folds": [1, 2],
    "train.cache": [0],
    "infer.targets": [["test"]],
    "infer.embeddings": [True],
    "infer.sampling": ["none"],
}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The graph sections of three graphs: of classes, of numbers, and of types."""
    return write_graphs(tmp_path_factory.mktemp("graphs"))


def write_graphs(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the three graphs, and return the section of each."""
    tables = typed_tables()
    tables = {name: _with_targets(table) if "__" in name else table for name, table in tables.items()}
    typed = write_tables(folder / "typed", tables)
    return {"classes": _plain(folder / "classes"), "numbers": _plain(folder / "numbers", 5000.0), "typed": typed}


def _plain(folder: Path, deviation: float = 0.0) -> dict[str, Any]:
    write_graph(folder, num_nodes=80, num_edges=400, hub=1)
    nodes, edges = (folder / f"{name}.parquet" for name in ("nodes", "edges"))
    pq.write_table(_with_targets(pq.read_table(edges)), edges)
    if deviation:
        table = pq.read_table(nodes)
        label = pa.array(np.random.default_rng(0).normal(1e5, deviation, table.num_rows))
        pq.write_table(table.set_column(table.column_names.index("label"), "label", label), nodes)
    return {"nodes": str(nodes), "edges": str(edges)}


def _with_targets(edges: pa.Table) -> pa.Table:
    """Return edges with times, and with labels and splits of their own."""
    rng, number = np.random.default_rng(1), edges.num_rows
    edges = edges.append_column("timestamp", pa.array(rng.integers(0, 1000, number)))
    edges = edges.append_column("label", pa.array(rng.integers(0, 2, number)))
    return edges.append_column("split", pa.array(SPLITS[np.arange(number) % 4], pa.string()))


def drawn(seed: int, graphs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the configuration of a seed."""
    draw = random.Random(seed)
    name = draw.choice(["classes", "numbers", "typed", "typed"])
    layers, kind = draw.choice([1, 2, 2, 3]), draw.choice(KINDS)
    config: dict[str, Any] = {
        "name": "drawn",
        "seed": draw.randrange(100),
        "graph": {**graphs[name]},
        "task": json.loads(json.dumps(draw.choice(TASKS))),
        "partition": {**draw.choice(PARTITIONS)},
        "neighbors": json.loads(json.dumps(draw.choice(NEIGHBORS))),
        "flat": {},
        "model": {"kind": kind, "hidden": 8, "layers": layers},
        "train": {"epochs": 2, "metric": "loss", **draw.choice(STRATEGIES)},
        "infer": {},
        "cluster": {"kind": "synchronous"},
    }
    fits = {"pinsage": "walks", "magnn": "metapaths", "pgnn": "anchors"}
    if kind in fits:
        config["neighbors"] = next(dict(each) for each in NEIGHBORS if each.get("kind") == fits[kind])
    if "sampling" in config["neighbors"]:
        config["neighbors"]["sampling"]["fanout"] = [3, 2, 2][:layers]
    if config["neighbors"].get("kind") == "metapaths":
        config["neighbors"]["paths"] = TYPED_PATHS if name == "typed" else PLAIN_PATHS
        config["graph"]["reverse_edges"] = True
    if name == "typed" and config["task"]["kind"] != "node":
        config["graph"]["target"] = draw.choice(TYPED_EDGES)
    for key, values in KEYS.items():
        if draw.random() < 0.25:
            section, _, last = key.partition(".")
            config[section][last] = draw.choice(values)
    if name == "typed" and config["graph"].get("normalize") == "standard":
        config["graph"]["normalize"] = "row"  # some of its features are sparse
    return config


def without(config: dict[str, Any], key: str) -> bool:
    """Leave out a key, or the section whose kind is refused; return whether that was there."""
    if key == "graph.target":  # which a graph of several types has to name
        target = config["graph"].pop("target", None)
        config["graph"]["target"], config["task"] = "account", {"kind": "node"}
        return target not in {None, "account"}
    *sections, last = key.split(".")
    if last == "kind" and key != "model.kind":
        *sections, last = sections
    held = config
    for section in sections:
        held = held.get(section, {})
    return held.pop(last, None) is not None


def run(config: dict[str, Any], folder: Path, command: str = "run") -> Shown:
    """Run a configuration, or another command with it, leaving out what is refused."""
    file = folder / "config.yaml"
    for _ in range(MOST_REFUSED):
        file.write_text(json.dumps({**config, "workspace": str(folder / "runs")}))
        shown = run_cli([command, str(file)])
        found = REFUSED_KEY.search(shown.message) if shown.code == 2 else None
        if found is None or not without(config, found.group(1)):
            return shown
    return shown


def test_what_goes_together_runs_and_what_does_not_is_refused(
    tmp_path: Path, graphs: dict[str, dict[str, Any]]
) -> None:
    """At most one in five may be refused for good: else little would be tried."""
    end, seed, refused = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        folder = tmp_path / str(seed)
        folder.mkdir()
        config = drawn(seed, graphs)
        shown = run(config, folder)
        said = f"seed {seed}: {json.dumps(config)}\n{shown.err[-3000:]}"
        assert shown.code in {0, 2}, said
        assert "bug" not in shown.err, said
        refused += shown.code == 2
        if shown.code == 0:
            assert run_cli(["explain", str(folder / "config.yaml")]).code == 0, said
        seed += 1
    assert refused <= max(2, seed // 5), f"{refused} of {seed} were refused"
