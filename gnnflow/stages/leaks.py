"""Finds columns that by themselves tell the label of a sample's rows.

Such columns are often filled after the fact.

A rule is one of three: the column is filled or not, each of its values has one class, or its numbers lie below or above
one bound. It is told where it is right in nearly every row, and wrong far less often than the most frequent class is.
A value is judged by the other rows with it, so that values that are in one row each show nothing. Of more than two
classes a column may tell one from all others; it is then judged as if there were these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import floats_of
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.storage.columns import combine, to_numpy
from gnnflow.storage.user_tables import holds_numbers, holds_text, holds_times, plain

LEAST_ROWS = 30
LEAST_OTHERS = 10  # rows of other classes than the most frequent, without which chance separates few rows
_MOST_WRONG = 0.01
_BETTER = 0.1  # of the most frequent class's mistakes, at most this share
_MOST_READ = 5000  # rows, evenly spaced
_FEW_VALUES = 50  # numbers that are counted as values too
_FEW_CLASSES = 20  # above which no class is looked at alone
_TWO = 2


@dataclass(frozen=True)
class Leak:
    """A column that tells the label. share: of rows, in which it does; without: in which the largest class does.

    only: the one class of several that it tells from all others; empty where it tells all.
    """

    column: str
    how: str
    share: float
    without: float
    only: str = ""

    @property
    def text(self) -> str:
        """The finding as a part of a sentence."""
        if self.only:
            return (
                f"by itself tells whether the class is {self.only!r} in {self.share:.1%} of the rows that were read, "
                f"{self.how}"
            )
        return (
            f"by itself tells the label of {self.share:.1%} of the rows that were read, {self.how} "
            f"(the most frequent class is {self.without:.1%})"
        )


def find_leaks(rows: pa.Table, label: str, columns: Sequence[str]) -> list[Leak]:
    """Return the columns that tell a label of classes. rows: those with a label alone."""
    if rows.num_rows > _MOST_READ:
        rows = rows.take(pa.array(np.linspace(0, rows.num_rows - 1, _MOST_READ).astype(np.int64)))
    words = _plain_words(combine(rows[label]))
    labels = _codes(words)
    names = ["" if name is None else str(name) for name in words.dictionary_encode().dictionary.to_pylist()]
    # all classes, then one of several and the rest as two
    parts = {"": labels}
    if _TWO < len(names) <= _FEW_CLASSES:
        parts |= {name: (labels == code).astype(np.int64) for code, name in enumerate(names)}
    found = []
    for column in columns:
        held = combine(rows[column])
        leaks = (_leak_of(column, held, part, only=only) for only, part in parts.items())
        found.append(next((each for each in leaks if each is not None), None))
    return [leak for leak in found if leak is not None]


def _leak_of(name: str, column: pa.Array, labels: IntArray, *, only: str) -> Leak | None:
    """Return the simplest rule by which a column tells these labels; None where it does not."""
    others = len(labels) - int(np.bincount(labels).max(initial=0))
    if len(labels) < LEAST_ROWS or others < LEAST_OTHERS:
        return None
    allowed = min(_MOST_WRONG * len(labels), _BETTER * others)
    rules = _mistakes(column, labels)
    how = next((how for how, mistakes in rules.items() if mistakes <= allowed), None)
    return None if how is None else Leak(name, how, 1 - rules[how] / len(labels), 1 - others / len(labels), only)


def alike_names(classes: Sequence[str]) -> list[list[str]]:
    """Return the names of classes that differ in case and spaces alone, together."""
    found: dict[str, list[str]] = {}
    for name in classes:
        found.setdefault(" ".join(name.split()).casefold(), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _mistakes(column: pa.Array, labels: IntArray) -> dict[str, int]:
    """Return the number of rows in which each rule that suits a column is wrong, the simplest first."""
    kind, column = plain(column.type), _plain_words(column)
    rules: dict[str, int] = {}
    if column.null_count:
        rules["by being filled or not"] = _of_values(to_numpy(column.is_null()).astype(np.int64), labels)
    if holds_numbers(kind) or holds_times(kind):
        numbers = floats_of(column)
        if len(np.unique(numbers)) <= _FEW_VALUES:
            rules["by its values"] = _of_values(_codes(column), labels)
        rules["by one bound of its numbers"] = _of_bound(numbers, labels)
    elif holds_text(kind) or pa.types.is_boolean(kind):
        rules["by its values"] = _of_values(_codes(column), labels)
    return rules


def _plain_words(column: pa.Array) -> pa.Array:
    """Return text in lower case without spaces around it, null where nothing is left; other columns as they are."""
    if not holds_text(plain(column.type)):
        return column
    text = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.large_string())))
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)


def _codes(column: pa.Array) -> IntArray:
    """Return the number of each value, with one number for nulls."""
    codes = column.dictionary_encode().indices.cast(pa.int64())
    return to_numpy(codes.fill_null((pc.max(codes).as_py() or 0) + 1))


def _of_values(codes: IntArray, labels: IntArray) -> int:
    """Return the rows that have another class than most of the other rows with their value.

    A row whose value no other has is wrong, as nothing is known of it.
    """
    _, place, alike = np.unique(codes * (labels.max() + 1) + labels, return_inverse=True, return_counts=True)
    of_value = np.bincount(codes)[codes] - 1  # without the row itself
    is_right = 2 * (alike[place] - 1) > of_value
    return int(len(labels) - is_right.sum())


def _of_bound(numbers: Array, labels: IntArray) -> int:
    """Return the least number of rows that one bound sorts wrongly; rows without a number are their own part."""
    is_known = ~np.isnan(numbers)
    order = np.argsort(numbers[is_known], kind="stable")
    ranked, own = numbers[is_known][order], labels[is_known][order]
    classes = int(labels.max()) + 1
    unknown = np.bincount(labels[~is_known], minlength=classes)
    cuts = np.flatnonzero(np.diff(ranked))
    if not len(cuts) or classes > _FEW_VALUES:
        return len(labels)
    below = np.cumsum(np.eye(classes, dtype=np.int64)[own], axis=0)
    right = below[cuts].max(axis=1) + (below[-1] - below[cuts]).max(axis=1)
    return int(len(labels) - unknown.max() - right.max())
