"""Quarantine counts every row; graphs of every size and shape run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, either, refused
from tests.robustness.inputs import Inputs, Spoil, at, both, command, expect, key, node, without
from tests.robustness.stored import store_of

NODES = "nodes.parquet"


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _quarantine()
    yield from _sizes()


def _quarantine() -> Iterator[Case]:
    aside = both(key("graph.on_bad_rows", "quarantine"), key("graph.max_bad_rows", 1))
    for name in ("reason", "file", "row"):
        column = {name: [float(n) for n in range(60)]}
        bad = both(node(**column), key("graph.features", ["x", name]), at(float("inf"), name))
        yield accepted(
            f"quarantine of a column named {name}", both(aside, bad, command("ingest", "--json")), check=_counted_aside
        )
    lists: list[Any] = [[0.1, 0.2, 0.3]] * 60
    for name, row in {
        "null": None,
        "short": [0.1],
        "NaN": [0.1, float("nan"), 0.3],
        "with a null": [0.1, None, 0.3],
    }.items():
        rows = [row if n == 5 else each for n, each in enumerate(lists)]
        for kind in (pa.list_(pa.float32()), pa.large_list(pa.float64())):
            yield accepted(
                f"quarantine of a {name} list of {kind}",
                both(aside, node(x=pa.array(rows, kind)), command("ingest", "--json")),
                check=_counted_aside,
            )
    fixed = pa.array([None if n == 5 else [0.1, 0.2, 0.3] for n in range(60)], pa.list_(pa.float32(), 3))
    yield accepted(
        "quarantine of a null fixed list", both(aside, node(x=fixed), command("ingest", "--json")), check=_counted_aside
    )
    for name, spoil in {
        "a repeated id": lambda i: i.nodes.update(id=[i.nodes["id"][0], *i.nodes["id"][:-1]]),
        "a null id": at(None, "id"),
        "an edge of nowhere": at(99999, "src", table="edges"),
        "a negative weight": at(-1.0, "weight", table="edges"),
        "an infinite weight": at(1e39, "weight", table="edges"),
        "an unknown split": at("dev", "split"),
        "a label below -1": at(-2, "label"),
    }.items():
        yield accepted(f"quarantine of {name}", both(aside, spoil, command("ingest", "--json")), check=_counted_aside)


def _counted_aside(inputs: Inputs, shown: Shown) -> list[str]:
    counts = json.loads(shown.out)
    nodes, edges = store_of(inputs.workspace)
    kept, aside, given = counts["rows_out"], counts["rows_quarantined"], counts["rows_in"]
    found = [] if given == kept + aside else [f"{given} rows in, {kept} out and {aside} aside"]
    found += [] if aside else ["nothing was set aside"]
    found += [] if given == 60 + 180 else [f"{given} rows in"]
    stored = nodes.num_rows + edges.num_rows
    found += [] if stored == kept else [f"{stored} rows stored, {kept} counted"]
    return found + ([] if np.isfinite(np.array(nodes["x"].to_pylist())).all() else ["a bad row is stored"])


def _sizes() -> Iterator[Case]:
    for partitions in (1, 59, 60, 300):
        yield either(f"{partitions} partitions for 60 nodes", key("graph.partitions", partitions), "partitions")
    yield either("65536 partitions for 60 nodes", key("graph.partitions", 65536), "partitions", alone=True)
    yield accepted("two nodes and an edge", _graph([1, 2], [(1, 2)]))
    yield either("one node with a loop", _graph([1], [(1, 1)]), "split", "valid")
    yield accepted("a thousand parallel edges", _graph([1, 2], [(1, 2)] * 1000))
    yield accepted("every edge to one node", _graph(list(range(60)), [(n, 0) for n in range(60)]))
    yield accepted("batches of one", both(key("train.batch_size", 1), command("run")))
    yield accepted("a shard per target", both(key("flat.shard_size", 1), command("run")))
    yield accepted("reverse edges", both(key("graph.reverse_edges", True), expect(edges=None)))
    wide = key("model", {"kind": "gat", "hidden": 65536, "heads": 256, "layers": 3})
    for name in ("run", "explain"):
        before = both(wide, command(name))
        yield refused(f"{name}: a model that no machine holds", before, "model.hidden", "16777216 columns", "memory")
    yield refused("no feature column at all", without("nodes", "x"), NODES, "'x'", "graph.features")
    yield refused(
        "nodes without rows",
        lambda i: i.nodes.update({n: pa.array(c)[:0] for n, c in i.nodes.items()}),
        NODES,
        "no rows",
    )
    yield refused(
        "edges without rows",
        lambda i: i.edges.update({n: pa.array(c)[:0] for n, c in i.edges.items()}),
        "edges.parquet",
        "no rows",
    )
    yield refused("edges without columns", lambda i: i.edges.clear(), "edges.parquet")


def _graph(ids: list[int], pairs: list[tuple[int, int]]) -> Spoil:
    def spoil(inputs: Inputs) -> None:
        inputs.nodes = {name: pa.array(column)[: len(ids)] for name, column in inputs.nodes.items()}
        inputs.nodes["id"] = ids
        inputs.edges = {
            "src": [pair[0] for pair in pairs],
            "dst": [pair[1] for pair in pairs],
            "weight": [1.0] * len(pairs),
            "amount": [0.5] * len(pairs),
        }

    return spoil
