"""Compares the counted columns of two graphs, whose encoded columns may be of other values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gnnflow.graph.encodings import TextState
from gnnflow.graph.facts import ColumnCounts
from gnnflow.ingest.statistics import ZERO_CODE, drift_of, marked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    from gnnflow.graph.facts import GraphFacts
    from gnnflow.ingest.statistics import Drift

EDGE = "edge"
"""Stands before the names of edges' columns, where a graph has no relations."""


@dataclass(frozen=True)
class CountedColumns:
    """The columns of a graph's nodes or edges by name. sources: the column that each encoded one was made from."""

    columns: Mapping[str, ColumnCounts]
    sources: Mapping[str, str]

    @staticmethod
    def of(facts: GraphFacts, columns: Iterable[ColumnCounts], side: Literal["nodes", "edges"]) -> CountedColumns:
        """Return counted columns of a graph's nodes or edges."""
        lead = EDGE if side == "edges" else ""
        sources = {
            marked(table.partition("/")[2] or lead, output): marked(table.partition("/")[2] or lead, each.name)
            for table, states in facts.states.items()
            if table.partition("/")[0] == side
            for each in states
            if not isinstance(each, TextState)
            for output in each.outputs
        }
        return CountedColumns({each.name: each for each in columns}, sources)


def compare_columns(new: CountedColumns, old: CountedColumns) -> tuple[dict[str, Drift], list[str]]:
    """Return the drift of each column that both graphs have, and the names of the other columns.

    A value of an encoded column that only one graph has is no row's in the other.
    """
    after, before, sources = dict(new.columns), dict(old.columns), {**old.sources, **new.sources}
    both = {*new.sources.values()} & {*old.sources.values()}
    for name, source in sources.items():
        if source in both and (name in after) != (name in before):
            have, lack = (after, before) if name in after else (before, after)
            rows = next((column.rows for column in lack.values()), have[name].rows)
            lack[name] = ColumnCounts(name, (ZERO_CODE,), (rows,), exact=True)
    shared = [name for name in after if name in before]
    only_one = [name for name in (*before, *after) if name not in before or name not in after]
    return {name: drift_of(before[name], after[name]) for name in shared}, only_one


def column_drifts(new: GraphFacts, old: GraphFacts) -> tuple[dict[str, Drift], list[str]]:
    """Compare the columns of nodes, which ingest counted."""
    return compare_columns(*(CountedColumns.of(each, each.columns, "nodes") for each in (new, old)))
