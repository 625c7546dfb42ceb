"""Rows of a table that ingest kept, and those that it set aside by reason."""

from __future__ import annotations

from dataclasses import dataclass


def share_text(share: float) -> str:
    """Return a share of rows as people read it: 0.0123 is 1.23 %."""
    return f"{100 * share:.3g} %"


@dataclass(frozen=True)
class BadRows:
    """How many rows of a table were quarantined for one reason. column: as the user's table calls it."""

    column: str
    reason: str
    rows: int


@dataclass(frozen=True)
class RowCounts:
    """Rows of one table: in = out + quarantined. reasons: those quarantined, each row once, the most frequent first."""

    rows_in: int
    rows_out: int
    rows_quarantined: int
    reasons: tuple[BadRows, ...] = ()

    @property
    def quarantined_share(self) -> float:
        """Quarantined rows as a share of all rows of the table."""
        return self.share_of(self.rows_quarantined)

    def share_of(self, rows: int) -> float:
        """Return so many rows as a share of all rows of the table."""
        return rows / max(self.rows_in, 1)
