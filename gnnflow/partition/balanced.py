"""Partitions of even cost: the present ones, from which nodes move (`balance.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.partition.balance import InducedGraph, balance, balance_factor
from gnnflow.partition.planning import Plan, present_owner, read_ends, read_keys

if TYPE_CHECKING:
    from gnnflow.partition.costs import CostModel
    from gnnflow.partition.instances import DirectInstances, PathInstances
    from gnnflow.storage.graph_store import GraphStore


@dataclass(frozen=True)
class EvenCosts:
    """costs: of the relations that instances are counted in."""

    costs: CostModel
    threshold: float
    instances: DirectInstances | PathInstances
    clusters: int = 0

    def plan(self, store: GraphStore, *, seed: int) -> Plan:
        """Return who owns each node once costs are even."""
        parts, num_nodes = store.num_partitions, store.facts.num_nodes
        ends = read_ends(store)
        cost = self.costs.seconds(*self.instances.counts(ends, schema=store.schema, num_nodes=num_nodes))
        dst, src = (np.concatenate(each) for each in zip(*ends, strict=True))
        graph = InducedGraph.of(dst, src, num_nodes=num_nodes)
        owner, keys = present_owner(store), read_keys(store)
        found = balance(graph, cost, owner, num_partitions=parts, keys=keys, threshold=self.threshold, seed=seed)
        figures = {
            "factor_before": balance_factor(cost, owner, num_partitions=parts),
            "factor": balance_factor(cost, found.owner, num_partitions=parts),
            "cut_before": graph.cut(owner),
            "cut": graph.cut(found.owner),
            "moves": len(found.moves),
        }
        return Plan(
            found.owner, figures=figures, settings={"threshold": self.threshold, "costs": self.costs.as_document()}
        )
