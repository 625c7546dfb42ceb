"""How many partitions a graph gets follows from its tables and a worker's memory; a given number wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gnnflow.stages.resolve import resolve
from gnnflow.storage.filesystem import Stamp
from gnnflow.storage.table_files import find_table_files
from gnnflow.storage.table_sizes import OF_PACKED, bytes_in_memory, growth_of
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


def test_numbers_in_parquet_count_as_wide_as_they_are_and_repeated_text_as_packed(tmp_path: Path) -> None:
    """Amounts hardly shrink in a file: four times their size made four times the partitions, and ingest slow."""
    rows, rng = 4000, np.random.default_rng(0)
    table = {
        "id": np.arange(rows),
        "x": rng.random(rows),
        "kind": np.array(["a", "longer text", "b"])[rng.integers(3, size=rows)],
    }
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("id\n1\n")
    size = (tmp_path / "t.parquet").stat().st_size
    growth = growth_of(find_table_files(str(tmp_path / "t.parquet")))
    held = bytes_in_memory([Stamp("t.parquet", size, "")], growth)
    assert 2 * 8 * rows + 8 * rows <= held <= 1.1 * 3 * 8 * rows
    assert growth_of(find_table_files(str(tmp_path / "t.csv"))) == OF_PACKED
    (tmp_path / "t.parquet").write_bytes(b"cut off")
    assert growth_of(find_table_files(str(tmp_path / "t.parquet"))) == OF_PACKED


def test_a_default_is_the_same_run_as_its_number(tmp_path: Path) -> None:
    write_graph(tmp_path)
    default, given = (resolve(graph_config(tmp_path, graph={"partitions": number})) for number in (None, 4))
    assert default.fingerprints == given.fingerprints
