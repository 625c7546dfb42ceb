"""Fits the columns of a table: mergeable counts of each chunk, and the state that follows from all of them.

Sums are exact, values are counted whole by the task that their hash chooses, and quantiles come from the rows with the
smallest hashes of their ids. So a state depends on neither the chunks of a table nor their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns.encode import transformed
from gnnflow.columns.sums import as_fraction, exact_squares, exact_sum
from gnnflow.columns.values import Column, members_of, numbers_of, texts_of, times_of
from gnnflow.columns.words import call_encoder
from gnnflow.config.columns_section import (
    CategoricalColumn,
    ColumnSection,
    MulticategoricalColumn,
    NumericalColumn,
    TextColumn,
    TimestampColumn,
)
from gnnflow.graph.arrays import Array, KeyArray
from gnnflow.graph.encodings import CategoricalState, ColumnState, NumericalState, TextState, TimestampState
from gnnflow.storage.columns import to_numpy

LARGEST_SQUARED = 1e100
SAMPLED_ROWS = 10_000
"""The rows that quantiles follow from: those with the smallest hashes of their ids."""
_QUANTILES = 1000
_DAY = 86_400.0

VALUES = pa.schema({"column": pa.int64(), "value": pa.large_string(), "rows": pa.int64()})
SAMPLES = pa.schema({"column": pa.int64(), "key": pa.uint64(), "number": pa.float64()})


class Counted(NamedTuple):
    """A chunk's counts of one column: JSON-ready ones, the rows of each value, and sampled numbers with their keys."""

    counts: dict[str, Any]
    values: pa.Table
    samples: pa.Table


def count_column(column: Column, section: ColumnSection, *, number: int, keys: KeyArray) -> Counted:
    """Return a chunk's counts of a column. number: of the column among all. keys [R]: hashes of the rows' ids."""
    counts: dict[str, Any] = {"rows": len(column)}
    values, samples = VALUES.empty_table(), SAMPLES.empty_table()
    if isinstance(section, NumericalColumn):
        read = numbers_of(column, section.decimal or "")
        known = np.abs(read.values) <= LARGEST_SQUARED
        numbers = transformed(read.values[known], "log" if section.scale == "log" else "none")
        counts |= {"missing": int(read.missing.sum()), **_sums(numbers, squares=section.scale in {"standard", "log"})}
        if section.scale == "quantile":
            samples = _smallest(_samples(number, keys[known], numbers))
    elif isinstance(section, TimestampColumn):
        read = times_of(column, section.format or "")
        held = read.values[~np.isnan(read.values)]
        counts |= {"missing": int(read.missing.sum()), "latest": float(held.max()) if len(held) else None}
        counts["has_hours"] = bool(np.any(held % _DAY != 0))
    elif isinstance(section, MulticategoricalColumn):
        members = members_of(column, section.separator or "")
        counts["missing"] = int(members.missing.sum())
        values = _value_counts(number, members.values)
    else:
        text = texts_of(column)
        counts["missing"] = text.null_count
        if isinstance(section, CategoricalColumn):
            values = _value_counts(number, text.drop_null())
    return Counted(counts, values, samples)


def _sums(numbers: Array, *, squares: bool) -> dict[str, Any]:
    bounds = [float(numbers.min()), float(numbers.max())] if len(numbers) else None
    return {
        "known": len(numbers),
        "sum": hex(exact_sum(numbers)),
        "squares": hex(exact_squares(numbers) if squares else 0),
        "bounds": bounds,
    }


def _samples(number: int, keys: Array, numbers: Array) -> pa.Table:
    return pa.table([np.full(len(keys), number), keys, numbers], schema=SAMPLES)


def _smallest(samples: pa.Table) -> pa.Table:
    """Return the rows of a column with the smallest keys, rows of one key by their numbers."""
    order = np.lexsort((to_numpy(samples["number"]), to_numpy(samples["key"])))
    return samples.take(pa.array(order[:SAMPLED_ROWS]))


def _value_counts(number: int, values: Column) -> pa.Table:
    counted = values.value_counts()
    held = [pa.array(np.full(len(counted), number)), counted.field("values"), counted.field("counts")]
    return pa.table(held, schema=VALUES)


def merge_values(parts: pa.Table, kept: Mapping[int, int]) -> dict[str, Any]:
    """Return the most frequent values of each column with their rows, and the number of its values.

    parts: the counts of all chunks for the values that came to one task. kept: how many values a column keeps.
    """
    total = parts.group_by(["column", "value"], use_threads=False).aggregate([("rows", "sum")])
    found: dict[str, Any] = {}
    for number in pc.unique(total["column"]).to_pylist():
        own = total.filter(pc.equal(total["column"], number))
        order = pc.sort_indices(own, [("rows_sum", "descending"), ("value", "ascending")])[: kept[number]]
        rows = own.take(order)
        pairs = [list(pair) for pair in zip(rows["value"].to_pylist(), rows["rows_sum"].to_pylist(), strict=True)]
        found[str(number)] = {"distinct": own.num_rows, "rows": pc.sum(own["rows_sum"]).as_py(), "values": pairs}
    return found


def merge_samples(parts: pa.Table) -> dict[str, Any]:
    """Return the quantiles of each column, from the samples of all chunks."""
    found: dict[str, Any] = {}
    for number in pc.unique(parts["column"]).to_pylist():
        numbers = to_numpy(_smallest(parts.filter(pc.equal(parts["column"], number)))["number"])
        places = np.linspace(0, 1, min(_QUANTILES, len(numbers))) * 100
        found[str(number)] = np.percentile(numbers, places).tolist()
    return found


def state_of(
    name: str,
    section: ColumnSection,
    counted: Sequence[Mapping[str, Any]],
    *,
    values: Sequence[Mapping[str, Any]],
    quantiles: Sequence[float],
) -> ColumnState:
    """Return a column's state. counted: of all chunks; values, quantiles: of the tasks that merged."""
    rows, missing = (sum(each[key] for each in counted) for key in ("rows", "missing"))
    if isinstance(section, NumericalColumn):
        state = NumericalState(
            name=name,
            rows=rows,
            missing=missing,
            missing_as=section.missing,
            scale=section.scale,
            decimal=section.decimal or "",
        )
        return _numerical(state, counted, tuple(quantiles))
    if isinstance(section, TimestampColumn):
        latest = max((each["latest"] for each in counted if each["latest"] is not None), default=0.0)
        hours = any(each["has_hours"] for each in counted)
        form = section.format or ""
        return TimestampState(name=name, rows=rows, missing=missing, latest=latest, has_hours=hours, format=form)
    if isinstance(section, TextColumn):
        width = call_encoder(pa.array(["text"]), section.encoder).shape[1] if section.encoder else section.width
        return TextState(name=name, rows=rows, missing=missing, width=width, encoder=section.encoder or "")
    assert isinstance(section, CategoricalColumn | MulticategoricalColumn)
    held = [(-count, value) for each in values for value, count in each["values"]]
    kept = sorted(held, key=lambda each: (each[0], each[1].encode()))[: section.values]
    distinct = sum(each["distinct"] for each in values)
    return CategoricalState(
        name=name,
        rows=rows,
        missing=missing,
        kind=section.kind,
        values=tuple(sorted((value for _, value in kept), key=str.encode)),
        has_rest=distinct > len(kept) or not kept,
        separator=getattr(section, "separator", None) or "",
        distinct=distinct,
        rest=sum(each["rows"] for each in values) + sum(negative for negative, _ in kept),
    )


def _numerical(
    state: NumericalState, counted: Sequence[Mapping[str, Any]], quantiles: tuple[float, ...]
) -> NumericalState:
    """Return the state with its mean, deviation, quantiles and the number for missing ones."""
    known = sum(each["known"] for each in counted)
    total = as_fraction(sum(int(each["sum"], 16) for each in counted))
    squares = as_fraction(sum(int(each["squares"], 16) for each in counted))
    fills_zero = state.missing_as == "zero"
    filled = total / known if known and not fills_zero else Fraction(0)
    if state.scale == "none":
        return replace(state, fill=float(filled))
    if state.scale == "quantile":
        middle = transformed(np.zeros(1), "quantile", quantiles)[0] if fills_zero else 0.0
        return replace(state, quantiles=quantiles, fill=float(middle))
    # moments of the column after missing numbers are filled
    rows = max(known + state.missing, 1)
    mean = (total + filled * state.missing) / rows
    variance = (squares + filled**2 * state.missing) / rows - mean**2
    values = {bound for each in counted for bound in each["bounds"] or ()}
    values |= {0.0} if fills_zero and state.missing else set()
    if min(values, default=0.0) == max(values, default=0.0):  # a constant becomes zeros
        return replace(state, mean=min(values, default=0.0))
    deviation = float(np.sqrt(float(variance))) or 1.0
    return replace(state, mean=float(mean), deviation=deviation, fill=(float(filled) - float(mean)) / deviation)
