"""The finding of one check of an audit, as a run keeps it and its report shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "broken", "not checked"]
_NAME_WIDTH, _VERDICT_WIDTH = 20, 13


@dataclass(frozen=True)
class Finding:
    """The outcome of one check: what was looked at, with counts, and for other verdicts than `holds` why and a fix."""

    name: str
    verdict: Verdict
    looked: str
    why: str = ""
    fix: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of a table that a person reads."""
        texts = [self.looked, f"because {self.why}" if self.why else "", self.fix]
        lead = f"{self.name:<{_NAME_WIDTH}}{self.verdict:<{_VERDICT_WIDTH}}"
        for text in filter(None, texts):
            yield lead + text
            lead = " " * len(lead)
