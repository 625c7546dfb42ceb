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
    from collections.abc import Callable, Mapping

    from gnnflow.config import GraphConfig
    from gnnflow.graph.facts import RowCounts

_SHOWN = 10  # reasons listed per table
_STEPS = 1000  # precision of the share that the fix suggests


def tell_of_bad_rows(tables: Mapping[str, RowCounts], artifact: str, tell: Callable[[str], None]) -> None:
    """Report the number of rows set aside in each table, and the reasons. artifact: of ingest."""
    for name, rows in tables.items():
        if rows.rows_quarantined:
            tell(f"{name}: {_counts(rows)} were set aside, see {_folder(artifact)}")
            for each in rows.reasons[:_SHOWN]:
                lost = f"{each.rows:,} row{'s' * (each.rows != 1)} ({share_text(rows.share_of(each.rows))})"
                tell(f"{name}: {lost}: column {each.column!r}: {each.reason}")
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
        f"{_counts(rows)} were set aside, and graph.max_bad_rows allows {share_text(graph.max_bad_rows)}; "
        f"{most.rows:,} of them because of column {most.column!r}: {most.reason}{also}",
        where=tables_by_name(graph)[name],
        fix=f"Mend the rows listed in {_folder(artifact)}, or set graph.max_bad_rows: {least:g} to continue "
        "without them.",
    )


def _counts(rows: RowCounts) -> str:
    return f"{rows.rows_quarantined:,} of {rows.rows_in:,} rows ({share_text(rows.quarantined_share)})"


def _folder(artifact: str) -> str:
    return join(artifact, "quarantine")
