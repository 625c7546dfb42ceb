"""Encodes a column by its state: a matrix of float64 with a column per output of the state.

Shapes: R rows, W outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns.values import Column, Readings, members_of, numbers_of, texts_of, times_of
from gnnflow.graph.arrays import Array, BoolArray
from gnnflow.graph.encodings import CategoricalState, ColumnScaling, ColumnState, NumericalState, TimestampState
from gnnflow.storage.columns import to_numpy

_DAY, _WEEK, _YEAR = 86_400.0, 7, 12
_FIRST_WEEKDAY = 3  # 1 January 1970 was a Thursday, the fourth day from Monday
_EDGE = 1e-7  # as in scikit-learn: how far from both ends of a distribution its normal form is cut


class Encoded(NamedTuple):
    """The encoded column [R, W], the rows whose value is missing [R], and those whose value has no column [R]."""

    matrix: Array
    missing: BoolArray
    unknown: BoolArray


def encode(column: Column, state: ColumnState) -> Encoded:
    """Return a column encoded by a state. Values that cannot be read count as missing: they are faults elsewhere."""
    if isinstance(state, NumericalState):
        return _numbers(numbers_of(column), state)
    if isinstance(state, TimestampState):
        return _times(times_of(column), state)
    assert isinstance(state, CategoricalState)
    return _values(column, state)


def readings_of(column: Column, state: ColumnState) -> Readings | None:
    """Return the numbers or times of a column; None where a value of its kind can always be read."""
    if isinstance(state, NumericalState):
        return numbers_of(column)
    return times_of(column) if isinstance(state, TimestampState) else None


def transformed(numbers: Array, scale: ColumnScaling, quantiles: tuple[float, ...] = ()) -> Array:
    """Return numbers before the mean is taken from them: their logarithms for log, their places for quantile."""
    if scale == "log":
        return np.asarray(np.sign(numbers) * np.log1p(np.abs(numbers)))
    return _normal(numbers, np.asarray(quantiles)) if scale == "quantile" else numbers


def _normal(numbers: Array, quantiles: Array) -> Array:
    """Return the normal quantile of each number's place among quantiles; the middle place of equal quantiles."""
    from scipy.special import ndtri

    if not len(quantiles):
        return np.zeros(len(numbers))
    places = np.linspace(0, 1, len(quantiles))
    upward = np.interp(numbers, quantiles, places)
    downward = np.interp(-numbers, -quantiles[::-1], -places[::-1])
    share = 0.5 * (upward - downward)
    share = np.where(numbers + _EDGE > quantiles[-1], 1.0, share)
    share = np.where(numbers - _EDGE < quantiles[0], 0.0, share)
    ends = ndtri(_EDGE - np.spacing(1)), ndtri(1 - (_EDGE - np.spacing(1)))
    return np.asarray(np.clip(ndtri(share), *ends))


def _numbers(read: Readings, state: NumericalState) -> Encoded:
    missing = np.isnan(read.values)
    numbers = transformed(np.where(missing, 0.0, read.values), state.scale, state.quantiles)
    filled = np.where(missing, state.fill, (numbers - state.mean) / state.deviation)
    columns = [filled, missing.astype(np.float64)] if state.has_indicator else [filled]
    return Encoded(np.stack(columns, axis=1), missing, np.zeros(len(filled), bool))


def _times(read: Readings, state: TimestampState) -> Encoded:
    missing = np.isnan(read.values)
    seconds = np.where(missing, 0.0, read.values)
    days = np.floor(seconds / _DAY)
    columns = [(state.latest - seconds) / _DAY]
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % _YEAR
    turns = [(seconds - days * _DAY) / _DAY] if state.has_hours else []
    turns += [(days + _FIRST_WEEKDAY) % _WEEK / _WEEK, months / _YEAR]
    columns += [turn(2 * np.pi * place) for place in turns for turn in (np.sin, np.cos)]
    matrix = np.where(missing[:, None], 0.0, np.stack(columns, axis=1))
    if state.missing:
        matrix = np.column_stack([matrix, missing])
    return Encoded(matrix, missing, np.zeros(len(seconds), bool))


def _values(column: Column, state: CategoricalState) -> Encoded:
    rows = len(column)
    matrix = np.zeros((rows, len(state.outputs)))
    if state.kind == "multicategorical":
        values, of, missing = members_of(column, state.separator)
    else:
        text = texts_of(column)
        missing = to_numpy(pc.is_null(text))
        values, of = text.drop_null(), np.flatnonzero(~missing)
    # the column of each value [V], -1 where it has none
    place = to_numpy(pc.index_in(values, value_set=pa.array(state.values, pa.large_string())).fill_null(-1))
    known = place >= 0
    matrix[of[known], place[known]] = 1.0
    unknown = np.zeros(rows, bool)
    unknown[of[~known]] = True
    if state.has_rest:
        matrix[unknown, len(state.values)] = 1.0
    if state.has_missing:
        matrix[missing, -1] = 1.0
    return Encoded(matrix, missing, unknown)
