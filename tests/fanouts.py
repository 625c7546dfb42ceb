"""Samplings of in-edges, as tests write them."""

from __future__ import annotations

from collections.abc import Sequence

from gnnflow.graph.sampling import EVERY_EDGE, Fanout, Sampling, SamplingKind


def sampling_of(fanouts: Sequence[Fanout] | None, kind: SamplingKind = "uniform") -> Sampling:
    """Return the sampling of some fan-outs, or of every edge where they are None."""
    return EVERY_EDGE if fanouts is None else Sampling(kind, tuple(fanouts))
