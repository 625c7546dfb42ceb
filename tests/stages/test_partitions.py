"""How many partitions a graph gets follows from its tables and a worker's memory; a given number wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gnnflow.stages.resolve import resolve
from gnnflow.storage.filesystem import Stamp
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
LOCAL = {"kind": "local", "memory_limit": "2GiB"}


def partitions(config: Any, **sizes: int) -> int | None:
    nodes, edges = (tuple(Stamp(f"{name}.{kind}", size, "") for kind, size in sizes.items()) for name in "ne")
    return resolve(config, tables={"nodes": nodes, "edges": edges}).config.graph.partitions


@pytest.mark.parametrize(
    ("sizes", "cluster", "expected"),
    [
        ({"parquet": 1000}, LOCAL, 4),
        ({"csv": GIB}, LOCAL, 16),
        ({"parquet": GIB}, LOCAL, 64),
        ({"parquet": GIB}, {"kind": "local", "memory_limit": "8GiB"}, 16),
        ({"parquet": GIB}, {"kind": "local", "memory_limit": 0}, 64),
        ({"parquet": GIB}, {"kind": "synchronous"}, 64),
        ({"parquet": 1 << 60}, LOCAL, 65536),
    ],
)
def test_the_default_follows_from_bytes_and_memory(
    tmp_path: Path, sizes: dict[str, int], cluster: dict[str, Any], expected: int
) -> None:
    assert partitions(graph_config(tmp_path, graph={"partitions": None}, cluster=cluster), **sizes) == expected
    assert partitions(graph_config(tmp_path, graph={"partitions": 3}, cluster=cluster), **sizes) == 3


def test_a_default_is_the_same_run_as_its_number(tmp_path: Path) -> None:
    write_graph(tmp_path)
    default, given = (resolve(graph_config(tmp_path, graph={"partitions": number})) for number in (None, 4))
    assert default.fingerprints == given.fingerprints
