"""Partition: graph store in, the same graph with other partitions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import BalancedPartition
from gnnflow.config.neighbors_section import MetapathNeighbors, relation_of
from gnnflow.graph.facts import GraphFacts
from gnnflow.partition.costs import CostModel
from gnnflow.partition.instances import DirectInstances, PathInstances
from gnnflow.partition.job import PartitionJob, run_rounds
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.stages.base import StageRun

_OF_RELATION = (0.0, 1.0, 0.0)


def work(run: StageRun) -> Made:
    """Move nodes between partitions until these cost about the same, and write the store anew."""
    section, (written,) = run.config.partition, run.inputs.values()
    assert isinstance(section, BalancedPartition), "other kinds have no such stage"
    facts, instances = written.facts(GraphFacts), instances_of(run.config)
    known = [str(relation) for relation in run.config.aggregated_relations or ()]
    costs = CostModel(section.per_root, {name: section.relations.get(name, _OF_RELATION) for name in known})
    job = PartitionJob(run.artifact, run.store, costs, section.threshold, instances, run.config.seed)
    result = run_rounds(job, run.rounds, facts=facts)
    figures = result.figures
    run.context.progress.message(
        f"balance factor {figures['factor_before']:.2f}, now {figures['factor']:.2f}; {figures['moved']:,.0f} nodes "
        f"moved; edges between partitions {figures['cut_before']:,.0f}, now {figures['cut']:,.0f}"
    )
    return Made(result.files, rows_in=facts.num_nodes, rows_out=facts.num_nodes, facts=result.facts)


def instances_of(config: Config) -> DirectInstances | PathInstances:
    """Return what a node's instances are under a config whose partitions can be balanced."""
    if isinstance(config.neighbors, MetapathNeighbors):
        paths = {relation_of(path): path for path in config.neighbors.paths}
        # in the order of what costs are of
        ordered = tuple(paths[relation] for relation in config.aggregated_relations or ())
        return PathInstances(ordered, config.neighbors.max_instances)
    fanouts = config.relation_fanouts
    return DirectInstances(None if fanouts is None else tuple(max(fanout) for fanout in fanouts))
