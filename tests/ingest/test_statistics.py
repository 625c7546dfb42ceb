"""Column counts are exact, ignore partitions and row order, and measure how far a column moved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnnflow.graph.facts import ColumnCounts, GraphFacts
from gnnflow.ingest.fields import ColumnPart
from gnnflow.ingest.schema import NodeSchema
from gnnflow.ingest.statistics import (
    MAX_COLUMNS,
    MAX_RANGES,
    codes_of,
    column_names,
    count_rows,
    drift_of,
    merge_counts,
    rows_up_to,
    statistics_of,
)
from gnnflow.mapreduce.rounds import TaskRecord
from gnnflow.stages.base import StageContext
from gnnflow.stages.running import make_artifact
from gnnflow.storage.columns import from_matrix, from_ragged, to_matrix
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

floats = st.floats(width=32, allow_nan=False)


class Delivered:
    """The inbox of a partition that these tables came to."""

    def __init__(self, tables: list[pa.Table]) -> None:
        self.tables = tables

    def read(self, _: str) -> pa.Table:
        return pa.concat_tables(self.tables)


def schema_of(width: int) -> NodeSchema:
    part = ColumnPart("x", width, is_list=True)
    return NodeSchema(features=(part,), feature_width=width)


def counted(pieces: list[np.ndarray]) -> dict[str, ColumnCounts]:
    """Return the statistics of a matrix [N, F] that lies in pieces."""
    schema = schema_of(pieces[0].shape[1])
    tables = [pa.table({"x": from_matrix(piece.astype(np.float32))}) for piece in pieces]
    emits = [count_rows(table, schema, partitions=1).rows for table in tables]
    output: Any = merge_counts(0, Delivered(emits))
    merged = statistics_of([TaskRecord(0, (), output.counts, 0, 0, {}, {})], column_names(schema))
    return {column.name: column for column in merged}


def column(values: Any) -> ColumnCounts:
    return counted([np.asarray(values, np.float32)[:, None]])["x[0]"]


@given(arrays.arrays(np.float32, st.integers(2, 40), elements=floats))
def test_codes_keep_the_order_of_numbers(values: np.ndarray) -> None:
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(codes_of(values[order]).astype(int)) >= 0)


def test_many_rows_are_counted_as_few_are() -> None:
    matrix = np.random.default_rng(0).standard_normal((5000, 2)).astype(np.float32)
    matrix[:9] = [[0.0, -0.0], [np.inf, -np.inf], [1, -1]] * 3
    many = count_rows(pa.table({"x": from_matrix(matrix)}), schema_of(2), partitions=1).rows
    for column in range(2):
        codes, rows = np.unique(codes_of(matrix[:, column].copy()), return_counts=True)
        found = many.filter(pa.compute.equal(many["column"], column))
        assert (found["code"].to_pylist(), found["rows"].to_pylist()) == (codes.tolist(), rows.tolist())


def test_codes_are_pinned() -> None:
    # A change here makes the statistics of two runs incomparable: it needs a new format version of ingest.
    assert codes_of(np.array([-1, -0.0, 0, 1, 1.004, 1.008, 2024], np.float32)).tolist() == [
        16511,
        32768,
        32768,
        49024,
        49024,
        49025,
        50429,
    ]


@given(st.integers(0, 2**31), st.integers(1, 300), st.integers(1, 4))
def test_counts_ignore_how_rows_are_split(seed: int, rows: int, pieces: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.c_[rng.standard_normal(rows), rng.integers(0, 3, rows)].astype(np.float32)
    whole = counted([matrix])
    shuffled = rng.permutation(matrix)
    assert counted([part for part in np.array_split(shuffled, pieces) if len(part)]) == whole
    assert whole["x[0]"].rows == whole["x[1]"].rows == rows
    assert len(whole["x[0]"].codes) <= MAX_RANGES + 1
    assert whole["x[1]"].exact


@given(arrays.arrays(np.float32, st.integers(1, 400), elements=floats))
def test_thinned_counts_are_exact_where_they_are_kept(values: np.ndarray) -> None:
    found = column(values)
    codes = codes_of(values)
    expected = [np.count_nonzero(codes <= code) for code in found.codes]
    assert rows_up_to(found, np.array(found.codes)).tolist() == expected
    assert found.codes[0] == codes.min()
    assert found.codes[-1] == codes.max()


def test_the_manifest_does_not_depend_on_partitions(tmp_path: Path) -> None:
    write_graph(tmp_path)
    counted = []
    for partitions in (1, 4):
        context = StageContext.of(graph_config(tmp_path, graph={"partitions": partitions}))
        counted.append(make_artifact(context, "ingest").facts(GraphFacts).columns)
    assert counted[0] == counted[1]
    x = to_matrix(pq.read_table(tmp_path / "nodes.parquet")["x"])
    assert counted[0][2] == replace(column(x[:, 2]), name="x[2]")


def test_of_wide_tables_evenly_spaced_columns_are_kept() -> None:
    names = column_names(schema_of(1433))
    assert len(names) == MAX_COLUMNS
    assert (names[0], names[-1]) == ("x[0]", "x[1432]")
    assert column_names(schema_of(3)) == ["x[0]", "x[1]", "x[2]"]


def test_sparse_features_are_counted_by_entries_in_a_row() -> None:
    schema = NodeSchema(sparse="x", feature_width=9)
    offsets, index = np.array([0, 2, 2, 5]), np.arange(5, dtype=np.int32)
    emit = count_rows(pa.table({"x_index": from_ragged(offsets, index)}), schema, partitions=1)
    assert column_names(schema) == ["entries of x in a row"]
    assert emit.rows["code"].to_pylist() == codes_of(np.array([0, 2, 3], np.float32)).tolist()
    assert emit.rows["rows"].to_pylist() == [1, 1, 1]


@given(arrays.arrays(np.float32, st.integers(1, 300), elements=floats))
def test_equal_columns_have_not_moved(values: np.ndarray) -> None:
    assert drift_of(column(values), column(values)).psi == 0


def exact_psi(before: np.ndarray, after: np.ndarray) -> float:
    """The definition, on the values themselves."""
    cuts = np.quantile(before, np.arange(1, 10) / 10)
    old, new = (np.bincount(np.searchsorted(cuts, held), minlength=10) / len(held) for held in (before, after))
    return float(np.sum((new - old) * np.log(new / old)))


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", ["normal", "lognormal", "offset"])
def test_the_index_is_near_its_definition_on_the_values(shape: str, shift: float) -> None:
    rng = np.random.default_rng(1)
    before, after = rng.normal(0, 1, 20_000), rng.normal(shift, 1, 20_000)
    form = {"normal": lambda v: v, "lognormal": np.exp, "offset": lambda v: 100 + 10 * v}[shape]
    expected = exact_psi(form(before), form(after))
    assert drift_of(column(form(before)), column(form(after))).psi == pytest.approx(expected, abs=0.003, rel=0.05)


def test_chance_alone_stays_below_what_chance_may_give() -> None:
    rng = np.random.default_rng(2)
    columns = [[column(rng.standard_normal(rows)) for rows in (150, 80)] for _ in range(100)]
    drifts = [drift_of(before, after) for before, after in columns]
    assert all(drift.psi < drift.chance for drift in drifts)
    assert np.mean([drift.psi for drift in drifts]) > 0.3 * np.mean([drift.chance for drift in drifts])


@pytest.mark.parametrize("constant", [-3.0, 0.0, 7.0])
def test_a_constant_column_that_moves_is_seen(constant: float) -> None:
    before = column(np.full(500, constant))
    for other in (constant - 1, constant + 1):
        assert drift_of(before, column(np.full(500, other))).psi > 5


def test_a_rare_flag_that_becomes_common_is_seen() -> None:
    before, after = (column(np.arange(10_000) % every == 0) for every in (100, 4))
    assert drift_of(before, after).psi > 0.5
    assert drift_of(after, before).psi > 0.5
