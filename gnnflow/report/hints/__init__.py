"""What to look at next: advice that a figure of this run supports, and nothing else.

A rule is a function that returns its hint or None, in RULES of the module for what it is about. It speaks only when its
figure is there and over its limit, so a run with nothing to say gets an empty list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.report.hints import learning, running, tables
from gnnflow.report.hints.hint import Hint

if TYPE_CHECKING:
    from gnnflow.report.inputs import ReportInputs

__all__ = ["Hint", "find_hints"]

_GRAVEST_FIRST = ("problem", "warning", "idea")


def find_hints(inputs: ReportInputs) -> tuple[Hint, ...]:
    """Return the hints that are true of this run, the gravest first."""
    rules = (*learning.RULES, *tables.RULES, *running.RULES)
    found = [hint for rule in rules if (hint := rule(inputs)) is not None]
    return tuple(sorted(found, key=lambda hint: _GRAVEST_FIRST.index(hint.kind)))
