"""Columns of any kind as columns of numbers: fitted once over a table, and encoded by the state that was fitted.

`values` reads a column as floats, text or times, `fit` counts chunks of it and makes its state, `encode` applies that.
Start with `gnnflow.graph.encodings`, the states.
"""

from gnnflow.columns.encode import Found, encode, find_unknown, readings_of
from gnnflow.columns.fit import SAMPLES, VALUES, Counted, count_column, merge_samples, merge_values, state_of
from gnnflow.columns.forms import find_forms
from gnnflow.columns.values import ISO_DATE, LEADING_ZEROS, floats_of, numbers_of, words_of

__all__ = [
    "ISO_DATE",
    "LEADING_ZEROS",
    "SAMPLES",
    "VALUES",
    "Counted",
    "Found",
    "count_column",
    "encode",
    "find_forms",
    "find_unknown",
    "floats_of",
    "merge_samples",
    "merge_values",
    "numbers_of",
    "readings_of",
    "state_of",
    "words_of",
]
