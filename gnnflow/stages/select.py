"""Select: graph store in, each node's neighbours out (NeighborSelection in FlexGraph, EuroSys 2021, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import DirectNeighbors
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.facts import SelectFacts
from gnnflow.neighbors.direct import SelectJob, run_rounds
from gnnflow.neighbors.selected import most_kept
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun


def work(run: StageRun) -> Made:
    """Keep the in-edges that the config's sampling keeps. Without sampling nothing is copied: the store is read."""
    config, store = run.config, run.store
    if not isinstance(config.neighbors, DirectNeighbors):
        raise ConfigError(
            f"{config.neighbors.kind} has no rounds", where="neighbors.kind", fix=f"Set it to {DirectNeighbors().kind}."
        )
    kept = None if config.fanouts is None else most_kept(config.fanouts)
    threshold, sampling = config.neighbors.hub_threshold, config.neighbors.sampling.kind
    if kept is None:
        facts = SelectFacts(config.neighbors.kind, sampling, None, store.facts.num_edges, 0, threshold)
        return Made((), rows_in=store.facts.num_edges, rows_out=store.facts.num_edges, facts=facts)
    result = run_rounds(SelectJob(run.artifact, store, sampling, kept, config.seed, threshold), run.rounds)
    facts = SelectFacts(config.neighbors.kind, sampling, kept, result.num_edges, result.num_hubs, threshold)
    return Made(result.files, rows_in=store.facts.num_edges, rows_out=result.num_edges, facts=facts)
