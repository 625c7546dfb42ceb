"""A small valid graph as columns, how it is written, and small functions that spoil one thing about it."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

NUM_NODES = 60
NUM_EDGES = 180
FORMATS = ("parquet", "arrow", "csv", "csv.gz")
COLUMNAR = ("parquet", "arrow")

Spoil = Callable[["Inputs"], Any]


@dataclass
class Inputs:
    """Two tables as columns, the config and the command that reads them. `after_write` spoils what lies on disk.

    metadata is that of the node table's schema. expected: what an accepted table must give, where it is not the columns
    as they stand; a value of None says that a column is not compared.
    """

    folder: Path
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=lambda: ["ingest"])
    argv: list[str] | None = None
    nodes_format: str = "parquet"
    edges_format: str = "parquet"
    metadata: dict[str, str] = field(default_factory=dict)
    after_write: list[Spoil] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def nodes_file(self) -> Path:
        return self.folder / f"nodes.{self.nodes_format}"

    @property
    def edges_file(self) -> Path:
        return self.folder / f"edges.{self.edges_format}"

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def workspace(self) -> Path:
        return self.folder / "runs"

    def write(self) -> None:
        """Write the tables and the config, then spoil what is spoilt on disk."""
        write_columns(self.nodes_file, self.nodes, metadata=self.metadata)
        write_columns(self.edges_file, self.edges)
        graph = self.config.setdefault("graph", {})
        if isinstance(graph, dict):
            graph.setdefault("nodes", str(self.nodes_file))
            graph.setdefault("edges", str(self.edges_file))
        self.config_file.write_text(json.dumps(self.config))
        for spoil in self.after_write:
            spoil(self)

    def arguments(self) -> list[str]:
        """Return the command line."""
        return [*self.command, str(self.config_file)] if self.argv is None else self.argv


def write_columns(file: Path, columns: dict[str, Any], *, metadata: dict[str, str] | None = None) -> None:
    """Write a table; its name says how. In text a value is written as Python shows it, and a null is empty."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if ".csv" in file.name:
        text = csv_text(columns).encode()
        file.write_bytes(gzip.compress(text) if file.name.endswith(".gz") else text)
        return
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    table = table.replace_schema_metadata(metadata or None)
    if file.name.endswith(".arrow"):
        feather.write_feather(table, file, compression="uncompressed")
    else:
        pq.write_table(table, file, row_group_size=25)


def csv_text(columns: dict[str, Any]) -> str:
    """Return columns as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    plain = [values.to_pylist() if hasattr(values, "to_pylist") else list(values) for values in columns.values()]
    for row in zip(*plain, strict=True):
        writer.writerow(["" if value is None else value for value in row])
    return out.getvalue()


def valid(folder: Path) -> Inputs:
    """Return a ring of 60 nodes with chords, two scalar features, a list of three, weights and an edge attribute."""
    rng = np.random.default_rng(0)
    ids = [3 * number + 1 for number in range(NUM_NODES)]
    ends = np.r_[np.arange(NUM_NODES), rng.integers(0, NUM_NODES, NUM_EDGES - NUM_NODES)]
    inputs = Inputs(folder)
    inputs.nodes = {
        "id": ids,
        "x": fixed(rng.random((NUM_NODES, 3), dtype=np.float32)),
        "age": [round(float(value), 3) for value in rng.random(NUM_NODES)],
        "label": [number % 2 for number in range(NUM_NODES)],
        "split": [("train", "valid", "test")[number % 3] for number in range(NUM_NODES)],
    }
    inputs.edges = {
        "src": [ids[end] for end in ends],
        "dst": [ids[(end + 1 + number // NUM_NODES) % NUM_NODES] for number, end in enumerate(ends)],
        "weight": [round(float(value), 3) + 0.5 for value in rng.random(NUM_EDGES)],
        "amount": [round(float(value), 3) for value in rng.standard_normal(NUM_EDGES)],
    }
    inputs.config = {
        "name": "odd",
        "workspace": str(folder / "runs"),
        "graph": {"features": ["x"], "edge_features": ["amount"], "partitions": 2},
        "model": {"hidden": 4},
        "train": {"epochs": 2, "batch_size": 16, "threads": 1},
        "infer": {"parity_samples": 8},
        "cluster": {"kind": "synchronous"},
    }
    return inputs


def fixed(matrix: Any) -> pa.Array:
    """Return a matrix as fixed-size lists."""
    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(matrix).ravel()), np.asarray(matrix).shape[1])


def both(*spoils: Spoil) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        for each in spoils:
            each(inputs)

    return spoil


def nothing(inputs: Inputs) -> None:
    """Spoil nothing."""


def node(**columns: Any) -> Spoil:
    return lambda inputs: inputs.nodes.update(columns)


def edge(**columns: Any) -> Spoil:
    return lambda inputs: inputs.edges.update(columns)


def without(table: str, *columns: str) -> Spoil:
    return lambda inputs: [getattr(inputs, table).pop(column) for column in columns]


def key(path: str, value: Any) -> Spoil:
    """Set a config key, given by its path."""

    def spoil(inputs: Inputs) -> None:
        place = inputs.config
        *parents, last = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value

    return spoil


def command(*words: str) -> Spoil:
    """Give the command that stands before the config's path."""
    return lambda inputs: setattr(inputs, "command", list(words))


def line(*words: str) -> Spoil:
    """Give the whole command line; {folder} in it is the case's folder."""
    return lambda inputs: setattr(inputs, "argv", [word.replace("{folder}", str(inputs.folder)) for word in words])


def disk(*spoils: Spoil) -> Spoil:
    """Spoil what lies on disk, once everything is written."""
    return lambda inputs: inputs.after_write.extend(spoils)


def formats(nodes: str, edges: str | None = None) -> Spoil:
    """Write the tables in these formats. Text has no lists, so its feature is the column `age`."""

    def spoil(inputs: Inputs) -> None:
        inputs.nodes_format, inputs.edges_format = nodes, edges or nodes
        if "csv" in nodes:
            inputs.nodes.pop("x", None)
            inputs.config["graph"]["features"] = ["age"]

    return spoil


def expect(**columns: Any) -> Spoil:
    return lambda inputs: inputs.expected.update(columns)


def at(value: Any, column: str, *, table: str = "nodes", row: int = 5) -> Spoil:
    """Put one value into one row of a column."""

    def spoil(inputs: Inputs) -> None:
        held = list(getattr(inputs, table)[column])
        held[row] = value
        getattr(inputs, table)[column] = held

    return spoil


def typed(column: str, kind: pa.DataType, *, table: str = "nodes") -> Spoil:
    """Write a column as another Arrow type."""

    def spoil(inputs: Inputs) -> None:
        columns = getattr(inputs, table)
        columns[column] = as_type(columns[column], kind)

    return spoil


def as_type(values: Any, kind: pa.DataType) -> pa.Array:
    """Return values as a column of an Arrow type; dictionaries are made, since Arrow casts none."""
    if pa.types.is_dictionary(kind):
        return pa.array(list(values)).cast(kind.value_type).dictionary_encode()
    return pa.array(list(values)).cast(kind)


def renamed(new: dict[Any, Any]) -> Spoil:
    """Give nodes other ids, in both tables."""

    def spoil(inputs: Inputs) -> None:
        inputs.nodes["id"] = [new[old] for old in inputs.nodes["id"]]
        for end in ("src", "dst"):
            inputs.edges[end] = [new[old] for old in inputs.edges[end]]

    return spoil


def ids_like(template: Callable[[int], Any]) -> Spoil:
    """Give the node with number n the id template(n)."""

    def spoil(inputs: Inputs) -> None:
        renamed({old: template(number) for number, old in enumerate(list(inputs.nodes["id"]))})(inputs)

    return spoil


def one_edge(inputs: Inputs) -> None:
    """Keep one edge."""
    inputs.edges = {name: values[:1] for name, values in inputs.edges.items()}
