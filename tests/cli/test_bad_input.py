"""Bad input: one readable message that names the place and the fix, exit code 2, no traceback, nothing half-written.

Each case spoils one thing about a small valid graph and says what the message must contain.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow import cluster
from gnnflow.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_NODES = 12


@dataclass
class Inputs:
    """A small valid graph as columns, and the command that reads it."""

    folder: Path
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=lambda: ["ingest"])
    after_write: Callable[[Inputs], None] = lambda _: None

    def write(self) -> None:
        """Write the tables and the config, then spoil what is spoilt on disk."""
        pq.write_table(pa.table(self.nodes), self.folder / "nodes.parquet")
        pq.write_table(pa.table(self.edges), self.folder / "edges.parquet")
        (self.folder / "config.yaml").write_text(json.dumps(self.config))
        self.after_write(self)

    def argv(self) -> list[str]:
        """Return the command line."""
        return [*self.command, str(self.folder / "config.yaml")]


def valid(folder: Path) -> Inputs:
    rng = np.random.default_rng(0)
    ring = np.arange(NUM_NODES)
    inputs = Inputs(folder)
    inputs.nodes = {
        "id": ring,
        "x": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(NUM_NODES * 3, dtype=np.float32)), 3),
        "label": ring % 2,
        "split": ["train", "valid", "test"] * (NUM_NODES // 3),
    }
    inputs.edges = {"src": ring, "dst": (ring + 1) % NUM_NODES, "weight": np.ones(NUM_NODES)}
    inputs.config = {
        "name": "bad",
        "workspace": str(folder / "runs"),
        "graph": {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"), "partitions": 2},
        "cluster": {"kind": "synchronous"},
    }
    return inputs


def truncate(name: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        file = inputs.folder / name
        file.write_bytes(file.read_bytes()[:-40])

    return spoil


def node(**columns: Any) -> Callable[[Inputs], None]:
    return lambda inputs: inputs.nodes.update(columns)


def edge(**columns: Any) -> Callable[[Inputs], None]:
    return lambda inputs: inputs.edges.update(columns)


def without(table: str, column: str) -> Callable[[Inputs], None]:
    return lambda inputs: getattr(inputs, table).pop(column)


def key(path: str, value: Any) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        place = inputs.config
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value

    return spoil


def disk(spoil: Callable[[Inputs], None]) -> Callable[[Inputs], None]:
    def later(inputs: Inputs) -> None:
        inputs.after_write = spoil

    return later


def both(*spoils: Callable[[Inputs], None]) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        for each in spoils:
            each(inputs)

    return spoil


def raw_config(text: str) -> Callable[[Inputs], None]:
    return disk(lambda inputs: (inputs.folder / "config.yaml").write_text(text) and None)


def args(*command: str) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        inputs.command = list(command)

    return spoil


def one(value: Any, rest: Any, at: int = 5) -> list[Any]:
    return [value if row == at else rest(row) for row in range(NUM_NODES)]


def lists(at: int, value: list[float] | None) -> Any:
    return pa.array([value if row == at else [0.1, 0.2, 0.3] for row in range(NUM_NODES)], pa.list_(pa.float32()))


def sparse(index: Any, value: Any = None) -> Callable[[Inputs], None]:
    def spoil(inputs: Inputs) -> None:
        del inputs.nodes["x"]
        inputs.nodes["x_index"] = pa.array(
            [index if row == 5 else [0, 2] for row in range(NUM_NODES)], pa.list_(pa.int32())
        )
        if value is not None:
            inputs.nodes["x_value"] = pa.array(
                [value if row == 5 else [1.0, 2.0] for row in range(NUM_NODES)], pa.list_(pa.float32())
            )
        inputs.config["graph"]["feature_dim"] = 3

    return spoil


TABLES = {
    "node table missing": (disk(lambda i: (i.folder / "nodes.parquet").unlink()), ["nodes.parquet", "no such table"]),
    "edge table missing": (disk(lambda i: (i.folder / "edges.parquet").unlink()), ["edges.parquet", "no such table"]),
    "node table truncated": (disk(truncate("nodes.parquet")), ["nodes.parquet", "truncated"]),
    "edge table truncated": (disk(truncate("edges.parquet")), ["edges.parquet", "truncated"]),
    "node table empty": (
        disk(lambda i: pq.write_table(pa.table(i.nodes).slice(0, 0), i.folder / "nodes.parquet")),
        ["no rows"],
    ),
    "edge table empty": (
        disk(lambda i: pq.write_table(pa.table(i.edges).slice(0, 0), i.folder / "edges.parquet")),
        ["no rows"],
    ),
    "unknown file type": (key("graph.nodes", __file__), ["table format", ".parquet"]),
    "no id column": (without("nodes", "id"), ["nodes.parquet", "'id'", "graph.id"]),
    "float ids": (node(id=np.arange(NUM_NODES) + 0.5), ["'id'", "int64 or string"]),
    "null id": (node(id=one(None, int)), ["'id'", "null id", "row 5"]),
    "repeated id": (node(id=one(4, int)), ["more than once", "nodes.parquet"]),
    "feature column missing": (key("graph.features", ["age"]), ["'age'", "graph.features"]),
    "feature is text": (node(x=["a"] * NUM_NODES), ["'x'", "numbers"]),
    "NaN feature": (node(x=lists(5, [0.1, float("nan"), 0.3])), ["'x'", "NaN", "row 5", "row group 0"]),
    "infinite scalar feature": (
        both(node(age=one(float("inf"), float)), key("graph.features", ["x", "age"])),
        ["'age'", "infinite", "row 5"],
    ),
    "ragged feature": (node(x=lists(5, [0.1, 0.2])), ["'x'", "3 long", "row 5"]),
    "null feature": (node(x=lists(5, None)), ["'x'", "null", "row 5"]),
    "sparse index too large": (sparse([0, 3]), ["x_index", "0..2", "row 5", "feature_dim"]),
    "sparse values of another length": (sparse([0, 1], [1.0]), ["x_value", "row 5"]),
    "sparse and standardised": (both(sparse([0]), key("graph.normalize", "standard")), ["normalize", "sparse"]),
    "label below -1": (node(label=one(-2, lambda r: r % 2)), ["'label'", "out of range", "row 5"]),
    "label above num_classes": (key("graph.num_classes", 1), ["'label'", "out of range"]),
    "label is text": (node(label=["a"] * NUM_NODES), ["'label'", "integers from 0"]),
    "ragged multi-label": (
        node(label=pa.array([[0, 1] if r != 5 else [1] for r in range(NUM_NODES)])),
        ["'label'", "2 long"],
    ),
    "multi-label of 2": (
        node(label=pa.array([[0, 1] if r != 5 else [0, 2] for r in range(NUM_NODES)])),
        ["'label'", "0 and 1"],
    ),
    "unknown split": (node(split=one("dev", lambda _: "train")), ["'split'", "train, valid, test", "dev"]),
    "split without label": (node(label=one(None, lambda r: r % 2)), ["'split'", "no label", "row 5"]),
    "numeric split": (node(split=np.zeros(NUM_NODES)), ["'split'", "train, valid, test"]),
    "empty train split": (node(split=["valid", "test"] * 6), ["'split'", "'train'"]),
    "empty valid split": (node(split=["train", "test"] * 6), ["'split'", "'valid'"]),
    "no source column": (without("edges", "src"), ["edges.parquet", "'src'", "graph.src"]),
    "dangling source": (edge(src=one(99, int)), ["src", "is not an id of the node table", "row 5", "99"]),
    "dangling destination": (edge(dst=one(99, int)), ["dst", "is not an id of the node table", "row 5", "99"]),
    "null destination": (edge(dst=one(None, int)), ["'dst'", "null id", "row 5"]),
    "string edge ids, int node ids": (edge(src=[str(r) for r in range(NUM_NODES)]), ["'src'", "string", "int64"]),
    "negative weight": (edge(weight=one(-1.0, float)), ["'weight'", "negative", "row 5"]),
    "NaN weight": (edge(weight=one(float("nan"), float)), ["'weight'", "NaN", "row 5"]),
    "weight is text": (edge(weight=["a"] * NUM_NODES), ["'weight'", "numbers"]),
    "edge feature missing": (key("graph.edge_features", ["amount"]), ["'amount'", "graph.edge_features"]),
    "NaN edge feature": (
        both(edge(amount=one(float("nan"), float)), key("graph.edge_features", ["amount"])),
        ["'amount'", "NaN", "row 5"],
    ),
}

CONFIGS = {
    "config missing": (disk(lambda i: (i.folder / "config.yaml").unlink()), ["config.yaml", "no such file"]),
    "config is not YAML": (raw_config("name: [unclosed"), ["config.yaml", "line"]),
    "config is empty": (raw_config(""), ["empty"]),
    "key twice": (raw_config("name: a\nname: b\n"), ["name", "already set", "line 2"]),
    "unknown key": (key("train.learning_rate", 0.1), ["train.learning_rate", "lr"]),
    "wrong type": (key("train.epochs", "many"), ["train.epochs", "many"]),
    "out of bounds": (key("train.lr", -1), ["train.lr", "-1", "greater than 0"]),
    "fan-out of another depth": (
        key("neighbors.sampling", {"kind": "uniform", "fanout": [5]}),
        ["neighbors.sampling.fanout", "2"],
    ),
    "unknown sampling": (key("neighbors.sampling", {"kind": "best"}), ["neighbors.sampling", "uniform", "top_k"]),
    "variable not set": (
        key("graph.nodes", "${GNNFLOW_NO_SUCH_VARIABLE}/n.parquet"),
        ["GNNFLOW_NO_SUCH_VARIABLE", "graph.nodes"],
    ),
    "override of no key": (args("ingest", "--set", "train.rate=1"), ["train.rate"]),
    "password in a URI": (key("workspace", "s3://user:secret@bucket/runs"), ["workspace"]),
    "unknown scheme": (key("workspace", "nowhere://bucket/runs"), ["nowhere"]),
    "typed graph": (
        both(key("graph.nodes", {"a": "n.parquet"}), key("graph.edges", {"a__to__a": "e.parquet"})),
        ["graph.nodes", "one node table"],
    ),
    "no such cluster": (
        key("cluster", {"kind": "address", "address": "tcp://127.0.0.1:9"}),
        ["127.0.0.1:9", "dask scheduler"],
    ),
    "flat before ingest": (args("flat"), ["ingest", "gnnflow run"]),
}


def ingested(*spoils: Callable[[Path], None], command: str = "flat") -> Callable[[Inputs], None]:
    """Ingest (and cut) the valid graph first, then spoil the artifact."""

    def spoil(inputs: Inputs) -> None:
        inputs.command = [command]

        def later(written: Inputs) -> None:
            run_cli(["ingest", str(written.folder / "config.yaml")])
            run_cli(["select", str(written.folder / "config.yaml")])
            if command == "train":
                run_cli(["flat", str(written.folder / "config.yaml")])
            for each in spoils:
                each(written.folder / "runs" / "artifacts")

        inputs.after_write = later

    return spoil


def find(artifacts: Path, pattern: str) -> Path:
    return next(artifacts.glob(pattern))


def cut(pattern: str) -> Callable[[Path], None]:
    def spoil(artifacts: Path) -> None:
        file = find(artifacts, pattern)
        file.write_bytes(file.read_bytes()[:-20])

    return spoil


def scramble(pattern: str) -> Callable[[Path], None]:
    def spoil(artifacts: Path) -> None:
        file = find(artifacts, pattern)
        file.write_bytes(b"\x00" * file.stat().st_size)

    return spoil


def manifest(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(artifacts: Path) -> None:
        file = find(artifacts, "ingest/*/manifest.json")
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return spoil


MANIFESTS = {
    "manifest truncated": (ingested(cut("ingest/*/manifest.json")), ["manifest.json", "JSON", "run again"]),
    "manifest of something else": (
        ingested(manifest(lambda c: c.update(extra=1))),
        ["manifest.json", "not a manifest"],
    ),
    "manifest with another digest": (ingested(manifest(lambda c: c.update(digest="0"))), ["manifest.json", "digest"]),
    "listed file missing": (
        ingested(lambda a: find(a, "ingest/*/edges-00001.parquet").unlink()),
        ["edges-00001.parquet", "missing"],
    ),
    "listed file truncated": (ingested(cut("ingest/*/edges-00001.parquet")), ["edges-00001.parquet", "bytes"]),
    "graph store damaged": (ingested(scramble("ingest/*/edges-00001.parquet")), ["edges-00001.parquet", "run again"]),
    "shard truncated": (
        ingested(cut("flat/*/shards/train-00000.parquet"), command="train"),
        ["train-00000.parquet", "bytes"],
    ),
    "shard damaged": (
        ingested(scramble("flat/*/shards/train-00000.graph.parquet"), command="train"),
        ["train-00000.graph.parquet", "run again"],
    ),
}

CASES = {**TABLES, **CONFIGS, **MANIFESTS}


def run_cli(argv: list[str]) -> int:
    """Run the command line in this process and return its exit code."""
    before = sys.argv
    sys.argv = ["gnnflow", *argv]
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_readably(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1)
    spoil, expected = CASES[name]
    inputs = valid(tmp_path)
    spoil(inputs)
    inputs.write()
    before = {file for file in tmp_path.rglob("*") if file.is_file()}
    capsys.readouterr()
    code = run_cli(inputs.argv())
    shown = capsys.readouterr()
    assert code == 2, shown.err
    message = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(message) == 1, shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    for words in expected:
        assert words in message[0], message[0]
    left = {file for file in tmp_path.rglob("*") if file.is_file()} - before
    assert not left, f"half-written output: {left}"


def test_there_are_at_least_forty_kinds() -> None:
    assert len(CASES) >= 40


def test_the_valid_graph_is_accepted(tmp_path: Path) -> None:
    inputs = valid(tmp_path)
    inputs.write()
    assert run_cli(inputs.argv()) == 0


def test_a_process_exits_with_the_message_alone(tmp_path: Path) -> None:
    inputs = valid(tmp_path)
    inputs.nodes["id"] = one(4, int)
    inputs.write()
    done = subprocess.run(
        [sys.executable, "-m", "gnnflow.cli", *inputs.argv()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
