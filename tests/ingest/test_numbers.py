"""Numbers of any type arrive as the nearest float; what is lost by that is told, and what no float holds is refused."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from gnnflow.columns import floats_of
from gnnflow.graph.errors import TableError
from gnnflow.graph.scales import ColumnScale
from gnnflow.ingest.checks import number_faults
from gnnflow.ingest.fields import ColumnPart
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import to_matrix
from tests.hearing import Heard
from tests.ingest.test_tables_as_given import NUM_NODES, edge_columns, ingest, node_columns, stored
from tests.small_graphs import graph_config, stored_x
from tests.typed_graphs import typed_tables, write_tables

if TYPE_CHECKING:
    from pathlib import Path

COUNT = range(NUM_NODES)
CENTS = pa.decimal128(38, 2)
COLUMNS: dict[str, pa.Array] = {
    "cents": pa.array([10**9 + 7 * n for n in COUNT]),
    "seconds since 1970": pa.array([1_700_000_000 + n for n in COUNT], pa.uint32()),
    "integers beyond 2**53": pa.array([2**60 + 12_345_678_901 * n for n in COUNT]),
    "unsigned beyond int64": pa.array([2**63 + 12_345_678_901 * n for n in COUNT], pa.uint64()),
    "decimals": pa.array([Decimal(12_345_678_901 + n).scaleb(-2) for n in COUNT], pa.decimal128(12, 2)),
    "wide decimals": pa.array([Decimal(10**33 + 987_654_321_987 * n).scaleb(-2) for n in COUNT], CENTS),
    "the widest decimals": pa.array([Decimal(10**38 - n) for n in COUNT], pa.decimal256(76, 0)),
    "small decimals": pa.array([Decimal(n).scaleb(-2) for n in COUNT], pa.decimal128(5, 2)),
    "decimals of few bits": pa.array([Decimal(n) for n in COUNT], pa.decimal32(9, 1)),
    "booleans": pa.array([n % 2 == 0 for n in COUNT]),
}
TOLD = [name for name in COLUMNS if name not in {"small decimals", "decimals of few bits", "booleans"}]
EXACT = {name: np.array([float(value) for value in column.to_pylist()]) for name, column in COLUMNS.items()}


def write(path: Path, columns: dict[str, Any]) -> str:
    table = pa.table(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=5)
    elif path.suffix == ".arrow":
        feather.write_feather(table, path, chunksize=5, compression="uncompressed")
    else:
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        path.write_text("\n".join([",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def by_id(nodes: pa.Table) -> Any:
    return stored_x(nodes["x"])[np.argsort(nodes["id"].to_numpy())]


def ingested(folder: Path, form: str, *, weight: str, heard: Heard | None = None) -> Any:
    """Ingest all columns as features and as edge attributes, one of them also as weights."""
    nodes = write(folder / f"n.{form}", node_columns(**COLUMNS))
    edges = write(folder / f"e.{form}", edge_columns(**COLUMNS))
    names = list(COLUMNS)
    graph = {"features": names, "edge_features": names, "weight": weight}
    return ingest(folder, nodes, edges, graph=graph, tell=heard)


def test_numbers_of_any_type_arrive_as_the_nearest_float_in_every_format(tmp_path: Path) -> None:
    result = ingested(tmp_path, "parquet", weight="wide decimals")
    nodes, edges = stored(result)
    want = np.stack(list(EXACT.values()), axis=1).astype(np.float32)
    np.testing.assert_array_equal(by_id(nodes), want)
    order = np.argsort(edges["src"].to_numpy())
    np.testing.assert_array_equal(to_matrix(edges["attributes"])[order], want)
    weight = edges["weight"].to_numpy()[order]
    np.testing.assert_array_equal(weight, EXACT["wide decimals"].astype(np.float32))
    for form in ("arrow", "csv"):
        assert ingested(tmp_path / form, form, weight="wide decimals").digest == result.digest


def test_each_column_that_is_rounded_is_named_once_by_its_table(tmp_path: Path) -> None:
    heard = Heard()
    ingested(tmp_path, "parquet", weight="cents", heard=heard)
    nodes, edges = (text for text in heard.messages if "are rounded to 24 bits" in text)
    first = "numbers are rounded to 24 bits, as they are stored, in 'cents' (by 32 at most), "
    assert nodes.startswith(f"nodes: {first}'seconds since 1970' (by 64 at most), ")
    assert edges.startswith(f"edges: {first}")
    for text in (nodes, edges):
        assert [name for name in COLUMNS if text.count(f"'{name}'") == 1] == TOLD


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("scaling", ["none", "standard"])
def test_floats_that_lose_a_unit_are_named_and_others_are_not(tmp_path: Path, form: str, scaling: str) -> None:
    columns = {
        "seconds": pa.array([1_700_000_000.125 + n for n in COUNT]),
        "shares": pa.array([n / 7 for n in COUNT]),
        "floats": pa.array([2.0**100 * n for n in COUNT]),
        "singles": pa.array([1e9 + 7 * n for n in COUNT], pa.float32()),
    }
    heard = Heard()
    nodes = write(tmp_path / f"n.{form}", node_columns(**columns))
    edges = write(tmp_path / f"e.{form}", edge_columns())
    ingest(tmp_path, nodes, edges, graph={"features": list(columns), "normalize": scaling}, tell=heard)
    said = [text for text in heard.messages if "are rounded" in text]
    named = "nodes: numbers are rounded to 24 bits, as they are stored, in 'seconds' (by 64 at most)"
    assert said == [named] * (scaling == "none")


def test_integers_beyond_64_bits_in_csv_are_named_with_their_first(tmp_path: Path) -> None:
    heard = Heard()
    nodes = write(tmp_path / "n.csv", node_columns(x=pa.array([1, 2, *[2**64 - 1] * (NUM_NODES - 2)], pa.uint64())))
    ingest(tmp_path, nodes, write(tmp_path / "e.csv", edge_columns()), graph={"normalize": "standard"}, tell=heard)
    (said,) = [text for text in heard.messages if "64 bits" in text]
    assert said.startswith(
        f"nodes: column 'x' holds integers beyond 64 bits, the first is '{2**64 - 1}' in {nodes}, row 2: they are read "
    )


def test_columns_of_typed_tables_are_named_with_their_table(tmp_path: Path) -> None:
    tables = typed_tables()
    pays = tables["account__pays__merchant"]
    amounts = pa.array([Decimal(2**24 + n) for n in range(pays.num_rows)], pa.decimal128(20, 0))
    tables["account__pays__merchant"] = pays.set_column(pays.column_names.index("amount"), "amount", amounts)
    graph, heard = {**write_tables(tmp_path, tables), "edge_features": ["amount"]}, Heard()
    make_artifact(StageContext.of(graph_config(tmp_path, graph=graph), progress=heard), "ingest")
    (told,) = (text for text in heard.messages if "are rounded" in text)
    assert told.startswith("edges/account__pays__merchant: numbers are rounded to 24 bits, as they are stored, in 'am")


TIMES = [1_700_000_000 + 7 * n for n in COUNT]
SCALED: dict[str, Any] = {
    "integers": pa.array(TIMES),
    "decimals": pa.array([Decimal(each) for each in TIMES], pa.decimal128(20, 3)),
    "floats": pa.array(TIMES, pa.float64()),
    "seconds": pa.array(TIMES, pa.timestamp("s")),
    "nanoseconds of a zone": pa.array([each * 10**9 for each in TIMES], pa.timestamp("ns", "Europe/Paris")),
    "days": pa.array([19_000 + 7 * n for n in COUNT], pa.date32()),
    "milliseconds": pa.array([each * 86_400_000 for each in COUNT], pa.date64()),
    "beyond float32": pa.array([1e60 + 1e55 * n for n in COUNT]),
    "decimals beyond float32": pa.array([Decimal(10**60 + 10**50 * n) for n in COUNT], pa.decimal256(76, 0)),
}


@pytest.mark.parametrize("name", SCALED)
def test_scaling_keeps_what_tells_numbers_apart(tmp_path: Path, name: str) -> None:
    nodes = write(tmp_path / "n.parquet", node_columns(x=SCALED[name]))
    edges = write(tmp_path / "e.parquet", edge_columns(amount=SCALED[name]))
    graph = {"edge_features": ["amount"], "normalize": "standard", "edge_normalize": "standard"}
    heard = Heard()
    found, pairs = stored(ingest(tmp_path, nodes, edges, graph=graph, tell=heard))
    want = (np.arange(NUM_NODES) - np.mean(COUNT)) / np.std(COUNT)
    np.testing.assert_allclose(by_id(found)[:, 0], want, atol=1e-6)
    order = np.argsort(pairs["src"].to_numpy())
    np.testing.assert_allclose(to_matrix(pairs["attributes"])[order, 0], want, atol=1e-6)
    assert any("rounded to 53 bits" in text for text in heard.messages) == (name == "decimals beyond float32")
    assert not any("rounded to 24 bits" in text for text in heard.messages)


def test_a_time_counts_seconds_whatever_its_unit() -> None:
    seconds = [0, 86_400, 1_700_006_400, -86_400, None]
    kinds = [*(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.timestamp("us", "Asia/Tokyo"), pa.date64()]
    for kind in kinds:
        column = pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp(kind.unit) if hasattr(kind, "unit") else kind)
        np.testing.assert_array_equal(floats_of(column.cast(kind)), np.array(seconds, float))
    days = pa.array([0, 1, 19_676, -1, None], pa.date32())
    np.testing.assert_array_equal(floats_of(days), [0, 86_400, 1_700_006_400, -86_400, np.nan])


def test_a_decimal_is_the_nearest_float() -> None:
    rng = np.random.default_rng(0)
    numbers = [Decimal(int(high) * 10**18 + int(low)).scaleb(-5) for high, low in rng.integers(0, 10**18, (500, 2))]
    assert floats_of(pa.array(numbers, pa.decimal128(38, 5))).tolist() == [float(each) for each in numbers]


REFUSED: dict[str, tuple[str, pa.Array, str]] = {
    "a null boolean": ("x", pa.array([None if n == 5 else True for n in COUNT]), "'x': .*null.*row 5: None"),
    "a null integer": ("x", pa.array([None if n == 5 else 2**60 for n in COUNT]), "'x': .*null.*row 5: None"),
    "a null decimal": ("weight", pa.array([None if n == 5 else Decimal(1) for n in COUNT]), "'weight': .*row 5: None"),
    "a null date": ("x", pa.array([None if n == 5 else n for n in COUNT], pa.date32()), "'x': .*null.*row 5: None"),
    "a large decimal": (
        "amount",
        pa.array([Decimal(10**39 if n == 5 else 1) for n in COUNT], pa.decimal256(40, 0)),
        "'amount': .*3.4e38.*row 5: 1000000",
    ),
    "a negative decimal": (
        "weight",
        pa.array([Decimal(1 - 2 * (n == 5)) for n in COUNT], pa.decimal128(5, 0)),
        "'weight': weight is negative.*row 5: -1",
    ),
    "dates as weights": ("weight", pa.array(COUNT, pa.date32()), "'weight' is date32.*, not a weight"),
    "lengths of time": ("x", pa.array(COUNT, pa.duration("s")), "'x' is duration.*, not numbers"),
    "text": ("x", pa.array([f"{n}" for n in COUNT]), "'x' is string, not numbers.*separators.* dates or timestamps"),
    "lists of dates": (
        "x",
        pa.array([[n] for n in COUNT], pa.list_(pa.date32())),
        r"'x' is list.*date32.*, not numbers\. Write a column for each place of the list, or lists of seconds",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_number_is_refused_with_its_row(tmp_path: Path, name: str) -> None:
    column, values, expected = REFUSED[name]
    nodes = write(tmp_path / "n.parquet", node_columns(**({column: values} if column == "x" else {})))
    edges = write(tmp_path / "e.parquet", edge_columns(**({column: values} if column != "x" else {})))
    graph: dict[str, Any] = {"edge_features": ["amount"] if column == "amount" else []}
    if "null" in name and column == "x":
        graph["columns"] = {"x": {"kind": "numerical", "missing": "refuse"}}
    with pytest.raises(TableError, match=expected):
        ingest(tmp_path, nodes, edges, graph=graph)
    graph |= {"on_bad_rows": "quarantine", "max_bad_rows": 1}
    if "row 5" in expected:
        result = ingest(tmp_path, nodes, edges, graph=graph)
        aside = [entry.name for entry in result.manifest.files if entry.name.startswith("quarantine/")]
        assert sum(pq.read_table(f"{result.artifact}/{file}").num_rows for file in aside) == 1 + 2 * (column == "x")


def test_lists_of_decimals_arrive_and_bad_ones_are_set_aside(tmp_path: Path) -> None:
    lists = [[Decimal(n), None if n == 5 else Decimal("0.25")] for n in COUNT]
    for number, kind in enumerate((pa.list_(CENTS), pa.list_(CENTS, 2))):
        nodes = write(tmp_path / f"{number}.parquet", node_columns(x=pa.array(lists, kind)))
        edges = write(tmp_path / "e.parquet", edge_columns())
        found, _ = stored(ingest(tmp_path, nodes, edges, graph={"on_bad_rows": "quarantine", "max_bad_rows": 1}))
        assert by_id(found).tolist() == [[n, 0.25] for n in COUNT if n != 5]


@pytest.mark.parametrize("scaling", ["none", "row"])
def test_sparse_values_are_numbers_of_any_type(tmp_path: Path, scaling: str) -> None:
    heard = Heard()
    values = pa.array([[2**24 + 1, 1]] * NUM_NODES, pa.list_(pa.uint64()))
    nodes = write(tmp_path / "n.parquet", node_columns(s_index=pa.array([[0, 3]] * NUM_NODES), s_value=values))
    edges = write(tmp_path / "e.parquet", edge_columns())
    graph = {"features": ["s"], "normalize": scaling}
    found, _ = stored(ingest(tmp_path, nodes, edges, graph=graph, tell=heard))
    total = 1 if scaling == "none" else 2**24 + 2
    want = (np.array([2**24 + 1, 1], np.float64) / total).astype(np.float32).tolist()
    assert found["x_value"].to_pylist() == [want] * NUM_NODES
    assert any("'s_value' (by 1 at most)" in text for text in heard.messages) == (scaling == "none")


def test_weights_that_float32_makes_one_are_a_tie_and_none_change_places(tmp_path: Path) -> None:
    weights = np.array([2**24 + n for n in COUNT])
    nodes = write(tmp_path / "n.parquet", node_columns())
    _, edges = stored(ingest(tmp_path, nodes, write(tmp_path / "e.parquet", edge_columns(weight=weights))))
    held = edges["weight"].to_numpy()[np.argsort(edges["src"].to_numpy())]
    assert np.all(np.diff(held) >= 0)
    assert len(np.unique(held)) == NUM_NODES // 2 + 1


@pytest.mark.parametrize(
    ("value", "fits"), [(1e39, True), (-1e39, True), (1e45, False), (-1e45, False), (1e101, False)]
)
def test_what_a_published_model_s_figures_take_beyond_float32_is_refused(value: float, fits: bool) -> None:
    parts = (ColumnPart("a", 1, is_list=False), ColumnPart("x", 2, is_list=True))
    table = pa.table({"a": [0.0] * 3, "x": [[1.0, 2.0], [3.0, value], [5.0, 6.0]]})
    scale = ColumnScale((0.0, 0.0, 2.0), (1.0, 1e-30, 100.0))
    faults = number_faults(table, parts, "feature", scaling="standard", scale=scale)
    assert [fault.rows.tolist() for fault in faults if len(fault.rows)] == ([] if fits else [[1]])
