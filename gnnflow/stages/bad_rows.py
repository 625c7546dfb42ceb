"""Quarantined rows of ingest: log messages, and the share of a table above which a run stops.

`graph.max_bad_rows` does not change what ingest writes, so it is in no fingerprint: after it was raised, ingest
resumes after its completed rounds, and an existing graph store is checked again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gnnflow.config.graph_section import tables_by_name
from gnnflow.graph.errors import GuardError, listed
from gnnflow.graph.facts import share_text
from gnnflow.storage.filesystem import join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import RowCounts

_SHOWN = 10  # reasons listed per table
_STEPS = 1000  # precision of the share that the fix suggests


def tell_of_bad_rows(tables: Mapping[str, RowCounts], artifact: str, tell: Callable[[str], None]) -> None:
    """Report the number of rows set aside in each table, and the reasons. artifact: of ingest."""
    for name, rows in tables.items():
        if rows.rows_quarantined:
            tell(f"{name}: {rows.text} were set aside, see {_folder(artifact)}")
            for line in _table_of(rows):
                tell(f"{name}: {line}")
            if len(rows.reasons) > _SHOWN:
                tell(f"{name}: and {len(rows.reasons) - _SHOWN:,} more reasons")


def check_bad_rows(
    tables: Mapping[str, RowCounts],
    graph: GraphConfig,
    artifact: str,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Raise GuardError if the share of rows set aside in a table exceeds `graph.max_bad_rows`, and report them all.

    artifact: of ingest.
    """
    over = {name: rows for name, rows in tables.items() if rows.quarantined_share > graph.max_bad_rows}
    if not over:
        return
    tell_of_bad_rows(tables, artifact, tell)
    name, rows = max(over.items(), key=lambda each: each[1].quarantined_share)
    most, others = rows.reasons[0], [other for other in over if other != name]
    also = f". The limit is also exceeded in {listed(others)}" if others else ""
    least = math.ceil(rows.quarantined_share * _STEPS) / _STEPS
    raise GuardError(
        f"{rows.text} were set aside, and graph.max_bad_rows allows {share_text(graph.max_bad_rows)}; "
        f"{most.rows:,} of them because of column {most.column!r}: {most.reason}{also}",
        where=tables_by_name(graph)[name],
        fix=f"Mend the rows listed in {_folder(artifact)}, or set graph.max_bad_rows: {least:g} to continue "
        "without them.",
    )


def _table_of(rows: RowCounts) -> Iterator[str]:
    """Yield the lines of a table of reasons: rows, their share, those with a label, the column and the reason."""
    cells = [("rows", "share", "with a label", "column", "reason")] + [
        (
            f"{each.rows:,}",
            share_text(rows.share_of(each.rows)),
            rows.labelled_text(each.labelled),
            each.column,
            each.reason,
        )
        for each in rows.reasons[:_SHOWN]
    ]
    chosen = [0, 1, 2, 3] if rows.labelled_in else [0, 1, 3]
    widths = {number: max(len(row[number]) for row in cells) for number in chosen}
    for row in cells:
        yield "  ".join([*(row[number].rjust(widths[number]) for number in chosen), row[-1]])


def _folder(artifact: str) -> str:
    return join(artifact, "quarantine")
