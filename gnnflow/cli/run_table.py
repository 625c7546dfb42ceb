"""`gnnflow runs` as a table: the latest run last, and below a failed one its problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gnnflow.storage.run_folder import age_of_run

if TYPE_CHECKING:
    from gnnflow.api.results import Run
    from gnnflow.storage.attempts import Attempt

_HEAD = ("NAME", "AGE", "STATUS", "SCORE", "RUN")
_UNITS = (("day", 86_400), ("hour", 3_600), ("min", 60), ("s", 1))
_SHORT = ("min", "s")


def table_lines(runs: Sequence[Run], attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield the lines of a workspace's complete and other runs, by time."""
    aged = [(age_of_run(each.uri), "complete", each.score_text(), each.name, each.uri, "") for each in runs]
    aged += [(each.age, each.status, "", each.name, each.uri, each.problem) for each in attempts]
    aged.sort(key=lambda each: -each[0])
    rows = [(name, age_text(age), status, score, uri) for age, status, score, name, uri, _ in aged]
    widths = [max(len(row[place]) for row in (_HEAD, *rows)) for place in range(len(_HEAD) - 1)]
    for row, problem in zip((_HEAD, *rows), ("", *(each[-1] for each in aged)), strict=True):
        yield "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        yield from (f"  {line}" for line in problem.splitlines())


def age_text(seconds: float) -> str:
    """Return an age in its largest unit: `3 min`, `1 hour`, `2 days`."""
    unit, size = next(((unit, size) for unit, size in _UNITS if seconds >= size), _UNITS[-1])
    count = int(seconds // size)
    return f"{count} {unit}{'' if unit in _SHORT or count == 1 else 's'}"
