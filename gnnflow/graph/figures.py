"""Metrics as the command line and messages write them."""

from __future__ import annotations

_SMALL, _LARGE, _HUGE = 0.01, 1e3, 1e9


def metric_text(value: float) -> str:
    """Write a metric with four digits behind the point; with four in all where an error is in a unit far from that."""
    size = abs(value)
    if size == 0 or _SMALL <= size < _LARGE:
        return f"{value:.4f}"
    return f"{value:,.1f}" if _LARGE <= size < _HUGE else f"{value:.4g}"
