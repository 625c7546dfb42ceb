"""Links and labels of edges of small graph stores, plain and typed, for strategies that train on stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gnnflow.config import Config
from tests.stages import test_edge_labels, test_links, test_typed_edges
from tests.typed_graphs import typed_tables

RANDOM = {"kind": "random", "valid": 0.15, "test": 0.15}
CASES = ("links", "labels", "hidden labels", "typed links", "typed labels")


def config_of(folder: Path, case: str, *, train: dict[str, Any] | None = None, **sections: Any) -> Config:
    """Return a config for a case of CASES, whose tables are written into the folder."""
    train = {"epochs": 3, **(train or {})}
    sections = {"graph": {"partitions": 4, **sections.pop("graph", {})}, **sections}
    if case == "links":
        test_links.write_groups(folder)
        return test_links.config_of(folder, train=train, **sections)
    if case.endswith("labels") and not case.startswith("typed"):
        test_edge_labels.write_labelled(folder)
        task = {"split": RANDOM, "messages": case == "labels", **sections.pop("task", {})}
        return test_edge_labels.config_of(folder, task=task, train=train, **sections)
    tables = typed_tables(num_edges=300)
    if case == "typed links":
        return test_typed_edges.config_of(folder, tables, train=train, **sections)
    pays = tables[test_typed_edges.PAYS]
    label = pa.array((np.asarray(pays["amount"]) > 0).astype(np.int64))
    tables[test_typed_edges.PAYS] = pays.append_column("illicit", label)
    task = {"kind": "edge", "width": 8, "decoder": {"kind": "mlp", "hidden": 8}, "split": RANDOM, "messages": False}
    sections["graph"] = {**sections["graph"], "label": "illicit"}
    return test_typed_edges.config_of(folder, tables, task=task, train=train, **sections)
