"""An id that exists is named where an unknown one looks like it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gnnflow.graph.errors import TableError
from gnnflow.ingest import checks
from gnnflow.ingest.checks import near_id
from tests.ingest.test_tables_as_given import NUM_NODES, edge_columns, ingest, node_columns, write


@pytest.mark.parametrize(
    ("unknown", "exists", "how"),
    [
        ("k5 ", "k5", "'k5 ' differs from it only in spaces."),
        ("k5", "  k5\t", "'k5' differs from it only in spaces."),
        ("k\u00a05\ufeff", "k 5", r"'k\xa05\ufeff' differs from it only in spaces."),
        ("caf\u00e9", "cafe\u0301", r"The id 'cafe\u0301' exists, and 'caf\xe9' differs from it only in its Unicode"),
        ("\uff17", "7", r"'\uff17' differs from it only in its Unicode form."),
        ("Ann", "ann", "'Ann' differs from it only in case."),
        ("007", "7", "only in how a number is written."),
        ("7", "7.0", "only in how a number is written."),
        ("000", "0", "only in how a number is written."),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_the_difference_is_named(unknown: str, exists: str, how: str, kind: pa.DataType) -> None:
    parts = [pa.array(["a", "b"], kind), pa.array([], kind), pa.array(["c", exists], kind)]
    assert how in near_id(pa.array(["nobody", unknown], kind), parts)


@pytest.mark.parametrize("exists", ["k6", "k55", "K 5", "-7", "0.7", "70", ""])
def test_other_ids_are_not_near(exists: str) -> None:
    assert near_id(pa.array(["k5", "7"]), [pa.array([exists])]) == ""


def test_of_a_large_graph_the_first_partitions_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_MOST_IDS", 3)
    assert near_id(pa.array(["k5"]), (pa.array(each) for each in (["a"], ["b", "k5 "])))
    assert not near_id(pa.array(["k5"]), (pa.array(each) for each in (["a", "b"], ["b", "k5 "])))


@pytest.mark.parametrize("padded", ["nodes", "edges"])
def test_ends_that_differ_from_ids_in_spaces_are_refused_and_say_so(tmp_path: Path, padded: str) -> None:
    plain = [f"k{number}" for number in range(NUM_NODES)]
    spaced = [f"{each} " for each in plain]
    of_nodes, of_edges = (spaced, plain) if padded == "nodes" else (plain, spaced)
    nodes = write(tmp_path / "n.csv", node_columns(of_nodes))
    edges = write(tmp_path / "e.csv", edge_columns(of_edges))
    shown = "'k[0-9]+ '" if padded == "edges" else "'k[0-9]+'"
    found = rf"src is not an id of the node table.*: {shown}[,)].*exists, and {shown} differs from it only in spaces"
    with pytest.raises(TableError, match=found):
        ingest(tmp_path, nodes, edges)
    quarantined = ingest(tmp_path, nodes, edges, graph={"on_bad_rows": "quarantine", "max_bad_rows": 1})
    assert quarantined.manifest.rows_quarantined == NUM_NODES
