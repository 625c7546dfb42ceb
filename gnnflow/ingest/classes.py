"""The classes of a label column whose labels are names: text, or whatever `graph.classes: distinct` counts.

A round reads the label column alone, before any row, and counts its distinct labels. They are numbered in sorted order;
of exactly two, the rarer one is class 1. Bounded: a task sends at most MOST_CLASSES labels.

Shapes: R rows.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.columns import words_of
from gnnflow.graph.errors import TableError, listed
from gnnflow.mapreduce.rounds import Round, TaskOutput
from gnnflow.storage.columns import combine, plain_values
from gnnflow.storage.user_tables import holds_numbers, holds_text, plain, read_chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.ingest.text import SourceTable
    from gnnflow.mapreduce.exchange import Inbox
    from gnnflow.mapreduce.rounds import RoundRunner
    from gnnflow.storage.user_tables import Chunk

MOST_CLASSES = 1000
"""The largest number of classes that are found in a column; more are listed in `graph.classes`."""

_LONGEST = 200  # letters of a class's name
_SHOWN = 5
_TWO = 2
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"[+-]?[0-9., ]*[.,][0-9]+")
_DIGITS = re.compile(r"[+-]?[0-9]+")
_MOST_AMOUNTS = 20
_MOST_WHOLE = 20
_WHOLE = 2.0**53  # floats below it count by ones

Column = Any  # pa.Array: pyarrow ships no complete types


@dataclass(frozen=True)
class FoundClasses:
    """The distinct labels of a column in the order of their class numbers, and the number of rows of each.

    unlabelled: rows without a label. are_numbers: the labels are the class numbers themselves, as in a column of the
    integers from 0.
    """

    column: str
    labels: tuple[str, ...]
    rows: tuple[int, ...]
    unlabelled: int
    are_numbers: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes; empty where labels are the class numbers themselves."""
        return () if self.are_numbers else self.labels

    @property
    def text(self) -> str:
        """The classes as a sentence for the log."""
        shown = [f"{label} ({count:,})" for label, count in zip(self.labels, self.rows, strict=True)]
        none = f"; {self.unlabelled:,} rows have no label" if self.unlabelled else ""
        begin = f"column {self.column!r}: {len(self.labels):,} classes"
        if self.are_numbers or len(self.labels) != _TWO:
            return f"{begin} in sorted order, with their rows: {listed(shown, at_most=_SHOWN)}{none}"
        return (
            f"{begin}: class 1 (positive) is the rarer one, {shown[1]}, class 0 is {shown[0]}{none}. "
            "graph.classes lists them in another order."
        )


def holds_names(found: pa.DataType, config: GraphConfig) -> bool:
    """Return whether the labels of a column of a type are names of classes."""
    found = plain(found)
    if config.classes == "whole" and pa.types.is_floating(found):
        return True
    return holds_text(found) or (config.classes == "distinct" and holds_numbers(found))


def given_labels(column: Column, config: GraphConfig) -> Column:
    """Return a label column [R] with null for each value of `graph.unlabelled`; where classes are found, for "" too."""
    values = plain_values(column)
    none = config.unlabelled or ()
    if holds_text(values.type):
        none = none if isinstance(config.classes, tuple) else (*none, "")
        if not none:
            return values
        is_none = pc.is_in(values.cast(pa.large_string()), value_set=pa.array(none, pa.large_string()))
    elif none and holds_numbers(values.type):
        numbers = [number for number in map(_number_of, none) if number is not None]
        is_none = pc.is_in(values.cast(pa.float64(), safe=False), value_set=pa.array(numbers, pa.float64()))
    else:
        return values
    return pc.if_else(is_none, pa.scalar(None, values.type), values) if pc.any(is_none).as_py() else values


def label_text(column: Column) -> Column:
    """Return labels as text [R]: whole numbers without a point, null where null or NaN."""
    if pa.types.is_floating(column.type):
        numbers = np.asarray(column.cast(pa.float64()).fill_null(np.nan))
        is_whole = (np.abs(numbers) < _WHOLE) & (numbers == np.rint(numbers))
        whole = pa.array(np.where(is_whole, numbers, 0).astype(np.int64)).cast(pa.string())
        text = pc.if_else(pa.array(is_whole), whole, pa.array(numbers).cast(pa.string()))
        return pc.if_else(pa.array(np.isnan(numbers)), pa.scalar(None, pa.string()), text)
    return column.cast(pa.string())


def _number_of(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def find_classes(table: SourceTable, config: GraphConfig, runner: RoundRunner) -> FoundClasses | None:
    """Return the classes of a table's label column, None where they are listed or labels are numbers to predict.

    Raises TableError for more than MOST_CLASSES labels, and for labels too long to be names.
    """
    name, schema = config.label_column, table.schema()
    if name not in schema.names or isinstance(config.classes, tuple):
        return None
    if not holds_names(schema.field(name).type, config):
        return None
    task = partial(count_labels, chunks=table.chunks, config=config)
    records = runner.run(Round("labels_read", len(table.chunks), 1, task))
    counted: Counter[str] = Counter()
    is_text = holds_text(plain(schema.field(name).type))
    for record in records:
        counted.update(dict(record.counts["labels"]))
        if config.classes == "whole" and not is_text and not _are_whole(counted):
            return None
        if len(counted) > MOST_CLASSES:
            raise _too_many(table, config, counted)
    if any(len(label) > _LONGEST for label in counted):
        raise TableError(
            f"column {name!r} holds text of more than {_LONGEST} letters, too long for the name of a class",
            where=table.uri,
            fix="Name the column of classes in graph.label.",
        )
    amounts = _amounts_of([*counted])
    if config.classes != "distinct" and len(amounts) > _MOST_AMOUNTS:
        raise TableError(
            f"column {name!r} holds text, and {len(amounts):,} of its {len(counted):,} different labels are amounts "
            f"({min(amounts)!r})",
            where=table.uri,
            fix="Write numbers to predict as 1234.5 in every row, or leave the row null. Where labels are classes, set "
            "graph.classes: distinct.",
        )
    if config.num_classes is not None and len(counted) > config.num_classes:
        raise TableError(
            f"column {name!r} holds {len(counted)} different labels, and graph.num_classes is {config.num_classes}",
            where=table.uri,
            fix="Leave graph.num_classes out, or name what is no label in graph.unlabelled.",
        )
    unlabelled = sum(record.counts["unlabelled"] for record in records)
    return numbered(counted, column=name, unlabelled=unlabelled, is_text=is_text)


def _amounts_of(labels: Sequence[str]) -> list[str]:
    """Return the labels that are numbers with a fraction, a unit or signs between thousands; codes are digits alone."""
    are_words = words_of(pa.array(labels, pa.large_string()))
    amounts = [label for label, is_word in zip(labels, are_words, strict=True) if not is_word]
    fractions = filter(_FRACTION.fullmatch, labels)
    return [label for label in dict.fromkeys([*amounts, *fractions]) if not _DIGITS.fullmatch(label)]


def count_labels(index: int, inbox: Inbox, *, chunks: Sequence[Chunk], config: GraphConfig) -> TaskOutput:
    """Count the distinct labels of one chunk."""
    column = combine(read_chunk(chunks[index], [config.label_column]).column(0))
    found = pc.value_counts(label_text(given_labels(column, config)).drop_null())
    pairs = sorted((each["values"], each["counts"]) for each in found[: MOST_CLASSES + 1].to_pylist())
    kept = [[label[: _LONGEST + 1], count] for label, count in pairs]
    labelled = int(pc.sum(found.field("counts")).as_py() or 0)
    return TaskOutput(counts={"labels": kept, "unlabelled": len(column) - labelled})


def _are_whole(counted: Counter[str]) -> bool:
    return len(counted) <= _MOST_WHOLE and all(_INTEGER.fullmatch(label) for label in counted)


def numbered(counted: Counter[str], *, column: str, unlabelled: int, is_text: bool) -> FoundClasses:
    """Return labels by class number: sorted, as numbers where all are integers; of two the rarer one last."""
    are_integers = all(_INTEGER.fullmatch(label) for label in counted)
    labels = sorted(counted, key=int) if are_integers else sorted(counted)
    are_numbers = not is_text and labels == [str(number) for number in range(len(labels))]
    if len(labels) == _TWO and not are_numbers and counted[labels[0]] < counted[labels[1]]:
        labels = labels[::-1]
    return FoundClasses(column, tuple(labels), tuple(counted[label] for label in labels), unlabelled, are_numbers)


def _too_many(table: SourceTable, config: GraphConfig, counted: Counter[str]) -> TableError:
    shown = listed(sorted(label[:_LONGEST] for label in counted)[:_SHOWN])
    return TableError(
        f"column {config.label_column!r} holds more than {MOST_CLASSES:,} different labels ({shown} and others)",
        where=table.uri,
        fix="Name the column of classes in graph.label. Where they are classes, list all in graph.classes.",
    )
