"""Partition: graph store in, the same graph with other partitions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.neighbors_section import MetapathNeighbors, relation_of
from gnnflow.config.partition_section import PARTITIONERS
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import GraphFacts
from gnnflow.mapreduce.way import machine_memory
from gnnflow.partition.balance import EvenCosts
from gnnflow.partition.costs import CostModel, DirectInstances, PathInstances
from gnnflow.partition.ldg import Ldg
from gnnflow.partition.louvain import Louvain
from gnnflow.partition.metis import Metis
from gnnflow.partition.planning import LOADS, KeptOwners, PartitionJob
from gnnflow.partition.ranges import Ranges
from gnnflow.partition.run import run_rounds
from gnnflow.report.formats import bytes_text
from gnnflow.stages.base import Made
from gnnflow.stages.resolve import memory_limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gnnflow.config import BalancedPartition, Config, LdgPartition, LouvainPartition, MetisPartition
    from gnnflow.partition.planning import Planner
    from gnnflow.stages.base import StageRun

_OF_RELATION = (0.0, 1.0, 0.0)
_EDGE_BYTES, _NODE_BYTES = 64, 24
"""Of a graph that one process cuts, at least: the ends of an edge while pairs are sorted, the loads of a node."""


def work(run: StageRun) -> Made:
    """Write the store again with the partitions that the config asks for."""
    (written,) = run.inputs.values()
    facts = written.facts(GraphFacts)
    refuse_large_graph(run.config, num_nodes=facts.num_nodes, num_edges=facts.num_edges)
    planner = planner_of(run.config, partitions=facts.book.num_partitions)
    job = PartitionJob(run.artifact, run.store, planner, run.config.seed, run.config.partition.placement)
    result = run_rounds(job, run.rounds, facts=facts)
    run.tell(text_of(result.figures))
    return Made(result.files, rows_in=facts.num_nodes, rows_out=facts.num_nodes, facts=result.facts)


def refuse_large_graph(config: Config, *, num_nodes: int, num_edges: int) -> None:
    """Raise ConfigError where one process cuts a graph whose edges its memory does not hold.

    Nothing is known of the memory of a cluster elsewhere.
    """
    kind, limit = config.partition.kind, memory_limit(config)
    if kind not in (*PARTITIONERS, "balanced") or config.cluster.is_elsewhere:
        return
    memory, needed = limit or machine_memory(), num_edges * _EDGE_BYTES + num_nodes * _NODE_BYTES
    if needed > memory:
        more = f", or raise cluster.memory_limit above {bytes_text(needed)}" if limit else ""
        raise ConfigError(
            f"{kind} holds the whole graph in one process: {num_edges:,} edges take {bytes_text(needed)} at least, and "
            f"it has {bytes_text(memory)}",
            where="partition.kind",
            fix=f"Set it to ldg, which holds no more edges than one partition has{more}.",
        )


def planner_of(config: Config, *, partitions: int) -> Planner:
    """Return the planner of a config whose store has this number of partitions."""
    return _PLANNERS[config.partition.kind](config.partition, config, partitions)


def _even_costs(section: BalancedPartition, config: Config, _: int) -> Planner:
    known = [str(relation) for relation in config.aggregated_relations or ()]
    costs = CostModel(section.per_root, {name: section.relations.get(name, _OF_RELATION) for name in known})
    return EvenCosts(costs, section.threshold, instances_of(config))


def _ldg(section: LdgPartition, *_: Any) -> Planner:
    return Ldg(section.imbalance, section.passes, tuple(LOADS.index(name) for name in section.even))


def _louvain(section: LouvainPartition, _: Config, partitions: int) -> Planner:
    return Louvain(section.clusters_per_partition(partitions), section.imbalance, section.resolution)


def _metis(section: MetisPartition, _: Config, partitions: int) -> Planner:
    return Metis(section.clusters_per_partition(partitions), section.imbalance)


# The planner of each kind, from its section, the config and the number of partitions. Ingest itself partitions by hash.
_PLANNERS: dict[str, Callable[[Any, Config, int], Planner]] = {
    "balanced": _even_costs,
    "range": lambda *_: Ranges(),
    "ldg": _ldg,
    "louvain": _louvain,
    "metis": _metis,
    "edge_1d": lambda *_: KeptOwners(),
    "vertex_cut": lambda *_: KeptOwners(),
}


def text_of(figures: dict[str, Any]) -> str:
    """Return one line that compares the new partitions with the previous ones."""
    before = figures["before"]
    parts = [
        f"edges between partitions {before['edge_cut']:.1%}, now {figures['edge_cut']:.1%}",
        f"replication {before['replication']:.2f}, now {figures['replication']:.2f}",
        "largest over mean " + ", ".join(f"{name} {figures[f'balance_{name}']:.2f}" for name in LOADS),
        f"{figures['moved']:,.0f} nodes moved",
    ]
    if "factor" in figures:
        parts.insert(0, f"balance factor {figures['factor_before']:.2f}, now {figures['factor']:.2f}")
    return "; ".join(parts)


def instances_of(config: Config) -> DirectInstances | PathInstances:
    """Return the instances of nodes, whose costs a balanced partition evens out."""
    if isinstance(config.neighbors, MetapathNeighbors):
        paths = {relation_of(path): path for path in config.neighbors.paths}
        # in the order of the relations that have costs
        ordered = tuple(paths[relation] for relation in config.aggregated_relations or ())
        return PathInstances(ordered, config.neighbors.max_instances)
    fanouts = config.relation_fanouts
    return DirectInstances(None if fanouts is None else tuple(max(fanout) for fanout in fanouts))
