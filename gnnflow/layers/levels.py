"""Levels of aggregation below the relation (FlexGraph, Wang et al., EuroSys 2021, section 3): leaf, instance, root.

An in-edge may come from several nodes, its leaves: an instance, such as one path along a metapath. Levels close from
the bottom up:

    leaf -> instance      what an instance's leaves give it, term by term
    instance -> root      the layer's ordinary aggregation, over instances where it has edges without leaves
    relation -> root      `across`, on typed graphs

A layer whose `aggregation` is no `Levels` takes the mean of an instance's leaves for the instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from gnnflow.layers.aggregation import Aggregation, Mean


@final
@dataclass(frozen=True)
class Levels:
    """How a layer aggregates: an instance's leaves, which have no coefficient, and a root's instances."""

    instance: Aggregation
    leaf: Aggregation = field(default_factory=Mean)
