"""The explanation of a node's score: its tables, and what a person reads of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.labels import metric_text

_MOST_COLUMNS = 15
_MOST_ROWS = 5


@dataclass(frozen=True)
class Explanation:
    """The explanation of a node's score.

    explained: the class whose log-odds are explained, by its name or number; None for a regression. value: these
    log-odds, or the number. without_columns: the same with all columns at 0. edges and columns: with a contribution in
    each row, the largest first. Edges beyond the first 500, nearest hops first, have a null. sums: the contributions
    of each column of a table, of the node itself (`own`), of its neighbours, and their `sum`; numbers of a long list
    are one column.
    """

    id: Any
    explained: str | int | None
    value: float
    without_columns: float
    edges: pa.Table
    columns: pa.Table
    sums: pa.Table

    @cached_property
    def nodes(self) -> pa.Table:
        """The contributions of all columns of a node and hop together, the largest first."""
        keys = [name for name in ("id", "type", "hop") if name in self.columns.column_names]
        return summed(self.columns, keys)

    @property
    def error(self) -> float:
        """The difference less the contributions of columns, which come from a sum in place of the integral."""
        return self.value - self.without_columns - (pc.sum(self.sums["sum"]).as_py() or 0.0)

    def lines(self) -> Iterator[str]:
        """Yield the lines that a person reads."""
        value, empty = metric_text(self.value), metric_text(self.without_columns)
        if self.explained is None:
            unit = "units of the label"
            yield f"{self.id}: value {value}; with all columns at 0 it is {empty}"
        else:
            unit = "log-odds"
            share = metric_text((1 + math.tanh(self.value / 2)) / 2)
            yield f"{self.id}: probability {share} of class {self.explained}"
            yield f"log-odds {value}; with all columns at 0 they are {empty}"
        yield ""
        yield f"columns: integrated gradients in {unit}, summed over the node (own) and the neighbours that it reads"
        yield from _aligned(["column", "own", "neighbours", "sum"], self._sum_rows())
        nodes, edges = self.nodes.slice(0, _MOST_ROWS), self.edges.slice(0, _MOST_ROWS)
        for title, shown, every in (
            (f"nodes: the sum over a node's columns, in {unit}; hop 0 is the node itself", nodes, self.nodes),
            (f"edges: the score less the score without this edge, in {unit}", edges, self.edges),
        ):
            yield ""
            yield f"{title} (the largest {shown.num_rows} of {every.num_rows:,})"
            yield from _aligned(shown.column_names, [[*row.values()] for row in shown.to_pylist()])
        yield ""
        yield f"each column of each node ({self.columns.num_rows:,} rows): --json, or `columns` in Python"

    def _sum_rows(self) -> list[list[Any]]:
        """Return the rows of the sums of columns, whose last one is the difference that the method promises."""
        rows = self.sums.to_pylist()
        many = any(row.get("type") != rows[0].get("type") for row in rows)
        names = [f"{row['type']}: {row['column']}" if many else row["column"] for row in rows]
        found = [[name, row["own"], row["neighbours"], row["sum"]] for name, row in zip(names, rows, strict=True)]
        if len(found) > _MOST_COLUMNS:
            rest = found[_MOST_COLUMNS - 1 :]
            others = [sum(row[place] for row in rest) for place in (1, 2, 3)]
            found = [*found[: _MOST_COLUMNS - 1], [f"{len(rest):,} other columns", *others]]
        total = self.value - self.without_columns
        return [*found, ["error of the integral", "", "", self.error], ["score less score at 0", "", "", total]]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = {"id": self.id, "explained": self.explained, "value": self.value}
        names = ("sums", "nodes", "edges", "columns")
        tables = {name: getattr(self, name).to_pylist() for name in names}
        return {**plain, "without_columns": self.without_columns, **tables}


def summed(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the sums of contributions by some columns, the largest first."""
    found = table.group_by([*keys], use_threads=False).aggregate([("contribution", "sum")])
    return by_size(found.rename_columns({"contribution_sum": "contribution"}).select([*keys, "contribution"]))


def by_size(table: pa.Table, column: str = "contribution") -> pa.Table:
    """Return the rows in the order of a column's size, the largest first."""
    return table.take(pc.sort_indices(pc.abs(table[column]), sort_keys=[("", "descending")]))


def _aligned(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a table: numbers to the right, and all else to the left."""
    is_number = [any(isinstance(row[place], float) for row in rows) for place in range(len(head))]
    cells = [
        list(head),
        *([metric_text(each) if isinstance(each, float) else str(each) for each in row] for row in rows),
    ]
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        placed = zip(row, widths, is_number, strict=True)
        yield "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in placed).rstrip()
