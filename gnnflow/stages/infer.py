"""GraphInfer: graph store and trained model in, predictions with the user's ids out, and the parity certificate.

The certificate scores random targets a second time by the path that training takes: GraphFlat cuts their k-hop
neighbourhoods and the mini-batch execution runs on them, or the global-batch execution runs on all nodes that reach
them, if it trained the model. If the two differ by more than 1e-4 (more where `infer.rows` rounds rows), or one of them
is NaN, nothing is published. Both paths read the same neighbours: as in training, or all of them if `infer.sampling` is
`none`; the facts say which.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.config.task_section import measured_class
from gnnflow.config.train_section import pipeline_of
from gnnflow.graph.errors import ParityError, ScoringError, TrainingError, listed
from gnnflow.graph.run_facts import InferFacts, Parity, Sent, TrainFacts
from gnnflow.graph.score_facts import ColumnFacts
from gnnflow.graph.splits import SPLITS
from gnnflow.graphfeature.shards import Shard, read_shard
from gnnflow.graphflat.job import FlatJob
from gnnflow.graphflat.run import run_rounds as cut_neighborhoods
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.way import Way, way_of
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import Made
from gnnflow.storage.filesystem import is_local, join
from gnnflow.storage.verified import expect_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gnnflow.config import Config
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.run_facts import Compared
    from gnnflow.infer.job import InferJob
    from gnnflow.stages.base import StageRun

_PARITY_SHARD = 256


def work(run: StageRun) -> Made:
    """Score the config's targets with the trained model.

    Raises ScoringError if a score is not finite, ParityError if the two paths disagree.
    """
    train = run.inputs["train"]
    made = score_graph(run, model=train.uri, learned=Learned.of(run.store.facts), trained=train.manifest.digest)
    return replace(made, facts=replace(made.facts, columns=_columns_of(run, train.facts(TrainFacts).metric)))


def _columns_of(run: StageRun, metric: str) -> ColumnFacts:
    """Return the importance of columns to the run's model. metric: the one that chose its best epoch."""
    from gnnflow.stages.importance import column_facts, draw_targets, obstacle

    job = _job(run, run.inputs["train"].uri, Learned.of(run.store.facts))
    is_joint = pipeline_of(run.config.train).is_joint
    if why := obstacle(job, is_joint=is_joint):
        return ColumnFacts(why=why)
    cut = partial(_neighborhoods_of, job=job, runner=run.rounds, name="columns")
    begin = time.monotonic()
    try:
        targets = draw_targets(job.neighbors.store, run.config.task, seed=run.config.seed)
    except TrainingError as error:  # a link without a candidate: the scores are there, and this figure is not
        return ColumnFacts(why=f"columns have no importance: {error.problem}")
    facts = run.store.facts
    positive = measured_class(run.config.task, facts.label_kind, facts.every_class_name)
    found = column_facts(job, targets, cut, metric=metric, seed=run.config.seed, positive=positive)
    run.tell(f"columns: importance of {len(found.columns):,} in {time.monotonic() - begin:.1f} s")
    return found


@dataclass(frozen=True)
class Learned:
    """The output of a model: the kind of its labels, and the names of its classes, if any."""

    label_kind: LabelKind
    class_names: tuple[str, ...]

    @staticmethod
    def of(graph: GraphFacts) -> Learned:
        """Return the output of a model that is trained on a graph."""
        return Learned(graph.label_kind, graph.class_names)


def score_graph(run: StageRun, *, model: str, learned: Learned, trained: str) -> Made:
    """Score the config's targets with the model in a folder; the graph needs no labels.

    trained: the digest of the artifact of its training.
    """
    from gnnflow.infer.run import run_rounds

    _check_targets(run)
    job = _job(run, model, learned)
    begin = time.monotonic()
    result = run_rounds(job, run.rounds)
    seconds = run.rounds.earlier + time.monotonic() - begin
    sampled = not run.config.sampling.takes_every
    is_joint = pipeline_of(run.config.train).is_joint
    again = partial(_score_on_store, job) if is_joint else partial(_score_by_neighborhood, job, run.rounds)
    parity = _certify(job, again, result.parity, trained_on_sample=sampled)
    run.tell(f"certificate: {parity.text}")
    metrics = {
        "infer.seconds": seconds,
        "infer.nodes_per_second": result.num_targets / max(seconds, 1e-9),
        "infer.parity_samples": parity.samples,
    }
    if parity.max_difference is not None:
        metrics["infer.parity_max_difference"] = parity.max_difference
    targets = result.num_targets
    run.tell(result.way.text)
    run.rounds.remarks["way"] = result.way.text
    if result.hubs:
        run.tell(result.hubs)
        run.rounds.remarks["hubs"] = result.hubs
    sent = Sent() if result.way.mapped else result.sent
    if sent.as_states:
        run.tell(f"sent: {sent.text}")
    facts = InferFacts(metrics, parity, sent, trained)
    return Made(result.files, rows_in=targets, rows_out=targets, facts=facts)


def planned_way(config: Config) -> Way:
    """Return how rows of other partitions reach GraphInfer's tasks, as far as the config tells."""
    return way_of(on_this_machine=not config.cluster.is_elsewhere, local_files=is_local(config.workspace))


def _check_targets(run: StageRun) -> None:
    """Raise ScoringError if the config asks for the targets of splits, and these are empty."""
    asked, facts = run.config.infer.targets, run.store.facts
    if asked == "all" or any(facts.splits[split] for split in asked):
        return
    are = facts.targets if facts.label_kind in {"none", "link"} else f"labelled {facts.targets}"
    counts = ", ".join(f"{split} {number:,}" for split, number in facts.splits.items())
    raise ScoringError(
        f"none of the {are} is in {listed(asked)} ({counts}), so nothing would be scored",
        where="infer.targets",
        fix="Set it to all; without labels, nothing is in a split.",
    )


def _job(run: StageRun, model: str, learned: Learned) -> InferJob:
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.saved import read_decision, read_description

    infer, neighbors = run.config.infer, run.neighbors
    if infer.sampling == "none":
        neighbors = Neighbors(neighbors.store)
    return InferJob(
        device=run.config.scoring_device,
        artifact=run.artifact,
        neighbors=neighbors,
        model=model,
        num_layers=read_description(model).config.layers,
        label_kind=learned.label_kind,
        class_names=learned.class_names,
        decision=read_decision(model),
        rows=infer.rows,
        targets="all" if infer.targets == "all" else tuple(SPLITS.index(split) for split in infer.targets),
        embeddings=infer.embeddings,
        parity_samples=infer.parity_samples,
        seed=run.config.seed,
        scores_edges=run.config.task.kind == "edge",
        hub_threshold=getattr(run.config.neighbors, "hub_threshold", None),
    )


def _certify(
    job: InferJob,
    again: Callable[[IntArray], Mapping[int, FloatArray]],
    scored: dict[int, list[float]],
    *,
    trained_on_sample: bool,
) -> Parity:
    """Return the certificate of the sampled targets' scores. Raises ParityError if the scores differ.

    again: scores targets, given by dense id, by the path that trained the model.
    """
    from gnnflow.infer.row_form import PARITY_LIMITS

    limit = PARITY_LIMITS[job.rows]
    if not scored:
        return Parity(0, None, limit, "nothing")
    unit = None if job.scores_edges else job.neighbors.store.facts.label_unit
    least = 1.0 if unit is None else unit.deviation
    difference = largest_difference(scored, again(np.array(sorted(scored))), least=least)
    if not difference <= limit:
        raise ParityError(
            f"GraphInfer and the k-hop path differ by {difference:.3g} on {len(scored)} targets, over {limit}",
            where=job.artifact,
            fix="Nothing was published. A custom layer may keep state between calls or mix rows of a batch.",
        )
    compared: Compared = "all edges" if trained_on_sample and job.neighbors.sampling.takes_every else "like training"
    return Parity(len(scored), difference, limit, compared)


def largest_difference(
    scored: Mapping[int, Sequence[float]], again: Mapping[int, FloatArray], *, least: float = 1.0
) -> float:
    """Return the largest difference between two scores of the same targets; NaN if either holds a NaN.

    It is relative to the score, or to the root mean square of its column, where these are above `least`: float32 holds
    seven digits, so sums in another order differ more where scores are large, whatever layer computed them.
    """
    nodes = sorted(scored)
    # both scores of each target [N, C], and the root mean square of each column [C]
    first, second = np.array([scored[node] for node in nodes]), np.stack([again[node] for node in nodes])
    usual = np.sqrt(np.mean(np.square(second, dtype=np.float64), axis=0))
    # NumPy's maximum keeps a NaN where Python's drops it.
    return float(np.max(np.abs(first - second) / np.maximum(np.maximum(np.abs(second), usual), least)))


def _score_on_store(job: InferJob, targets: IntArray) -> dict[int, FloatArray]:
    """Return the scores [C] of each target, by dense id, computed as in training on the whole graph."""
    import torch

    from gnnflow.infer.predictions import scores_of
    from gnnflow.kernels.device import compute_threads
    from gnnflow.train.globalbatch import logits_of

    with compute_threads(1):
        logits = logits_of(job.load_model(), targets, neighbors=job.neighbors)
    return dict(zip(targets.tolist(), scores_of(torch.from_numpy(logits), job.row_kind), strict=True))


def _neighborhoods_of(targets: IntArray, job: InferJob, runner: RoundRunner, name: str = "parity") -> Iterator[Shard]:
    """Cut the neighbourhoods of some targets with GraphFlat, in rounds of the run, and return the shards.

    name: of the rounds and of their folder.
    """
    work_folder = join(runner.work, name)
    shards = join(work_folder, "shards")
    inner = RoundRunner(work_folder, runner.scheduler, runner.progress, artifact=shards)
    flat = FlatJob(shards, job.neighbors, job.num_layers, "shared", targets)
    result = cut_neighborhoods(flat, inner, shard_size=_PARITY_SHARD)
    expect_files(shards, result.files)
    later = inner.started - runner.started
    runner.timings += [replace(t, name=f"{name}_{t.name}", start=t.start + later) for t in inner.timings]
    return (read_shard(shards, entry) for entry in result.facts.shards)


def _score_by_neighborhood(job: InferJob, runner: RoundRunner, targets: IntArray) -> dict[int, FloatArray]:
    """Return the scores [C] of each target, by dense id, computed as in mini-batch training."""
    import torch

    from gnnflow.executions.minibatch import forward
    from gnnflow.graphfeature.blocks import build_minibatch
    from gnnflow.infer.predictions import scores_of
    from gnnflow.kernels.device import compute_threads

    cut = _neighborhoods_of(targets, job, runner)
    scores: dict[int, FloatArray] = {}
    with compute_threads(1), torch.no_grad():
        model = job.load_model()
        for shard in cut:
            batch = build_minibatch(
                shard.neighborhood,
                shard.rows,
                sampling=job.neighbors.sampling,
                num_layers=job.num_layers,
            )
            scores |= dict(zip(shard.targets.tolist(), scores_of(forward(model, batch), job.row_kind), strict=True))
    return scores
