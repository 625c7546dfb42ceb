"""GraphFlat: graph store and selected neighbours in, shards of k-hop neighbourhoods out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds
from gnnflow.neighbors.pairs import PoolPlan
from gnnflow.stages.base import Made
from gnnflow.stages.link_facts import find_link_facts
from gnnflow.stages.resolve import memory_of_worker

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.graph.facts import Layout
    from gnnflow.neighbors.selected import Neighbors
    from gnnflow.stages.base import StageRun


def work(run: StageRun) -> Made:
    """Cut the graph store into shards. Raises TrainingError if links have no other pairs to be told from."""
    config, neighbors, links = run.config, run.neighbors, find_link_facts(run)
    task, chosen = config.task, layout_of(config, neighbors)
    pairs = None if task.kind == "node" else PoolPlan.of(task, seed=config.seed)
    targets = "all" if config.flat.targets == "all" else None
    job = FlatJob(run.artifact, neighbors, config.num_hops, chosen.layout, targets, pairs)
    result = run_rounds(job, run.rounds, shard_size=config.flat.shard_size)
    for name, text in {"layout": chosen.text, "way": "" if chosen.layout == "store" else result.way.text}.items():
        if text:
            run.tell(text)
            run.rounds.remarks[name] = text
    nodes, facts = neighbors.store.facts.num_nodes, replace(result.facts, link_facts=links)
    return Made(result.files, rows_in=nodes, rows_out=facts.num_targets, facts=facts)


@dataclass(frozen=True)
class ChosenLayout:
    """The layout of the shards, and the sizes that decide it, or ""."""

    layout: Layout
    text: str = ""


def layout_of(config: Config, neighbors: Neighbors, *, times: int = 1) -> ChosenLayout:
    """Choose the layout of a run's shards. times: how many times as large the graph is meant to be."""
    if config.flat.layout != "auto":
        return ChosenLayout(config.flat.layout)
    if not _size_decides(config):
        return ChosenLayout("shared")
    from gnnflow.neighbors.whole import memory_needed

    needed, limit = times * memory_needed(neighbors), memory_of_worker(config)
    sizes = f"the graph takes about {needed / 2**20:,.0f} MiB, and a worker has {limit / 2**20:,.0f} MiB"
    if needed > limit:
        return ChosenLayout("shared", f"shards hold their neighbourhoods: {sizes}")
    return ChosenLayout("store", f"shards hold targets alone, and training cuts batches from the store: {sizes}")


def shards_text(config: Config) -> str:
    """Return what a run's shards hold, as far as the config tells."""
    whole = "targets and their neighbourhoods"
    if config.flat.layout != "auto" or not _size_decides(config):
        return whole
    least = f"{memory_of_worker(config) / 2**20:,.0f} MiB"
    return f"targets alone where the graph takes at most {least}, a worker's memory; else {whole}"


def _size_decides(config: Config) -> bool:
    return config.flat.targets == "labelled" and config.task.kind == "node"
