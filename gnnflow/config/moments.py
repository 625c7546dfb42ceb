"""Dates and times as people write them in configs and forms."""

from __future__ import annotations

from datetime import UTC, datetime

HOW = "Write it as 2026-01-31, or with a time as 2026-01-31T06:00."


def read_moment(text: str) -> datetime:
    """Return the time of an ISO date; without a zone it is UTC. Raises ValueError for any other text."""
    moment = datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
