"""docs/neighbors.md: its function runs as printed, from the config that names it, and selects what it says."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gnnflow.graph.facts import SelectFacts
from gnnflow.stages import pipeline
from gnnflow.stages.base import StageContext
from gnnflow.storage.columns import to_numpy
from gnnflow.storage.graph_store import GraphStore
from tests.small_graphs import graph_config, write_graph

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "neighbors.md"


def in_ids(store: GraphStore, tables: Any) -> list[tuple[int, int, float]]:
    """Return the edges of some tables as (id of the root, id of the leaf, weight)."""
    nodes = [store.nodes(each, ["node", "id"]) for each in range(store.num_partitions)]
    ids = {
        node: name for each in nodes for node, name in zip(*(each[c].to_pylist() for c in ("node", "id")), strict=True)
    }
    rows = [zip(*(to_numpy(table[c]).tolist() for c in ("dst", "src", "weight")), strict=True) for table in tables]
    return [(ids[dst], ids[src], weight) for held in rows for dst, src, weight in held]


def test_the_guides_function_selects_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (function,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(function.strip().splitlines()) <= 22
    file = tmp_path / "my_neighbors.py"
    file.write_text(function)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_neighbors", raising=False)
    write_graph(tmp_path, num_nodes=80, num_edges=300)
    config = graph_config(tmp_path, model={"kind": "gcn", "hidden": 4}, train={"epochs": 2}, **yaml.safe_load(text))
    pipeline.run_quietly(config)
    context = StageContext.of(config)
    ingested, selected = context.artifact("ingest"), context.artifact("select")
    base = GraphStore.of(ingested.uri, ingested.manifest)
    store = base.selected(selected.uri, selected.facts(SelectFacts).relations)
    parts, columns = range(base.num_partitions), ["dst", "src", "weight"]
    edges = in_ids(base, [base.edges(each, columns) for each in parts])
    found = in_ids(store, [store.edges(each, columns) for each in parts])
    sources: dict[int, list[int]] = {}
    for root, leaf, _ in edges:
        sources.setdefault(root, []).append(leaf)
    for root in {root for root, *_ in edges}:
        ways = Counter(leaf for middle in sources[root] for leaf in sources.get(middle, []) if leaf != root)
        held = {leaf: weight for each, leaf, weight in found if each == root}
        assert sorted(ways[leaf] for leaf in held) == sorted(sorted(ways.values(), reverse=True)[:5])
        total = sum(ways[leaf] for leaf in held)
        assert all(np.isclose(weight, ways[leaf] / total) for leaf, weight in held.items())
