"""A rehearsal: a run's stages on a small graph like its own, each with what it took.

Stages are run as they are, so a new stage, layer or strategy is rehearsed without a line here. Training is run twice,
over one epoch and over several: the difference is what an epoch takes, validation included, the rest what training
takes once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import psutil
import pyarrow as pa

from gnnflow.config import MiniBatchConfig
from gnnflow.graph.run_facts import TrainFacts
from gnnflow.native import malloc
from gnnflow.stages.base import StageContext
from gnnflow.stages.pipeline import run
from gnnflow.stages.running import make_artifact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from gnnflow.config import Config, GraphConfig
    from gnnflow.stages.base import ArtifactResult

RUN = "run"
"""What completes a run behind its stages: copies of the predictions, the report."""

_TRAINED_SECONDS = 1.0  # that epochs beyond the first should take: fewer are lost in what else training takes
_FEWEST_EPOCHS, _MOST_EPOCHS = 2, 50  # of these
_LOOK_SECONDS = 0.02
_LOOKS_AT_THE_SAME = 20


@dataclass(frozen=True)
class Cost:
    """What a stage took: seconds, the bytes of its artifact, those that this process grew by, and the largest worker's.

    epoch_seconds: of one epoch, where the stage trains; seconds are without epochs then. worker_memory: 0 without one.
    """

    seconds: float
    num_bytes: int
    memory: int
    worker_memory: int
    epoch_seconds: float = 0.0


@dataclass(frozen=True)
class Rehearsal:
    """What each stage took on one node in so many, in so many partitions, in order. seconds: of all of it."""

    one_in: int
    partitions: int
    costs: Mapping[str, Cost]
    seconds: float


@dataclass
class PeakMemory:
    """The most bytes that this process grew by within a `with` block, and that the largest that it started had.

    This process is looked at from where it stands: what it holds on to has nothing to do with the block.
    """

    own: int = 0
    worker: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Begin to look."""
        self._before = memory_here()
        self._looks = threading.Thread(target=self._look, daemon=True)
        self._looks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._ends.set()
        self._looks.join()

    def _look(self) -> None:
        process, workers, looks = psutil.Process(), [], 0
        while True:
            if looks % _LOOKS_AT_THE_SAME == 0:  # to find the children takes longer than to look at them
                workers = process.children(recursive=True)
            looks += 1
            self.own = max(self.own, process.memory_info().rss - self._before)
            self.worker = max(self.worker, *map(_resident, workers), 0)
            if self._ends.wait(_LOOK_SECONDS):
                return


def rehearsed(config: Config, graph: GraphConfig, *, one_in: int, workspace: str) -> Config:
    """Return a config as it is rehearsed on a graph of one node in so many, in a workspace of its own.

    It has nothing of other models, and nobody else hears of its curves. Bad rows of a subsample stop nothing: their
    share is not the table's. A shard has fewer targets, as the graph has, so that these share as many of their
    neighbours; but those of a batch, which is never of two shards.
    """
    train = config.train.model_copy(update={"epochs": 1, "start": None, "log": ()})
    graph = graph.model_copy(update={"scaled_as": None, "max_bad_rows": 1.0})
    batch = train.batch_size if isinstance(train, MiniBatchConfig) else 1
    size = min(config.flat.shard_size, max(config.flat.shard_size // one_in, batch))
    flat = config.flat.model_copy(update={"shard_size": size})
    return config.model_copy(update={"graph": graph, "train": train, "flat": flat, "workspace": workspace})


def rehearse(context: StageContext, *, one_in: int) -> Rehearsal:
    """Run the stages of a `rehearsed` config and return what each took.

    one_in: as a name of its graph. Raises a stage's GnnflowError.
    """
    begin = time.monotonic()
    costs = {}
    for stage in context.run.stages:
        with PeakMemory() as peak:
            made = make_artifact(context, stage)
        costs[stage] = Cost(made.seconds, made.manifest.num_bytes, peak.own, peak.worker)
        if stage == "train":
            costs[stage] = _with_epochs(costs[stage], made, context)
    completed = time.monotonic()
    with PeakMemory() as peak:
        run(context)
    end = time.monotonic()
    costs[RUN] = Cost(end - completed, 0, peak.own, peak.worker)
    return Rehearsal(one_in, context.run.partitions, costs, end - begin)


def _with_epochs(cost: Cost, made: ArtifactResult, context: StageContext) -> Cost:
    """Return what a training of one epoch took, divided into what it takes once and per epoch; train for longer."""
    first = made.facts(TrainFacts).history[0]["seconds"]
    more = min(max(_FEWEST_EPOCHS, round(_TRAINED_SECONDS / max(first, 1e-9))), _MOST_EPOCHS)
    train = context.config.train.model_copy(update={"epochs": 1 + more})
    config = context.config.model_copy(update={"train": train})
    longer = make_artifact(StageContext.of(config, context.scheduler, context.progress), "train")
    epochs = len(longer.facts(TrainFacts).history) - 1  # it may have ended early
    epoch_seconds = max(0.0, longer.seconds - made.seconds) / max(epochs, 1)
    return replace(cost, seconds=max(0.0, made.seconds - epoch_seconds), epoch_seconds=epoch_seconds)


def memory_here() -> int:
    """Return the bytes of memory of this process, once what it does not use is given back."""
    pa.default_memory_pool().release_unused()
    malloc.trim()
    return _resident(psutil.Process())


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
