"""A rehearsal: a run's stages on a subsample of its graph, with the cost of each.

The stages themselves run, so that new stages, layers and strategies need nothing here. Training runs twice, over one
epoch and over several: the difference is the cost of an epoch, validation included; the rest is paid once.
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
from gnnflow.neighbors.whole import peak_of_reading
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.flat import layout_of
from gnnflow.stages.pipeline import run
from gnnflow.stages.running import make_artifact

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from gnnflow.config import Config, GraphConfig
    from gnnflow.graph.facts import Layout
    from gnnflow.stages.base import ArtifactResult

RUN = "run"
"""The step that completes a run after its stages: copies of the predictions, the report."""

_TRAINED_SECONDS = 1.0  # for the epochs after the first: a shorter time is lost in the rest of training
_FEWEST_EPOCHS, _MOST_EPOCHS = 2, 50  # after the first
_LOOK_SECONDS = 0.02
_LOOKS_AT_THE_SAME = 20


@dataclass(frozen=True)
class Cost:
    """The cost of a stage: seconds, bytes of its artifact, growth of this process, and bytes of the largest worker.

    epoch_seconds: of one epoch, if the stage trains; seconds then exclude epochs. worker_memory: 0 without workers.
    exchanged: bytes that tasks sent each other. disk: the most bytes of its files at the end of a round, 0
    without rounds. rows: of its artifact.
    """

    seconds: float
    num_bytes: int
    memory: int
    worker_memory: int
    epoch_seconds: float = 0.0
    exchanged: int = 0
    disk: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Rehearsal:
    """The costs of the stages, in order, on a subsample of one node in `one_in`.

    seconds: of the stages. again: of them for the second training. layout: of the shards of the whole graph; None
    without GraphFlat. graph_bytes: of the whole graph in memory, about; 0 where training does not hold it.
    """

    one_in: int
    partitions: int
    costs: Mapping[str, Cost]
    seconds: float
    again: float = 0.0
    layout: Layout | None = None
    graph_bytes: int = 0


@dataclass
class PeakMemory:
    """The largest growth of this process within a `with` block, and the largest size of a child process, in bytes.

    Growth counts from the size at the start of the block.
    """

    own: int = 0
    worker: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        """Start the thread that samples sizes."""
        self._before = memory_here()
        self._looks = threading.Thread(target=self._look, daemon=True)
        self._looks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread."""
        self._ends.set()
        self._looks.join()

    def _look(self) -> None:
        process, workers, looks = psutil.Process(), [], 0
        while True:
            if looks % _LOOKS_AT_THE_SAME == 0:  # finding the children takes longer than sampling them
                workers = process.children(recursive=True)
            looks += 1
            self.own = max(self.own, process.memory_info().rss - self._before)
            self.worker = max(self.worker, *map(_resident, workers), 0)
            if self._ends.wait(_LOOK_SECONDS):
                return


def rehearsal_config(config: Config, graph: GraphConfig, *, one_in: int, workspace: str) -> Config:
    """Return the config of a rehearsal on one node in `one_in`, in a separate workspace.

    It starts from no model and logs no curves. Bad rows never stop it: their share differs from the table's. Shards
    have fewer targets, like the graph, so that their targets share as many neighbours, but never fewer than a batch.
    """
    train = config.train.model_copy(update={"epochs": 1, "start": None, "log": ()})
    graph = graph.model_copy(update={"scaled_as": None, "max_bad_rows": 1.0})
    batch = train.batch_size if isinstance(train, MiniBatchConfig) else 1
    size = min(config.flat.shard_size, max(config.flat.shard_size // one_in, batch))
    flat = config.flat.model_copy(update={"shard_size": size})
    return config.model_copy(update={"graph": graph, "train": train, "flat": flat, "workspace": workspace})


def rehearse(context: StageContext, *, one_in: int, trains_more: bool = True, completes: bool = False) -> Rehearsal:
    """Run the stages of a `rehearsal_config` and return their costs. Raises a stage's GnnflowError.

    trains_more: train again, over more epochs, for the cost of an epoch. completes: complete the run too, which costs
    about the same for any graph, since a report reads samples.
    """
    begin, again = time.monotonic(), 0.0
    costs = {}
    for stage in context.run.stages:
        with PeakMemory() as peak:
            made = make_artifact(context, stage)
        rounds = made.manifest.timings["rounds"]
        costs[stage] = Cost(
            made.seconds,
            made.manifest.num_bytes,
            peak.own,
            peak.worker,
            exchanged=sum(each["exchanged_bytes"] for each in rounds),
            disk=max((each["disk_bytes"] for each in rounds), default=0),
            rows=made.manifest.rows_out,
        )
        if stage == "train" and trains_more:
            trained = time.monotonic()
            costs[stage] = _with_epochs(costs[stage], made, context)
            again = time.monotonic() - trained
    end = time.monotonic()
    if completes:
        with PeakMemory() as peak:
            run(context)
        costs[RUN] = Cost(time.monotonic() - end, 0, peak.own, peak.worker)
    neighbors, train = neighbors_of(context), context.config.train
    layout = layout_of(context.config, neighbors, times=one_in).layout if "flat" in costs else None
    graph_bytes = 0
    if isinstance(train, MiniBatchConfig) and (layout == "store" or train.source == "store"):
        graph_bytes = one_in * peak_of_reading(neighbors, with_keys=train.resample == "epoch")
    return Rehearsal(one_in, context.run.partitions, costs, end - begin, again, layout, graph_bytes)


def _with_epochs(cost: Cost, made: ArtifactResult, context: StageContext) -> Cost:
    """Train for more epochs, and return the cost of training as a fixed part and a part per epoch."""
    first = made.facts(TrainFacts).history[0]["seconds"]
    more = min(max(_FEWEST_EPOCHS, round(_TRAINED_SECONDS / max(first, 1e-9))), _MOST_EPOCHS)
    train = context.config.train.model_copy(update={"epochs": 1 + more})
    config = context.config.model_copy(update={"train": train})
    longer = make_artifact(StageContext.of(config, context.scheduler, context.progress), "train")
    history = longer.facts(TrainFacts).history
    epochs = len(history) - 1  # it may have ended early
    # an epoch takes no less than its steps, which other work on the machine may hide in the difference
    steps = sum(row["seconds"] for row in history[1:]) / max(epochs, 1)
    epoch_seconds = max(steps, (longer.seconds - made.seconds) / max(epochs, 1))
    return replace(cost, seconds=max(0.0, made.seconds - epoch_seconds), epoch_seconds=epoch_seconds)


def memory_here() -> int:
    """Return the bytes of this process, after it returned free memory."""
    pa.default_memory_pool().release_unused()
    malloc.trim()
    return _resident(psutil.Process())


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
