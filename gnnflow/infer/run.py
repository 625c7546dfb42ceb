"""The rounds of GraphInfer in order: plan needs from the last layer back, then K + 1 slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.graph.errors import ScoringError
from gnnflow.infer import hub_edges, hubs, need, pairs, rounds, states, target_states
from gnnflow.infer.row_form import number_bytes
from gnnflow.mapreduce.rounds import Round
from gnnflow.mapreduce.way import way_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.run_facts import Sent
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.rounds import RoundRunner, TaskRecord
    from gnnflow.mapreduce.way import Way
    from gnnflow.storage.writing import FileEntry


@dataclass(frozen=True)
class InferResult:
    """The result of GraphInfer. parity maps sampled dense ids to the scores it gave them.

    sent: what partitions sent each other, or would send where `way` has rows read where they lie. hubs: a line on hubs,
    "" where there are none.
    """

    files: tuple[FileEntry, ...]
    num_targets: int
    parity: dict[int, list[float]]
    sent: Sent
    way: Way
    hubs: str


def run_rounds(job: InferJob, runner: RoundRunner) -> InferResult:
    """Run GraphInfer over every partition. Raises ScoringError where a target's result is not finite."""
    parts, layers = job.neighbors.store.num_partitions, job.num_layers
    leaves = job.neighbors.store.facts.leaves_of_relations
    sends = states.layer_bytes(job.load_model(), leaves=leaves, columns=job.edge_columns, rows=job.rows)
    widest = max(sum(relation.row for relation in layer) for layer in sends)
    # mapped rows are float32, however they would travel
    mapped_bytes = widest // number_bytes(job.rows) * number_bytes("float32") * job.neighbors.store.book.num_nodes
    way = way_in(runner, mapped_bytes=mapped_bytes, asked=job.exchange.mapped)
    job = replace(job, exchange=replace(job.exchange, layers=sends, mapped=way.mapped))
    needs = _plan_needs(job, runner)
    job = needs.job
    if job.scores_edges:
        runner.run(Round("ask_ends", parts, parts, partial(pairs.ask_ends, job=job)))
    encode, reads = partial(rounds.encode, job=job), need.need_channels(job, 1)
    runner.run(Round("slice_0", parts, parts, encode, reads, keeps=job.mapped))
    for layer in range(1, layers + 1):
        if left := dict.fromkeys(job.target_channels(layer), f"slice_{layer - 1}"):
            reads = need.need_channels(job, layer) | left
            make = partial(target_states.make_states, job=job, layer=layer)
            runner.run(Round(f"states_{layer}", parts, parts, make, reads, frozenset(left)))
        if job.hub_relations(layer):
            runner.run(_hub_round(job, layer))
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
        way=way,
        hubs=needs.hubs,
    )


def _hub_round(job: InferJob, layer: int) -> Round:
    """Return the round that makes the states of a layer's hubs."""
    left = dict.fromkeys(hubs.left_channels(job, layer), f"slice_{layer - 1}")
    mapped = dict.fromkeys(job.source_channels(layer) if job.mapped else (), f"slice_{layer - 1}")
    reads = need.need_channels(job, layer) | left | mapped
    parts, make = job.neighbors.store.num_partitions, partial(hubs.make_states, job=job, layer=layer)
    return Round(f"hubs_{layer}", parts, parts, make, reads, frozenset(left))


def _layer_round(job: InferJob, layer: int, *, sample: tuple[int, ...]) -> Round:
    """Return the round that computes a layer, or with the last one the scores. sample: those whose scores are kept."""
    reads = need.need_channels(job, layer)
    reads |= dict.fromkeys((f"own_{layer}", *job.source_channels(layer)), f"slice_{layer - 1}")
    reads |= job.state_channels(layer)
    reads |= dict.fromkeys(hub_edges.hub_channels(job, layer, "hub_state"), f"hubs_{layer}")
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
    keeps = job.mapped and layer < job.num_layers
    return Round(f"slice_{layer}", parts, parts, function, reads | needed | asked, last, keeps=keeps)


def _check_finite(records: Sequence[TaskRecord], job: InferJob) -> None:
    broken = [record.counts for record in records if record.counts.get("not_finite")]
    if not broken:
        return
    number, total = sum(counts["not_finite"] for counts in broken), sum(record.counts["rows"] for record in records)
    raise ScoringError(
        f"the scores{' or embeddings' if job.embeddings else ''} of {number:,} of {total:,} targets are not finite, "
        f"for example of node {broken[0]['example']}",
        where="infer",
        fix="Nothing was published. Look for extreme features or edge weights at these nodes and their in-neighbours, "
        "labelled or not: float32 ends at 3.4e38, and float16 (infer.rows) at 65,504. graph.normalize: standard scales "
        "features.",
    )


@dataclass(frozen=True)
class _Needs:
    """The result of the need rounds. job: that knows who takes states, and whose hubs are split.

    sample: the dense ids the parity certificate samples. hubs: a line on hubs, see `hubs_text`.
    """

    job: InferJob
    sample: tuple[int, ...]
    sent: Sent
    hubs: str


def _plan_needs(job: InferJob, runner: RoundRunner) -> _Needs:
    """Run the need rounds."""
    parts, layers = job.neighbors.store.num_partitions, job.num_layers
    sample: list[list[int]] = []
    counted, of_hubs = list[dict[str, int]](), list[hub_edges.HubCounts]()
    for layer in range(layers, 0, -1):
        if job.need_layer(layer) != layer:
            continue
        reads = need.need_channels(job, layer + 1) if layer < layers else {}
        plan = partial(need.plan_need, job=job, layer=layer)
        records = runner.run(Round(f"need_{layer}", parts, parts, plan, reads, keeps=job.mapped))
        askers, owners = dict[int, tuple[int, ...]](), dict[int, tuple[int, ...]]()
        for relation in range(job.neighbors.store.schema.num_relations):
            found = {record.index: record.counts["sent"][relation] for record in records}
            counted += found.values()
            if takers := tuple(index for index, each in found.items() if each["as_states"]):
                askers[relation] = takers
            split = {record.index: hub_edges.HubCounts(*record.counts["hubs"][relation]) for record in records}
            of_hubs += split.values()
            if those := tuple(index for index, each in split.items() if each.edges):
                owners[relation] = those
        told = replace(job.exchange, askers=job.exchange.askers | {layer: askers})
        job = replace(job, exchange=replace(told, hubs=job.exchange.hubs | {layer: owners}))
        if layer == layers:
            sample = [pair for record in records for pair in record.counts["sample"]]
    # hash of each candidate of any partition, and the places of the smallest
    hashes = np.array([pair[0] for pair in sample], np.int64)
    first = np.argsort(hashes, kind="stable")[: job.parity_samples]
    chosen = tuple(sample[number][1] for number in first)
    return _Needs(job, chosen, states.sent_by(counted), hubs.text_of(job, of_hubs))
