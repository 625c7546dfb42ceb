"""Encodes a column by its state: a matrix of floats with a column per output of the state.

Shapes: R rows, W outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns.values import Column, Readings, members_of, numbers_of, texts_of, times_of
from gnnflow.columns.words import call_encoder, hash_words
from gnnflow.graph.arrays import Array, BoolArray, IntArray
from gnnflow.graph.encodings import CategoricalState, ColumnScaling, ColumnState, NumericalState, TimestampState
from gnnflow.storage.columns import to_numpy

_DAY, _WEEK, _YEAR = 86_400.0, 7, 12
_FIRST_WEEKDAY = 3  # 1 January 1970 was a Thursday, the fourth day from Monday
_EDGE = 1e-7  # as in scikit-learn: how far from both ends of a distribution its normal form is cut


class Found(NamedTuple):
    """The rows of a column with a missing value [R], and with a value that has no column [R]."""

    missing: BoolArray
    unknown: BoolArray


def encode(column: Column, state: ColumnState) -> Array:
    """Return a column encoded by a state [R, W].

    Values that cannot be read count as missing: they are faults elsewhere.
    """
    if isinstance(state, NumericalState):
        return _numbers(numbers_of(column, state.decimal).values, state)
    if isinstance(state, TimestampState):
        return _times(times_of(column, state.format).values, state)
    if isinstance(state, CategoricalState):
        return _values(_placed(column, state), state)
    return call_encoder(column, state.encoder, width=state.width) if state.encoder else hash_words(column, state.width)


def find_unknown(column: Column, state: ColumnState) -> Found:
    """Return which values are missing and which are unknown, without encoding them."""
    if (read := readings_of(column, state)) is not None:
        return Found(np.isnan(read.values), np.zeros(len(column), bool))
    if isinstance(state, CategoricalState):
        placed = _placed(column, state)
        return Found(placed.missing, placed.unknown)
    return Found(to_numpy(pc.is_null(texts_of(column))), np.zeros(len(column), bool))


def readings_of(column: Column, state: ColumnState) -> Readings | None:
    """Return the numbers or times of a column; None where a value of its kind can always be read."""
    if isinstance(state, NumericalState):
        return numbers_of(column, state.decimal)
    return times_of(column, state.format) if isinstance(state, TimestampState) else None


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


def _numbers(values: Array, state: NumericalState) -> Array:
    missing = np.isnan(values)
    numbers = transformed(np.where(missing, 0.0, values), state.scale, state.quantiles)
    filled = np.where(missing, state.fill, (numbers - state.mean) / state.deviation)
    columns = [filled, missing.astype(np.float64)] if state.has_indicator else [filled]
    return np.stack(columns, axis=1)


def _times(values: Array, state: TimestampState) -> Array:
    missing = np.isnan(values)
    seconds = np.where(missing, 0.0, values)
    days = np.floor(seconds / _DAY)
    columns = [(state.latest - seconds) / _DAY]
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % _YEAR
    turns = [(seconds - days * _DAY) / _DAY] if state.has_hours else []
    turns += [(days + _FIRST_WEEKDAY) % _WEEK / _WEEK, months / _YEAR]
    columns += [turn(2 * np.pi * place) for place in turns for turn in (np.sin, np.cos)]
    matrix = np.where(missing[:, None], 0.0, np.stack(columns, axis=1))
    return np.column_stack([matrix, missing]) if state.missing else matrix


class _Placed(NamedTuple):
    """The rows of known values [V] and the column of each [V], and which rows are missing or unknown [R]."""

    rows: IntArray
    place: IntArray
    missing: BoolArray
    unknown: BoolArray


def _placed(column: Column, state: CategoricalState) -> _Placed:
    if state.kind == "multicategorical":
        values, rows, missing = members_of(column, state.separator)
    else:
        text = texts_of(column)
        missing = to_numpy(pc.is_null(text))
        values, rows = text.drop_null(), np.flatnonzero(~missing)
    # the column of each value, -1 where it has none
    place = to_numpy(pc.index_in(values, value_set=pa.array(state.values, pa.large_string())).fill_null(-1))
    known, unknown = place >= 0, np.zeros(len(column), bool)
    unknown[rows[~known]] = True
    return _Placed(rows[known], place[known], missing, unknown)


def _values(placed: _Placed, state: CategoricalState) -> Array:
    matrix = np.zeros((len(placed.missing), len(state.outputs)), np.float32)
    matrix[placed.rows, placed.place] = 1.0
    if state.has_rest:
        matrix[placed.unknown, len(state.values)] = 1.0
    if state.has_missing:
        matrix[placed.missing, -1] = 1.0
    return matrix
