"""Guards: stop a scheduled run before it trains on tables that are not what they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gnnflow.stages.base import StageContext
    from gnnflow.storage.manifest import Manifest


@dataclass(frozen=True)
class GuardReport:
    """What was compared. previous is the run compared with, "" where there is none; figures by flat name."""

    previous: str
    figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def check(context: StageContext, previous: Manifest | None = None) -> GuardReport:
    """Compare the config's ingested tables with those of the last completed run of its name.

    Run it after ingest and before train. previous replaces the last run's ingest manifest. Without an earlier run
    everything passes. Raises GuardError naming the column, the figure, the limit and what to do, StorageError where
    ingest has not run.
    """
    raise NotImplementedError
