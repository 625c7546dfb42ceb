"""What every GraphInfer task knows, and its rounds in order: plan needs from the last layer back, then K + 1 slices."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from gnnflow.executions.plan import EdgeColumns
from gnnflow.graph.errors import ScoringError
from gnnflow.infer import need, pairs, rounds, states, target_states
from gnnflow.infer.choice import Exchange
from gnnflow.kernels.device import compute_threads, computing_on, find_device
from gnnflow.layers.model import Model
from gnnflow.layers.saved import load_model
from gnnflow.mapreduce.rounds import Round

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gnnflow.config import Device
    from gnnflow.graph.edges import Fanout
    from gnnflow.graph.labels import LabelKind
    from gnnflow.graph.run_facts import Sent
    from gnnflow.infer.choice import LayerBytes
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.neighbors.selected import Neighbors
    from gnnflow.storage.writing import FileEntry


PARITY_LIMIT = 1e-4


@dataclass(frozen=True)
class InferJob:
    """targets: "all", or the split codes to score. model: URI of the trained model's folder.

    label_kind: of what the model learned, class_names: of its classes, where they have names. scores_edges: targets are
    edges, scored from the embeddings of their ends; all nodes are then computed.
    device: where slices are computed, see `infer.device`. A device of the model that it loads computes its slices.
    exchange: how partitions send to each other.
    """

    artifact: str
    neighbors: Neighbors
    model: str
    num_layers: int
    label_kind: LabelKind
    targets: str | tuple[int, ...]
    embeddings: bool
    parity_samples: int
    seed: int
    class_names: tuple[str, ...] = ()
    scores_edges: bool = False
    device: Device = "cpu"
    exchange: Exchange = field(default_factory=Exchange)

    @property
    def row_kind(self) -> LabelKind:
        """What the model gives for a node: its scores, or where edges are scored its embedding."""
        return "link" if self.scores_edges else self.label_kind

    @property
    def node_targets(self) -> str | tuple[int, ...]:
        """The split codes of the nodes to compute, or "all"."""
        return "all" if self.scores_edges else self.targets

    @property
    def fanouts(self) -> tuple[Fanout, ...] | None:
        """In-edges taken per node, one number per layer from the last, which computes the targets; None takes all."""
        every = self.neighbors.fanouts
        return None if every is None else every[: self.num_layers]

    def fanout(self, layer: int) -> Fanout | None:
        """Return how many in-edges layer `layer` (from 1) takes: the last layer the targets' own fan-out."""
        return self.neighbors.fanout(self.num_layers - layer + 1)

    def need_layer(self, layer: int) -> int:
        """Return the layer whose need round serves this one: without pruning and sampling all layers need the same.

        Not where there are several types: targets are of one of them, and lower layers compute nodes of others.
        """
        whole = self.node_targets == "all" and self.neighbors.fanouts is None
        whole = whole and self.neighbors.store.schema.num_types == 1
        return self.num_layers if whole else layer

    def layers_served(self, need_layer: int, relation: int) -> list[LayerBytes]:
        """Return what the layers that a need round serves send in a relation."""
        return [self.exchange.layers[layer - 1][relation] for layer in self.served(need_layer)]

    def served(self, need_layer: int) -> list[int]:
        """Return the layers (from 1) that a need round serves."""
        return [layer for layer in range(1, self.num_layers + 1) if self.need_layer(layer) == need_layer]

    @property
    def edge_columns(self) -> EdgeColumns:
        """Which columns the edges of the graph have."""
        facts = self.neighbors.store.facts
        return EdgeColumns(facts.has_weight, facts.attribute_width)

    def channel(self, what: str, layer: int, relation: int) -> str:
        """Return the channel in which something travels that each relation has of its own."""
        return f"{what}_{layer}_{relation}" if self.neighbors.store.schema.is_typed else f"{what}_{layer}"

    def source_channels(self, layer: int) -> tuple[str, ...]:
        """Return the channels in which the source terms of a layer travel, one per relation."""
        return self._channels("source", layer, range(self.neighbors.store.schema.num_relations))

    def state_channels(self, layer: int) -> dict[str, str]:
        """Return the channels in which states of a layer travel, and the round that makes them."""
        made = {True: f"states_{layer}", False: f"slice_{layer - 1}"}
        relations = self.exchange.askers.get(self.need_layer(layer), ())
        return {self.channel("state", layer, each): made[self.reads_targets(layer, each)] for each in relations}

    def target_channels(self, layer: int) -> tuple[str, ...]:
        """Return the channels of what a slice leaves for the round that makes states with terms of their targets."""
        relations = self.exchange.askers.get(self.need_layer(layer), ())
        reading = [each for each in relations if self.reads_targets(layer, each)]
        return (*self._channels("kept", layer, reading), *self._channels("target", layer, reading))

    def edge_channels(self, need_layer: int) -> tuple[str, ...]:
        """Return the channels in which a need round sends edges to who makes states over them, and of which targets."""
        relations = self.exchange.askers.get(need_layer, ())
        reading = [each for each in relations if any(of.read for of in self.layers_served(need_layer, each))]
        return (*self._channels("edges", need_layer, relations), *self._channels("targets", need_layer, reading))

    def reads_targets(self, layer: int, relation: int) -> bool:
        """Return whether states of a layer are made from terms of their targets too."""
        return self.exchange.layers[layer - 1][relation].read > 0

    def _channels(self, what: str, layer: int, relations: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.channel(what, layer, relation) for relation in relations)

    def load_model(self) -> Model:
        """Return the trained model in evaluation mode, on the CPU."""
        return load_model(self.model)

    @contextmanager
    def computing(self, partition: int) -> Iterator[Model]:
        """Give the model on the device that computes a partition, and one thread beside it, for the length of a block.

        Of several cards each partition takes one, in turn; tasks may share a card.
        """
        device = find_device(self.device, where="infer.device", number=partition)
        with compute_threads(1), computing_on(device, where="infer.device"), torch.no_grad():
            yield self.load_model().to(device)


@dataclass(frozen=True)
class InferResult:
    """What GraphInfer committed. parity maps sampled dense ids to the scores it gave them. sent: see `Sent`."""

    files: tuple[FileEntry, ...]
    num_targets: int
    parity: dict[int, list[float]]
    sent: Sent


def run_rounds(job: InferJob, runner: RoundRunner) -> InferResult:
    """Run GraphInfer over every partition. Raises ScoringError where a target's result is not finite."""
    parts, layers = job.neighbors.store.num_partitions, job.num_layers
    leaves = job.neighbors.store.facts.leaves_of_relations
    sends = states.layer_bytes(job.load_model(), leaves=leaves, columns=job.edge_columns)
    job = replace(job, exchange=replace(job.exchange, layers=sends))
    needs = _plan_needs(job, runner)
    job = replace(job, exchange=replace(job.exchange, askers=needs.askers))
    if job.scores_edges:
        runner.run(Round("ask_ends", parts, parts, partial(pairs.ask_ends, job=job)))
    runner.run(Round("slice_0", parts, parts, partial(rounds.encode, job=job), need.need_channels(job, 1)))
    for layer in range(1, layers + 1):
        if left := dict.fromkeys(job.target_channels(layer), f"slice_{layer - 1}"):
            reads = need.need_channels(job, layer) | left
            make = partial(target_states.make_states, job=job, layer=layer)
            runner.run(Round(f"states_{layer}", parts, parts, make, reads, frozenset(left)))
        records = runner.run(_layer_round(job, layer, sample=needs.sample))
    _check_finite(records, job)
    parity = {int(node): row for record in records for node, row in record.counts["parity"].items()}
    if job.scores_edges:
        score = partial(pairs.score_edges, job=job)
        records = runner.run(Round("edges", parts, parts, score, {"ends": f"slice_{layers}"}, frozenset({"ends"})))
        _check_finite(records, job)
    return InferResult(
        files=tuple(entry for record in records for entry in record.files),
        num_targets=sum(record.counts["rows"] for record in records),
        parity=parity,
        sent=needs.sent,
    )


def _layer_round(job: InferJob, layer: int, *, sample: tuple[int, ...]) -> Round:
    """Return the round that computes a layer, or with the last one the scores. sample: those whose scores are kept."""
    reads = need.need_channels(job, layer)
    reads |= dict.fromkeys((f"own_{layer}", *job.source_channels(layer)), f"slice_{layer - 1}")
    reads |= job.state_channels(layer)
    # what comes later needs: the next layers' needs, and where there is one for all layers, that one to the end
    needed: dict[str, str] = {}
    asked: dict[str, str] = {}
    if layer < job.num_layers:
        needed = need.need_channels(job, layer + 1)
        function = partial(rounds.compute, job=job, layer=layer)
    else:
        asked = {"asked": "ask_ends"} if job.scores_edges else {}
        function = partial(rounds.score, job=job, parity=sample)
    last = frozenset(reads) - frozenset(needed)
    parts = job.neighbors.store.num_partitions
    return Round(f"slice_{layer}", parts, parts, function, reads | needed | asked, last)


def _check_finite(records: Sequence[TaskRecord], job: InferJob) -> None:
    broken = [record.counts for record in records if record.counts.get("not_finite")]
    if not broken:
        return
    number, total = sum(counts["not_finite"] for counts in broken), sum(record.counts["rows"] for record in records)
    raise ScoringError(
        f"the scores{' or embeddings' if job.embeddings else ''} of {number:,} of {total:,} targets are not finite, "
        f"that of node {broken[0]['example']} among them",
        where="infer",
        fix="Nothing was published. Look for extreme features or edge weights at these nodes and their in-neighbours, "
        "labelled or not: float32 ends at 3.4e38. graph.normalize: standard scales features.",
    )


@dataclass(frozen=True)
class _Needs:
    """What the need rounds found. sample: the dense ids the parity certificate samples; askers: see `Exchange`."""

    sample: tuple[int, ...]
    askers: dict[int, dict[int, tuple[int, ...]]]
    sent: Sent


def _plan_needs(job: InferJob, runner: RoundRunner) -> _Needs:
    """Run the need rounds."""
    parts, layers = job.neighbors.store.num_partitions, job.num_layers
    sample: list[list[int]] = []
    askers, counted = dict[int, dict[int, tuple[int, ...]]](), list[dict[str, int]]()
    for layer in range(layers, 0, -1):
        if job.need_layer(layer) != layer:
            continue
        reads = need.need_channels(job, layer + 1) if layer < layers else {}
        plan = partial(need.plan_need, job=job, layer=layer)
        records = runner.run(Round(f"need_{layer}", parts, parts, plan, reads))
        askers[layer] = {}
        for relation in range(job.neighbors.store.schema.num_relations):
            found = {record.index: record.counts["sent"][relation] for record in records}
            counted += found.values()
            if takers := tuple(index for index, each in found.items() if each["as_states"]):
                askers[layer][relation] = takers
        if layer == layers:
            sample = [pair for record in records for pair in record.counts["sample"]]
    # hash of each candidate of any partition, and the places of the smallest
    hashes = np.array([pair[0] for pair in sample], np.int64)
    first = np.argsort(hashes, kind="stable")[: job.parity_samples]
    return _Needs(tuple(sample[number][1] for number in first), askers, states.sent_by(counted))
