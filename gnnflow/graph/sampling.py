"""The choice of in-edges: which kind of sample, and how many edges of each node in each hop.

One value says both, from the config to blocks, ranks, files and rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SamplingKind = Literal["none", "uniform", "weighted", "top_k"]
Fanout = int | tuple[int, ...]
"""The number of in-edges that one hop takes of a node: one number for every relation, or one for each."""


@dataclass(frozen=True)
class Sampling:
    """The in-edges that are taken of each node.

    kind: how the order of a node's in-edges was drawn. fanouts: one per hop, targets first; None takes every edge, and
    0 none.
    """

    kind: SamplingKind = "none"
    fanouts: tuple[Fanout, ...] | None = None

    @staticmethod
    def no_edges(num_hops: int) -> Sampling:
        """Take no edge. Nothing is scaled then, since nothing was left out of a sample."""
        return Sampling("none", (0,) * num_hops)

    @property
    def takes_every(self) -> bool:
        """True if every in-edge is taken."""
        return self.fanouts is None

    @property
    def has_edges(self) -> bool:
        """False for a graph without its edges, which has no neighbours and degrees of zero."""
        return self.fanouts is None or any(self.fanouts)

    @property
    def most(self) -> Fanout | None:
        """The largest fan-out of any hop, or of each relation where fan-outs have a number for each."""
        if self.fanouts is None:
            return None
        by_relation = [fanout for fanout in self.fanouts if isinstance(fanout, tuple)]
        if by_relation:
            return tuple(map(max, zip(*by_relation, strict=True)))
        return max(fanout for fanout in self.fanouts if isinstance(fanout, int))

    def of_hops(self, num_hops: int) -> tuple[Fanout | None, ...]:
        """Return the fan-outs of the first hops, targets first; None takes every edge."""
        found = (None,) * num_hops if self.fanouts is None else self.fanouts[:num_hops]
        assert len(found) == num_hops, "one fan-out per hop"
        return found

    def of_hop(self, hop: int) -> Fanout | None:
        """Return the fan-out of hop `hop`, counted from 1 at the targets."""
        return self.of_hops(hop)[-1]


EVERY_EDGE = Sampling()
