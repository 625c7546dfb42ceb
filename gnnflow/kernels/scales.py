"""Factors that belong to a node and not to an edge."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scales(NamedTuple):
    """What rows of sources [S], and sums of targets [T], are multiplied with; None for one. They have no gradient."""

    source: Tensor | None
    target: Tensor | None

    @property
    def are_one(self) -> bool:
        """Whether there are none."""
        return self.source is None and self.target is None

    @property
    def reversed(self) -> Scales:
        """Those of the reversed edges."""
        return Scales(self.target, self.source)


UNSCALED = Scales(None, None)
