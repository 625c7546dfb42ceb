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
    from gnnflow.stages.base import StageContext


_NOT_PLANNED = (
    "train.memory is planned for one process on the CPU alone: of several ranks, and on a card, training says whether "
    "it can be kept before it writes the graph"
)


def about_budget(rehearsed: StageContext, *, times: int, partitions: int) -> str:
    """Return what is known of a run's budget on a graph of so many times the nodes, as a sentence; empty without one.

    rehearsed: a run that has its graph store and its neighbours. partitions: of the larger graph.
    """
    train = rehearsed.config.train
    if not is_streamed(train):
        return ""
    if train.workers > 1 or train.device != "cpu":
        return _NOT_PLANNED
    return _kept(rehearsed, times=times, partitions=partitions)


def _kept(rehearsed: StageContext, *, times: int, partitions: int) -> str:
    """Return how training would cut the larger graph, or why it cannot."""
    from gnnflow.layers.model import build_model
    from gnnflow.train.streamed.plan import plan
    from gnnflow.train.streamed.size import graph_size, times_as_large

    config, neighbors = rehearsed.config, neighbors_of(rehearsed)
    train, facts = config.train, neighbors.store.facts
    assert isinstance(train, GlobalBatchConfig)
    assert train.memory is not None
    own = facts.book.num_partitions
    targets = [facts.splits.get(split, 0) for split in SPLITS]
    size = times_as_large(graph_size(neighbors, targets, range(own)), times, partitions=partitions / own)
    model = build_model(config.model, model_inputs(facts, config.task))
    try:
        made = plan(model, size, budget=int(train.memory))
    except TrainingError as error:
        return f"train would be refused: {error}"
    files = bytes_text(made.disk_bytes)
    intervals = "1 interval" if made.intervals == 1 else f"{made.intervals} intervals"
    return f"train keeps train.memory with {intervals} of nodes and {files} of files on a local disk"
