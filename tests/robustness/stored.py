"""What a run made of the tables, compared with what the tables say: ids, counts, features, labels, splits, edges."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.storage.columns import from_matrix
from tests.robustness.inputs import Inputs
from tests.small_graphs import stored_x

_SPLITS = {"train": 0, "valid": 1, "test": 2, None: -1}


def differences(inputs: Inputs) -> list[str]:
    """Return how the committed graph store differs from the tables; empty where it does not."""
    nodes, edges = store_of(inputs.workspace)
    ids = _ids(inputs)
    stored = nodes["id"].to_pylist()
    if sorted(map(repr, stored)) != sorted(map(repr, ids)):
        return [f"ids differ: {sorted(set(map(repr, stored)) ^ set(map(repr, ids)))[:4]}, {len(stored)} of {len(ids)}"]
    row_of = {held: row for row, held in enumerate(stored)}
    order = [row_of[held] for held in ids]
    found: list[str] = []
    for name, (want, have) in _columns(inputs, nodes, order).items():
        if want is not None and not np.array_equal(np.asarray(want), np.asarray(have), equal_nan=True):
            rows = [row for row in range(len(want)) if not np.array_equal(want[row], have[row], equal_nan=True)]
            found.append(f"{name} differs in {len(rows)} rows, first {want[rows[0]]!r} became {have[rows[0]]!r}")
    want, have = _edges(inputs, ids), _stored_edges(nodes, edges)
    if want is not None and Counter(want) != Counter(have):
        lost, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
        found.append(f"edges differ: {len(want)} became {len(have)}; lost {list(lost)[:2]}, more {list(more)[:2]}")
    return found


def store_of(workspace: Path) -> tuple[pa.Table, pa.Table]:
    """Return the node rows and the edges of the one graph store in a workspace."""
    (folder,) = (file.parent for file in (workspace / "artifacts" / "ingest").glob("*/manifest.json"))
    nodes, edges = (
        pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob(f"{kind}-*.parquet"))]).combine_chunks()
        for kind in ("nodes", "edges")
    )
    if "x" in nodes.column_names:
        nodes = nodes.set_column(nodes.column_names.index("x"), "x", from_matrix(stored_x(nodes["x"])))
    return nodes, edges


def manifest_of(workspace: Path, stage: str) -> dict[str, Any]:
    """Return the manifest of the one artifact of a stage."""
    (file,) = (workspace / "artifacts" / stage).glob("*/manifest.json")
    return dict(json.loads(file.read_text()))


def predictions_of(workspace: Path) -> pa.Table:
    """Return the predictions of the one run in a workspace, by id."""
    files = sorted((workspace / "runs").glob("*/*/predictions/*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]).sort_by("id")


def _plain(values: Any) -> list[Any]:
    return list(values.to_pylist() if hasattr(values, "to_pylist") else values)


def _ids(inputs: Inputs) -> list[Any]:
    return _plain(inputs.expected.get("id", inputs.nodes["id"]))


def _columns(inputs: Inputs, nodes: pa.Table, order: list[int]) -> dict[str, tuple[Any, Any]]:
    """Return, per column, what the table says and what is stored, in the table's order."""
    size, expected = len(order), inputs.expected
    found: dict[str, tuple[Any, Any]] = {}
    if "x" in nodes.column_names:
        have = np.array(nodes["x"].to_pylist(), np.float64).reshape(size, -1)[order]
        found["features"] = (expected["x"] if "x" in expected else _features(inputs, size), have)
    if "label" in nodes.column_names and "label" in inputs.nodes:
        labelled = np.array(nodes["labelled"].to_pylist())[order]
        want = _plain(expected.get("label", inputs.nodes["label"])) if expected.get("label", 0) is not None else None
        if want is not None:
            want = [None if held is None or held == -1 or held != held else held for held in want]  # noqa: PLR0124 - NaN
            labels = np.array(nodes["label"].to_pylist(), dtype=object)[order].tolist()
            have_labels = [held if given else None for held, given in zip(labels, labelled, strict=True)]
            found["label"] = (list(map(_number, want)), list(map(_number, have_labels)))
    if "split" in inputs.nodes and expected.get("split", 0) is not None:
        want = [_SPLITS.get(held) for held in _plain(expected.get("split", inputs.nodes["split"]))]
        found["split"] = (want, np.array(nodes["split"].to_pylist())[order].tolist())
    return found


def _number(value: Any) -> Any:
    if value is None:
        return np.nan
    return tuple(float(each) for each in value) if isinstance(value, list) else float(np.float32(value))


def _features(inputs: Inputs, size: int) -> Any:
    columns = []
    for name in inputs.config["graph"].get("features", ["x"]):
        if name not in inputs.nodes:
            return None  # sparse
        columns.append(np.array(_plain(inputs.nodes[name]), np.float64).reshape(size, -1))
    with np.errstate(over="ignore"):  # what float32 cannot hold is then infinite, as nothing stored may be
        return np.concatenate(columns, axis=1).astype(np.float32).astype(np.float64)


def _edges(inputs: Inputs, ids: list[Any]) -> list[tuple[Any, ...]] | None:
    if inputs.expected.get("edges", 0) is None:
        return None
    columns = {**inputs.edges, **inputs.expected.get("edges", {})}
    weight = _plain(columns["weight"]) if "weight" in columns else None
    rows = []
    for number, (source, target) in enumerate(zip(_plain(columns["src"]), _plain(columns["dst"]), strict=True)):
        row = [source, target, None if weight is None else float(np.float32(weight[number]))]
        names = inputs.config["graph"].get("edge_features", [])
        rows.append((*row, *(float(np.float32(_plain(columns[name])[number])) for name in names)))
    return rows


def _stored_edges(nodes: pa.Table, edges: pa.Table) -> list[tuple[Any, ...]]:
    by_number = dict(zip(nodes["node"].to_pylist(), nodes["id"].to_pylist(), strict=True))
    weight = edges["weight"].to_pylist() if "weight" in edges.column_names else [None] * edges.num_rows
    rows = zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), weight, strict=True)
    attributes = edges["attributes"].to_pylist() if "attributes" in edges.column_names else [()] * edges.num_rows
    return [(by_number[s], by_number[d], w, *more) for (s, d, w), more in zip(rows, attributes, strict=True)]
