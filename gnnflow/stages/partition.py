"""Partition: graph store in, the same graph with other partitions out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import BalancedPartition
from gnnflow.graph.facts import GraphFacts
from gnnflow.partition.costs import CostModel
from gnnflow.partition.job import PartitionJob, run_rounds
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from gnnflow.graph.schema import GraphSchema
    from gnnflow.stages.base import StageRun

_OF_RELATION = (1.0, 0.0, 0.0)


def work(run: StageRun) -> Made:
    """Move nodes between partitions until these cost about the same, and write the store anew."""
    section, (written,) = run.config.partition, run.inputs.values()
    assert isinstance(section, BalancedPartition), "other kinds have no such stage"
    fanouts = run.config.relation_fanouts
    kept = None if fanouts is None else tuple(max(fanout) for fanout in fanouts)
    facts = written.facts(GraphFacts)
    job = PartitionJob(run.artifact, run.store, _costs(section, facts.schema), section.threshold, kept, run.config.seed)
    result = run_rounds(job, run.rounds, facts=facts)
    figures = result.figures
    run.context.progress.message(
        f"balance factor {figures['factor_before']:.2f}, now {figures['factor']:.2f}; {figures['moved']:,.0f} nodes "
        f"moved; edges between partitions {figures['cut_before']:,.0f}, now {figures['cut']:,.0f}"
    )
    return Made(result.files, rows_in=facts.num_nodes, rows_out=facts.num_nodes, facts=result.facts)


def _costs(section: BalancedPartition, schema: GraphSchema) -> CostModel:
    names = map(str, schema.relations)
    return CostModel(section.per_root, {name: section.relations.get(name, _OF_RELATION) for name in names})
