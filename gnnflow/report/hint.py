"""A piece of advice in a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Hint:
    """One piece of advice: what was seen and what to do about it."""

    kind: Literal["problem", "warning", "idea"]
    title: str
    text: str
