"""The cost of a run before it runs: done stages have it in their manifests, the others are rehearsed.

Rehearsals run the stages on this cluster and storage, on subsamples of the config's tables: a first one that loads
libraries and starts workers, two small ones, and then the largest that fits into the seconds that are left.
`forecast.py` extrapolates to the whole graph; training is also checked against `train.memory`.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gnnflow.config.cluster_section import LocalCluster
from gnnflow.config.partition_section import Clustered
from gnnflow.config.train_section import GlobalBatchConfig, MiniBatchConfig, is_hybrid, is_streamed
from gnnflow.graph.errors import GnnflowError, TrainingError
from gnnflow.graph.facts import GraphFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.ingest.subsample import read_subsample
from gnnflow.ingest.targets import DrawnSplit, EdgeTargets
from gnnflow.mapreduce.way import machine_memory
from gnnflow.progress import Silent
from gnnflow.report.formats import bytes_text
from gnnflow.stages.base import StageContext, neighbors_of
from gnnflow.stages.check import check_run
from gnnflow.stages.forecast import Forecast, StageForecast, error_of, full_cost, growth_of, seconds_at, shard_memory
from gnnflow.stages.infer import planned_way
from gnnflow.stages.pipeline import is_quick
from gnnflow.stages.rehearsal import RUN, Cost, Rehearsal, memory_here, rehearsal_config, rehearse
from gnnflow.stages.train import model_inputs
from gnnflow.storage.filesystem import join
from gnnflow.storage.manifest import committed
from gnnflow.storage.writing import remove_empty_folder, remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gnnflow.graph.facts import Layout
    from gnnflow.ingest.subsample import Subsample

_SMALLEST, _LARGEST = 1 << 15, 1 << 22  # edges of the subsamples
_SHARE = 0.1  # of the forecast, that rehearsals may take where no limit is given
_LONGEST = 60.0  # seconds of such a limit
_MOST_PARTITIONS = 16  # of a rehearsal: with many more, most of its time would be the overhead of tasks
_TASKS_PER_WORKER = 2
_FEWEST = 2  # rehearsals, since a line needs two points
_LEAST_SKIP = 16  # least K of a second rehearsal that skips a size
_NOT_PLANNED = (
    "train.memory is planned only for one process on the CPU: with several ranks, or on a GPU, training checks it "
    "before it writes the graph"
)


def plan_run(context: StageContext, *, limit: float | None = None) -> Forecast:
    """Return the forecast of a run. Rehearsals write to a temporary folder in the workspace.

    limit: about how many seconds the rehearsals may take once libraries and workers are ready; None for a tenth of the
    forecast, at most a minute. Raises the errors in config and tables that rehearsals meet.
    """
    begin = time.monotonic()
    check_run(context.run)
    stages = (*context.run.stages, RUN)
    done = {stage for stage in context.run.stages if committed(context.run.artifact(stage))}
    if is_quick(context):
        done.add(RUN)
    if done >= {*stages}:
        facts = context.artifact(context.run.store_stage).facts(GraphFacts)
        forecasts = tuple(_done(context, stage) for stage in stages)
        return Forecast(context.run.uri, facts.num_nodes, facts.num_edges, context.run.partitions, forecasts)
    rehearsals, cluster = _rehearsals(context, limit=limit), context.config.cluster
    forecasts = tuple(_done(context, stage) if stage in done else _to_do(rehearsals, stage) for stage in stages)
    return Forecast(
        context.run.uri,
        *rehearsals.subsample.num_rows,
        context.run.partitions,
        forecasts,
        startup_seconds=rehearsals.startup_seconds,
        one_in=tuple(dict.fromkeys(each.one_in for each in rehearsals.all)),
        rehearsed_seconds=time.monotonic() - begin,
        error_seconds=error_of(rehearsals.all, epochs=context.config.train.epochs),
        budget=rehearsals.budget,
        machine_memory=machine_memory(),
        memory_limit=int(cluster.memory_limit) if isinstance(cluster, LocalCluster) else 0,
        scoring="" if "infer" in done else planned_way(context.config).text,
    )


@dataclass
class _Rehearsals:
    """Rehearsals of a run, from small to large.

    base: bytes of this process after libraries are loaded. loaded: bytes that a worker has more of in a second
    rehearsal of the smallest graph than in the first, by stage, since later stages loaded their libraries. budget: a
    sentence about `train.memory`, from the last one. layout: of the whole graph's shards, as the last one tells it.
    """

    context: StageContext
    subsample: Subsample
    folder: str
    all: list[Rehearsal] = field(default_factory=list)
    startup_seconds: float = 0.0
    base: int = 0
    loaded: Mapping[str, int] = field(default_factory=dict)
    budget: str = ""
    layout: Layout | None = None

    def rehearse(self, one_in: int, *, partitions: int, trains_more: bool = True, completes: bool = False) -> Rehearsal:
        """Rehearse the run on one node in `one_in`, and report the seconds. Keyword arguments are as of `rehearse`."""
        context, own = self.context, join(self.folder, uuid.uuid4().hex)
        share = partitions / context.run.partitions
        graph = self.subsample.write(join(own, "tables"), one_in=one_in, chunks=_tasks(context), share=share)
        graph = graph.model_copy(update={"partitions": partitions})
        config = rehearsal_config(context.config, graph, one_in=one_in, workspace=join(own, "workspace"))
        if self.layout == "shared":  # a copy would fit in memory where the graph does not
            config = config.model_copy(update={"flat": config.flat.model_copy(update={"layout": "shared"})})
        smaller = StageContext.of(config, context.scheduler, Silent())
        rehearsal = rehearse(smaller, one_in=one_in, trains_more=trains_more, completes=completes)
        self.budget = budget_text(smaller, times=one_in, partitions=context.run.partitions)
        self.layout = rehearsal.layout
        remove_tree(own)
        nodes = "all nodes" if one_in == 1 else f"one node in {one_in:,}"
        context.progress.message(f"rehearsed with {nodes}, {partitions} partitions: {rehearsal.seconds:.1f} s")
        return rehearsal


def _rehearsals(context: StageContext, *, limit: float | None) -> _Rehearsals:
    """Rehearse a run on small graphs, and on the largest graphs that the time allows."""
    folder = join(context.run.workspace.uri, "work", "plan")
    own = join(folder, uuid.uuid4().hex)
    try:
        return _rehearse_within(limit, context, own)
    except GnnflowError as error:
        raise _without_paths(error, own) from error
    finally:
        remove_tree(own)
        remove_empty_folder(folder)
        remove_empty_folder(join(context.run.workspace.uri, "work"))


def _rehearse_within(limit: float | None, context: StageContext, folder: str) -> _Rehearsals:
    config = context.config
    targets = EdgeTargets.of(config.task, config.graph, seed=config.seed)
    drawn = DrawnSplit.of(config.task, seed=config.seed)
    subsample, levels = read_subsample(
        config.graph, targets=targets, drawn=drawn, smallest=_SMALLEST, largest=_LARGEST, progress=context.progress
    )
    found = _Rehearsals(context, subsample, folder)
    partitions = _rehearsed_partitions(context)
    # it also loads libraries and starts workers
    first = found.rehearse(levels[0], partitions=partitions, trains_more=False)
    found.base = memory_here() - subsample.num_bytes
    begin = time.monotonic()
    while (one_in := _next_level(found, levels, limit, spent=time.monotonic() - begin)) is not None:
        # once, with the largest graph of those that are always rehearsed
        completes = len(found.all) == _FEWEST - 1
        found.all.append(found.rehearse(one_in, partitions=partitions, completes=completes))
    again = found.all[0].costs
    found.loaded = {
        stage: max(0, again[stage].worker_memory - cost.worker_memory) for stage, cost in first.costs.items()
    }
    found.startup_seconds = max(0.0, first.seconds - (found.all[0].seconds - found.all[0].again))
    if partitions < context.run.partitions:
        found.all.append(found.rehearse(found.all[1].one_in, partitions=2 * partitions))
    return found


def _next_level(found: _Rehearsals, levels: Sequence[int], limit: float | None, *, spent: float) -> int | None:
    """Return the K of the next rehearsal: the largest graph that fits into the limit; None where none does."""
    done, context = len(found.all), found.context
    if done < _FEWEST:
        return levels[0] if not done else _second(levels)
    if limit is None:
        every = (*context.run.stages, RUN)
        costs = [full_cost(found.all, stage, partitions=found.all[0].partitions) for stage in every]
        seconds = sum(cost.seconds + context.config.train.epochs * cost.epoch_seconds for cost in costs)
        limit = min(_SHARE * seconds, _LONGEST)
    larger = [one_in for one_in in levels if one_in < found.all[-1].one_in]
    fits = [one_in for one_in in larger if spent + seconds_at(found.all, one_in) <= limit]
    return min(fits, default=None)


def _second(levels: Sequence[int]) -> int:
    """Return the K of the second rehearsal: of the third size where that is a small part of the graph, else the second.

    The longer the line through the first two, the less their scatter matters, and both take little but fixed costs.
    """
    far = levels[_FEWEST] if len(levels) > _FEWEST else 1
    return far if far >= _LEAST_SKIP else levels[1]


def _rehearsed_partitions(context: StageContext) -> int:
    """Return the number of partitions of rehearsals: at least one for each rank, and all of them with clusters."""
    config, own = context.config, context.run.partitions
    if isinstance(config.partition, Clustered) and config.partition.clusters is not None:
        return own
    return min(own, max(_MOST_PARTITIONS, config.train.workers))


def _tasks(context: StageContext) -> int:
    """Return the number of chunks of a table that keeps all workers busy."""
    cluster = context.config.cluster
    return _TASKS_PER_WORKER * (cluster.workers if isinstance(cluster, LocalCluster) else 1)


def _done(context: StageContext, stage: str) -> StageForecast:
    """Return the measured cost of a done stage."""
    if stage == RUN:
        return StageForecast(stage, is_done=True, seconds=0.0, num_bytes=0)
    manifest = context.artifact(stage).manifest
    return StageForecast(stage, is_done=True, seconds=manifest.timings["seconds"], num_bytes=manifest.num_bytes)


def _to_do(rehearsals: _Rehearsals, stage: str) -> StageForecast:
    """Return the forecast of a stage that is not done."""
    config, train = rehearsals.context.config, rehearsals.context.config.train
    cost = full_cost(rehearsals.all, stage, partitions=rehearsals.context.run.partitions)
    if stage == "train":
        cost = _bounded(cost, rehearsals)
    if shards := shard_memory(rehearsals.all, stage, shard_size=config.flat.shard_size):
        least = rehearsals.all[0].costs[stage]
        if least.worker_memory and (stage != "train" or train.workers > 1):
            cost = replace(cost, worker_memory=max(cost.worker_memory, least.worker_memory + shards))
        else:
            cost = replace(cost, memory=max(cost.memory, least.memory + shards))
    epochs = train.epochs if cost.epoch_seconds else 0
    return StageForecast(
        stage,
        is_done=False,
        seconds=cost.seconds + epochs * cost.epoch_seconds,
        num_bytes=cost.num_bytes,
        memory=rehearsals.base + cost.memory,
        worker_memory=None
        if config.cluster.is_elsewhere
        else max(0, cost.worker_memory - rehearsals.loaded.get(stage, 0)),
        epochs=epochs,
        epoch_seconds=cost.epoch_seconds,
        growth=growth_of(rehearsals.all, stage),
        exchanged=cost.exchanged,
        disk=cost.disk,
    )


def _bounded(cost: Cost, rehearsals: _Rehearsals) -> Cost:
    """Return the cost of training, with the memory of the whole graph where each rank holds it.

    Else memory is limited by `train.memory` or `train.cache` if the config sets these. Memory outside of the budget is
    added: for `train.memory` as in the smallest rehearsal, for `train.cache`, which is smaller than four large shards,
    as in the largest.
    """
    train, last = rehearsals.context.config.train, rehearsals.all[-1]
    if last.graph_bytes:
        own, worker = last.costs["train"].memory, last.costs["train"].worker_memory
        if train.workers > 1:
            return replace(cost, memory=own, worker_memory=worker + last.graph_bytes)
        return replace(cost, memory=own + last.graph_bytes, worker_memory=worker)
    if isinstance(train, GlobalBatchConfig) and train.memory is not None:
        other, budget = rehearsals.all[0].costs["train"], int(train.memory)
    elif isinstance(train, MiniBatchConfig) and train.source == "shards":
        other, budget = rehearsals.all[-1].costs["train"], int(train.cache)
    else:
        return cost
    own, worker = other.memory + budget, other.worker_memory + budget
    return replace(cost, memory=min(cost.memory, own), worker_memory=min(cost.worker_memory, worker))


def _without_paths(error: GnnflowError, folder: str) -> GnnflowError:
    """Return an error of a rehearsal without the paths of its deleted files."""
    if folder not in str(error):
        return error
    return type(error)(
        error.problem.replace(folder, "plan"),
        where="a subsample of the tables",
        fix=f"{error.fix} `gnnflow ingest CONFIG` names the rows." if error.fix else "Run `gnnflow ingest CONFIG`.",
    )


def budget_text(rehearsed: StageContext, *, times: int, partitions: int) -> str:
    """Return a sentence about `train.memory` on a graph with `times` as many nodes; empty if it is not set.

    With `train.parallel: hybrid` it tells the memory of a rank's part.

    rehearsed: a run that has its graph store and its neighbours. partitions: of the larger graph.
    """
    train = rehearsed.config.train
    if is_hybrid(train):
        return _share_text(rehearsed, times=times, partitions=partitions)
    if not is_streamed(train):
        return ""
    if train.workers > 1 or train.device != "cpu":
        return _NOT_PLANNED
    from gnnflow.layers.model import build_model
    from gnnflow.train.streamed.budget import plan
    from gnnflow.train.streamed.size import graph_size, scaled_size

    config, neighbors = rehearsed.config, neighbors_of(rehearsed)
    train, facts = config.train, neighbors.store.facts
    assert isinstance(train, GlobalBatchConfig)
    assert train.memory is not None
    own = facts.book.num_partitions
    targets = [facts.splits.get(split, 0) for split in SPLITS]
    size = scaled_size(graph_size(neighbors, targets, range(own)), times, partitions=partitions / own)
    model = build_model(config.model, model_inputs(facts, config.task))
    try:
        made = plan(model, size, budget=int(train.memory))
    except TrainingError as error:
        return f"train would be refused: {error}"
    files = bytes_text(made.disk_bytes)
    intervals = "1 interval" if made.intervals == 1 else f"{made.intervals} intervals"
    return f"train keeps train.memory with {intervals} of nodes and {files} of files on a local disk"


def _share_text(rehearsed: StageContext, *, times: int, partitions: int) -> str:
    """Return a sentence about the memory of a hybrid rank, as `budget_text` does: of the one with most partitions."""
    from gnnflow.layers.model import ModelSpec
    from gnnflow.train.hybrid import open_task_source
    from gnnflow.train.job import StoredGraph, TrainJob
    from gnnflow.train.minibatch.memory import array_bytes

    config, neighbors = rehearsed.config, neighbors_of(rehearsed)
    facts, ranks = neighbors.store.facts, config.train.workers
    job = TrainJob(
        model=ModelSpec(config.model, model_inputs(facts, config.task)),
        graph=StoredGraph(neighbors),
        label_kind=facts.label_kind,
        num_classes=facts.num_classes,
        train=config.train,
        seed=config.seed,
        task=config.task,
    )
    # one rank has the whole graph and all rows of a batch, of which each of several has its share
    with open_task_source(job) as source:
        batch = array_bytes(source.step(0, 0).batch.tensors) // ranks
        graph = source.part.num_bytes * times * -(-partitions // ranks) // partitions
    whose = "the rank" if ranks == 1 else f"a rank of {ranks}"
    return f"{whose} holds about {bytes_text(graph)} of the graph, and at least {bytes_text(batch)} of rows of a batch"
