"""A store is the same, byte for byte, whether edges visit their sources or tasks map the ids of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.graph.errors import TableError
from gnnflow.ingest.job import IngestJob
from gnnflow.native import core, find_owned, place_owned
from gnnflow.progress import Silent
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import id_keys
from tests.small_graphs import graph_config, write_graph
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

    from gnnflow.stages.base import ArtifactResult

pytestmark = pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")

SECTIONS: dict[str, dict[str, Any]] = {
    "nodes": {},
    "reverses": {"graph": {"reverse_edges": True}},
    "links": {"graph": {"reverse_edges": True}, "task": {"kind": "link"}},
    "runs": {"graph": {"partitions": 1}},
}


def _ingest(folder: Path, sections: dict[str, Any], bad_rows: str) -> ArtifactResult:
    """Ingest tables of which no row is bad. Edges visit their sources where bad rows would be set aside."""
    graph = {**sections.get("graph", {}), "on_bad_rows": bad_rows}
    config = graph_config(folder, **{**sections, "graph": graph, "workspace": str(folder / bad_rows)})
    return make_artifact(StageContext.of(config), "ingest")


def _rounds(result: ArtifactResult) -> set[str]:
    return {each["name"] for each in result.manifest.timings["rounds"]}


@pytest.mark.parametrize("what", SECTIONS)
def test_both_ways_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """No cheaper test sees that the place of an edge in the store does not follow from the way it came."""
    write_graph(tmp_path, num_edges=3_000)
    if what == "runs":
        monkeypatch.setattr(IngestJob, "run_bytes", property(lambda _: 20_000))
    visits, maps = (_ingest(tmp_path, SECTIONS[what], bad_rows) for bad_rows in ("quarantine", "fail"))
    assert _rounds(visits) - _rounds(maps) == {"edges_src"}
    assert maps.manifest.files == visits.manifest.files
    assert maps.manifest.facts == visits.manifest.facts


def test_both_ways_give_the_same_bytes_with_types(tmp_path: Path) -> None:
    graph = {**write_tables(tmp_path, typed_tables()), "edge_features": []}
    visits, maps = (_ingest(tmp_path, {"graph": graph}, bad_rows) for bad_rows in ("quarantine", "fail"))
    assert _rounds(visits) - _rounds(maps) == {"edges_src"}
    assert maps.manifest.files == visits.manifest.files


def test_edges_visit_their_sources_where_the_tables_of_ids_would_take_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_graph(tmp_path)
    monkeypatch.setattr("gnnflow.ingest.owned_ids._NODE_BYTES", 1 << 40)
    assert "edges_src" in _rounds(_ingest(tmp_path, {}, "fail"))


class Killed(Silent):
    """Ends the run where the edges' last round starts."""

    def round_started(self, name: str, num_tasks: int, num_done: int) -> None:
        if name == "edges_dst":
            raise KeyboardInterrupt


@pytest.mark.parametrize("maps_first", [False, True])
def test_a_run_that_goes_on_the_other_way_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maps_first: bool
) -> None:
    """Finds records of the reading round that stand although they sent rows the other way."""
    write_graph(tmp_path)
    expected = _ingest(tmp_path, {}, "fail")
    config = graph_config(tmp_path, workspace=str(tmp_path / "killed"))
    for is_mapped in (maps_first, not maps_first):
        monkeypatch.setattr("gnnflow.ingest.owned_ids._NODE_BYTES", 48 if is_mapped else 1 << 40)
        if is_mapped == maps_first:
            with pytest.raises(KeyboardInterrupt):
                make_artifact(StageContext.of(config, progress=Killed()), "ingest")
    assert make_artifact(StageContext.of(config), "ingest").digest == expected.digest


def test_an_unknown_source_is_named_where_ids_are_mapped(tmp_path: Path) -> None:
    write_graph(tmp_path)
    edges = tmp_path / "edges.parquet"
    table = pq.read_table(edges)
    src = table["src"].to_pylist()
    src[7] = 2
    pq.write_table(table.set_column(0, "src", pa.array(src)), edges)
    with pytest.raises(TableError, match=r"column 'src': src is not an id of .*row 7: 2"):
        _ingest(tmp_path, {}, "fail")


@given(
    ids=st.sets(st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4), max_size=40),
    others=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4), max_size=80),
    partitions=st.integers(1, 5),
)
def test_owned_ids_are_found_as_in_a_dictionary(ids: set[int], others: list[int], partitions: int) -> None:
    held = np.array(sorted(ids), np.int64)
    owner = id_keys(pa.array(held)) % np.uint64(partitions)
    parts = [held[owner == part] for part in range(partitions)]
    begins = np.cumsum([0, *(len(part) for part in parts)])[:-1]
    dense = {int(one): number for number, one in enumerate(np.concatenate(parts))}
    wanted = np.array([*others, *sorted(ids)], np.int64)
    slots = [table for part in parts if (table := place_owned(part)) is not None]
    found = find_owned(slots, begins, wanted, id_keys(pa.array(wanted)))
    assert found.tolist() == [dense.get(int(one), -1) for one in wanted]
