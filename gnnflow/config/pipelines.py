"""The training strategies, a row each: stages, source of training steps, and execution.

It imports nothing of the package, so that the config's sections can read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Pipeline:
    """One training strategy.

    stages: the stages that leave artifacts, in order, including those that only some configs need. source: the function
    that opens its training steps, as `module:function` (see `gnnflow.train.source`). execution: its row of
    `gnnflow.executions.table`. is_joint: ranks compute each step together and exchange rows, instead of computing
    separate shares.
    streamed: the function used instead of `source` where `train.memory` is set.
    """

    stages: tuple[str, ...]
    source: str
    execution: str
    is_joint: bool = False
    streamed: str = ""


PIPELINES: dict[str, Pipeline] = {
    "mini-batch": Pipeline(
        ("ingest", "partition", "select", "flat", "baselines", "train", "infer"),
        source="gnnflow.train.minibatch:open_task_source",
        execution="minibatch",
    ),
    "cluster-batch": Pipeline(
        ("ingest", "partition", "select", "baselines", "train", "infer"),
        source="gnnflow.train.clusterbatch:open_cluster_source",
        execution="clusterbatch",
    ),
    "global-batch": Pipeline(
        ("ingest", "partition", "select", "baselines", "train", "infer"),
        source="gnnflow.train.globalbatch:open_source",
        execution="globalbatch",
        is_joint=True,
        streamed="gnnflow.train.streamed:open_streamed",
    ),
}

HYBRID = Pipeline(
    ("ingest", "partition", "select", "baselines", "train", "infer"),
    source="gnnflow.train.hybrid:open_task_source",
    execution="globalbatch",
    is_joint=True,
)
"""The pipeline of every strategy with `train.parallel: hybrid`."""


def load_named(reference: str) -> Any:
    """Return the object that a row names as `module:name`, which is imported only now."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
