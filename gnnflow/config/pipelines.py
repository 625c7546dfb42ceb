"""The training strategies: which stages each has, where its training steps come from, and what it trains on.

A new strategy is one row. It depends on nothing, so that the config's sections can read which strategies there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Pipeline:
    """One training strategy.

    stages: those that leave artifacts, in order, with those that not every config asks for. source: where its training
    steps come from, as `module:function` (see `gnnflow.train.source`). execution: the row of
    `gnnflow.executions.table` that it trains on. is_joint: ranks compute one step together, with rows going between
    them, and not each its own share of it.
    """

    stages: tuple[str, ...]
    source: str
    execution: str
    is_joint: bool = False


PIPELINES: dict[str, Pipeline] = {
    "mini-batch": Pipeline(
        ("ingest", "partition", "select", "flat", "train", "infer"),
        source="gnnflow.train.minibatch:open_task_source",
        execution="minibatch",
    ),
    "cluster-batch": Pipeline(
        ("ingest", "partition", "select", "train", "infer"),
        source="gnnflow.train.clusterbatch:open_cluster_source",
        execution="clusterbatch",
    ),
    "global-batch": Pipeline(
        ("ingest", "partition", "select", "train", "infer"),
        source="gnnflow.train.globalbatch:open_task_source",
        execution="globalbatch",
        is_joint=True,
    ),
}

HYBRID = Pipeline(
    ("ingest", "partition", "select", "train", "infer"),
    source="gnnflow.train.hybrid:open_task_source",
    execution="globalbatch",
    is_joint=True,
)
"""What `train.parallel: hybrid` makes of the strategies that train on batches."""


def load_named(reference: str) -> Any:
    """Return what a row names as `module:name`. Only now is anything imported that it needs."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
