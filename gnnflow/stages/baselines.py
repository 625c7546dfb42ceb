"""Baselines: a graph store in, scores of simple predictions out; a separate stage, so that all models share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config import LinkTask
from gnnflow.config.stage_keys import baselines_of
from gnnflow.stages.base import Made

if TYPE_CHECKING:
    from gnnflow.stages.base import StageRun


def work(run: StageRun) -> Made:
    """Score the baselines that the config asks for, on valid and test."""
    from gnnflow.train.baselines import link_baselines, node_baselines

    config, store, kinds = run.config, run.store, baselines_of(run.config)
    if isinstance(config.task, LinkTask):
        found = link_baselines(store, config.task, kinds, seed=config.seed, tell=run.tell)
    else:
        found = node_baselines(store, kinds, seed=config.seed, threads=config.train.threads, tell=run.tell)
    for kind, why in found.left_out.items():
        run.tell(f"baselines: {kind} is left out: {why}")
    scored = sum(found.scored.values())
    return Made((), rows_in=found.train_rows + scored, rows_out=scored, facts=found)
