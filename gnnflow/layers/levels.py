"""Levels of aggregation below the relation (FlexGraph, Wang et al., EuroSys 2021, section 3): leaf, instance, root.

An in-edge may come from several nodes, its leaves: an instance, such as one path along a metapath. Levels close from
the bottom up:

    leaf -> instance      an aggregation of an instance's leaves, term by term
    instance -> root      the layer's usual aggregation, over instances in place of edges
    relation -> root      `across`, on typed graphs

A layer whose `aggregation` is not a `Levels` uses the mean of an instance's leaves as its row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from gnnflow.layers.aggregation import Aggregation, Mean


@final
@dataclass(frozen=True)
class Levels:
    """The aggregations of a layer: of an instance's leaves, which have no coefficient, and of a root's instances."""

    instance: Aggregation
    leaf: Aggregation = field(default_factory=Mean)
