"""Exact sums of floats: integers in units of 2^-2300, which add up in any order.

A sum of float64 depends on the order of its terms in the last digits, and so would the bytes of a store on the files of
a table. These sums do not: each term's mantissa is added as an integer (Kulisch and Miranker, Computer Arithmetic in
Theory and Practice, 1981). A square has twice the digits and is added as two floats (Dekker 1971).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from gnnflow.graph.arrays import Array

_UNIT = 2300
_MANTISSA, _HALF = 53, 26
_SPLIT = 2.0**27 + 1
_ROWS = 1 << 24  # of one step: the integers below stay exact as float64


def exact_sum(values: Array) -> int:
    """Return the sum of finite float64 values in units of 2^-2300."""
    total = 0
    for start in range(0, len(values), _ROWS):
        mantissa, exponent = np.frexp(np.asarray(values[start : start + _ROWS], np.float64))
        whole = (mantissa * 2.0**_MANTISSA).astype(np.int64)
        least = int(exponent.min(initial=0))
        # sums of the upper and lower halves of the integers with each exponent, from the least on
        upper = np.bincount(exponent - least, whole >> _HALF)
        lower = np.bincount(exponent - least, whole & ((1 << _HALF) - 1))
        for power in np.flatnonzero((upper != 0) | (lower != 0)).tolist():
            both = (int(upper[power]) << _HALF) + int(lower[power])
            total += both << (_UNIT + least + power - _MANTISSA)
    return total


def exact_squares(values: Array) -> int:
    """Return the sum of the squares of float64 values, of magnitudes up to 1e150, in units of 2^-2300."""
    numbers = np.asarray(values, np.float64)
    square = numbers * numbers
    upper = _SPLIT * numbers
    upper -= upper - numbers
    lower = numbers - upper
    lost = ((upper * upper - square) + 2 * upper * lower) + lower * lower
    return exact_sum(square) + exact_sum(lost)


def as_fraction(total: int) -> Fraction:
    """Return a sum as a number."""
    return Fraction(total, 1 << _UNIT)
