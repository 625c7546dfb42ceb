"""Select: graph store in, each node's neighbours out (NeighborSelection in FlexGraph, EuroSys 2021, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import DirectNeighbors
from gnnflow.graph.facts import SelectFacts
from gnnflow.neighbors import anchors, direct, metapaths, own, rings, walks
from gnnflow.neighbors.selection import Selection
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from collections.abc import Callable

    from gnnflow.neighbors.selection import SelectionResult
    from gnnflow.stages.base import StageRun

# The rounds of each kind whose relations replace the graph's; any other kind is a function of the user.
_ROUNDS: dict[str, Callable[..., SelectionResult]] = {
    "walks": walks.run_rounds,
    "metapaths": metapaths.run_rounds,
    "rings": rings.run_rounds,
    "anchors": anchors.run_rounds,
}


def work(run: StageRun) -> Made:
    """Select the neighbours that the config asks for."""
    section, store = run.config.neighbors, run.store
    if isinstance(section, DirectNeighbors):
        return _direct(run, section)
    job = Selection(run.artifact, store, (), run.config.seed)
    result = _ROUNDS.get(section.kind, own.run_rounds)(job, section, run.rounds)
    ratio = sum(entry.size for entry in result.files) / max(store.num_bytes, 1)
    facts = SelectFacts(section.kind, "none", None, result.num_edges, 0, 0, result.relations, ratio)
    return Made(result.files, rows_in=store.facts.num_edges, rows_out=result.num_edges, facts=facts)


def _direct(run: StageRun, section: DirectNeighbors) -> Made:
    """Keep the in-edges that sampling keeps. Without sampling nothing is copied, and later stages read the store."""
    config, store = run.config, run.store
    kept = config.sampling.most
    threshold, sampling = section.hub_threshold, section.sampling.kind
    if kept is None:
        facts = SelectFacts(section.kind, sampling, None, store.facts.num_edges, 0, threshold)
        return Made((), rows_in=store.facts.num_edges, rows_out=store.facts.num_edges, facts=facts)
    job = direct.SelectJob(run.artifact, store, sampling, kept, config.seed, threshold)
    result = direct.run_rounds(job, run.rounds)
    facts = SelectFacts(section.kind, sampling, kept, result.num_edges, result.num_hubs, threshold)
    return Made(result.files, rows_in=store.facts.num_edges, rows_out=result.num_edges, facts=facts)
