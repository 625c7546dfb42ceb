"""Whether training keeps `train.memory` on a graph of which a rehearsal has a subsample, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.train_section import GlobalBatchConfig, is_streamed
from gnnflow.graph.errors import TrainingError
from gnnflow.graph.splits import SPLITS
from gnnflow.report.formats import bytes_text
from gnnflow.stages.base import neighbors_of
from gnnflow.stages.train import model_inputs

if TYPE_CHECKING:
    from gnnflow.config import Config
    from gnnflow.stages.base import StageContext


def is_planned(config: Config) -> bool:
    """Return whether a run has a budget that is planned for here: of one process, on the CPU."""
    if not is_streamed(config.train) or config.train.workers > 1:
        return False
    from gnnflow.kernels.device import find_device

    return find_device(config.train.device, where="train.device").type == "cpu"


def budget_kept(rehearsed: StageContext, *, times: int, partitions: int) -> str:
    """Return how training would cut a graph of so many times the nodes, or why it cannot, as a sentence.

    rehearsed: a run that has its graph store and its neighbours. partitions: of the larger graph.
    """
    from gnnflow.layers.model import build_model
    from gnnflow.train.streamed.plan import plan
    from gnnflow.train.streamed.size import graph_size, times_as_large

    config, neighbors = rehearsed.config, neighbors_of(rehearsed)
    train, facts = config.train, neighbors.store.facts
    assert isinstance(train, GlobalBatchConfig)
    assert train.memory is not None
    own = facts.book.num_partitions
    targets = max(facts.splits.get(split, 0) for split in SPLITS)
    size = times_as_large(graph_size(neighbors, targets, range(own)), times, partitions=partitions / own)
    model = build_model(config.model, model_inputs(facts, config.task))
    try:
        made = plan(model, size, budget=int(train.memory))
    except TrainingError as error:
        return f"train would be refused: {error}"
    files = bytes_text(made.disk_bytes)
    return f"train keeps train.memory with {made.intervals} intervals of nodes and {files} of files on a local disk"
