"""A layer whose computing takes its time without a processor, and says when that was."""

from __future__ import annotations

import time

from torch import nn

from gnnflow.layers import Layer, Mean, Terms

SECONDS_PER_NUMBER = 2.4e-6
TIMES: list[tuple[float, float]] = []
"""When `transform` computed: from and until, as `time.monotonic` counts."""


class Timed(Layer):
    """A map of the mean of the neighbours' rows, whose terms take SECONDS_PER_NUMBER each."""

    aggregation = Mean()

    def __init__(self, in_width, out_width):
        super().__init__(in_width, out_width)
        self.out = nn.Linear(in_width, out_width)

    def transform(self, h, node):
        """Wait, and return the rows as they are."""
        if len(h):
            begin = time.monotonic()
            time.sleep(h.numel() * SECONDS_PER_NUMBER)
            TIMES.append((begin, time.monotonic()))
        return Terms({"value": h[:, None]}, {})

    def coefficient(self, source, target, edge):
        """Return None: all alike."""

    def update(self, own, aggregated):
        """Return the mapped means."""
        return self.out(aggregated[:, 0])
