"""Partitions that cannot be, or hardly: refused readably, or scored as any others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.command_line import Shown
from tests.robustness.case import Case, accepted, refused
from tests.robustness.inputs import NUM_NODES, Inputs, both, command, key, one_edge


def cases() -> Iterator[Case]:
    """Yield the cases."""
    yield from _keys()
    yield from _hardly_any()


def _keys() -> Iterator[Case]:
    """Yield keys that cannot be."""
    for name, section, *words in (
        ("of no kind", {"kind": "best"}, "partition.kind", "'best'"),
        (
            "whose clusters do not divide",
            {"kind": "metis", "clusters": 7},
            "partition.clusters",
            "7",
            "graph.partitions",
        ),
        ("of no cluster", {"kind": "louvain", "clusters": 0}, "partition.clusters", "0"),
        ("too even", {"kind": "ldg", "imbalance": 1.0}, "partition.imbalance", "1"),
        ("even in nothing", {"kind": "ldg", "even": []}, "partition.even"),
        ("even in what is not there", {"kind": "ldg", "even": ["bytes"]}, "partition.even", "'bytes'"),
        ("streamed never", {"kind": "ldg", "passes": 0}, "partition.passes", "0"),
        ("of resolution 0", {"kind": "louvain", "resolution": 0}, "partition.resolution", "0"),
        ("by both ends", {"kind": "edge_1d", "by": "both"}, "partition.by", "'both'"),
        ("with a key of another kind", {"kind": "vertex_cut", "by": "source"}, "partition.by", "unknown key"),
    ):
        yield refused(f"partition: {name}", key("partition", section), *words)
    sampled = both(
        key("partition", {"kind": "vertex_cut"}),
        key("neighbors", {"sampling": {"kind": "uniform", "fanout": [2, 2]}}),
    )
    yield refused("partition: a grid of sampled neighbours", sampled, "partition.kind", "vertex_cut", "uniform")


def _hardly_any() -> Iterator[Case]:
    """Yield graphs of one edge: most nodes have no neighbour to follow."""
    sections: tuple[dict[str, Any], ...] = (
        {"kind": "range"},
        {"kind": "ldg"},
        {"kind": "ldg", "even": ["nodes", "edges", "targets"], "passes": 5},
        {"kind": "edge_1d", "by": "source"},
        {"kind": "vertex_cut"},
    )
    for section in sections:
        spoil = both(key("partition", section), key("model", {"hidden": 4}), command("run"), one_edge)
        yield accepted(f"partition: {section} of one edge", spoil, check=every_node_is_scored)


def every_node_is_scored(inputs: Inputs, shown: Shown) -> list[str]:
    """Return what is wrong where not every node is scored."""
    import pyarrow.parquet as pq

    (folder,) = inputs.workspace.glob("runs/odd/*/predictions")
    rows = pq.read_table(folder).num_rows
    return [] if rows == NUM_NODES else [f"{rows} nodes were scored"]
