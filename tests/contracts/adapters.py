"""How the contract suite drives each execution: one function per row of `EXECUTIONS`, from a case to the scores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions import clusterbatch, minibatch, reference, sliced
from gnnflow.executions.plan import EdgeColumns, plan_layer
from gnnflow.executions.reference import WholeGraph
from gnnflow.executions.tensors import types_of
from gnnflow.graph.batch import Block
from gnnflow.graph.relations import relation_blocks
from gnnflow.train.streamed.files import Scratch
from tests.contracts.among_ranks import OnRanks, divided, outputs_on_ranks
from tests.contracts.dividing import KINDS
from tests.contracts.in_files import filed, outputs_of, targets_of
from tests.contracts.in_memory import apart, mini_batch, rows_of
from tests.contracts.in_process import on_ranks

TEMPORARY = tempfile.gettempdir()


def plans(model, index):
    """Return the plan of each relation of a layer."""
    return plan_layer(model, index, EdgeColumns(attribute_width=model.inputs.attribute_width)).relations


@dataclass(frozen=True)
class Case:
    """A graph, the adjacency that each layer reads, and the targets to score.

    seed draws what no result may depend on: how nodes are numbered, which partition holds them.
    """

    graph: WholeGraph
    per_layer: Sequence[Block]
    targets: np.ndarray
    seed: int


@dataclass(frozen=True)
class Ran:
    """Logits and embeddings of the case's targets, in their order."""

    logits: Tensor
    embedding: Tensor


def _on_reference(model, case):
    """The plain definition, on the graph with its nodes numbered anew."""
    number = np.random.default_rng(case.seed).permutation(len(case.graph.nodes))
    adjacency, _ = rows_of(case.graph.adjacency, number)
    graph = WholeGraph(adjacency, case.graph.nodes.take(number), case.graph.features.take(number))
    sampled = [rows_of(block, number)[0] for block in case.per_layer]
    rows = np.argsort(number)[case.targets]
    outputs = [output[rows] for output in reference.layer_outputs(model, graph, sampled=sampled)]
    return Ran(model.predict(outputs), model.embedding(outputs))


def _on_minibatch(model, case):
    """All targets as one batch."""
    batch = mini_batch(case.graph, case.targets, per_layer=case.per_layer)
    return Ran(minibatch.forward(model, batch), model.embedding(minibatch.layer_outputs(model, batch)))


def _on_clusterbatch(model, case):
    """The whole graph as the clusters of one batch, the targets first and the others in an order of their own."""
    others = np.setdiff1d(np.arange(len(case.graph.nodes)), case.targets)
    order = np.concatenate([case.targets, np.random.default_rng(case.seed).permutation(others)])
    batches = [
        clusterbatch.cluster_batch(
            rows_of(block, order)[0],
            nodes=case.graph.nodes.take(order),
            features=case.graph.features.take(order),
            targets=case.targets,
            num_layers=model.num_layers,
        )
        for block in case.per_layer
    ]
    # a batch has one block for all layers: where a case has one for each, each layer's is that of a batch of its own
    blocks = tuple(batch.blocks[layer] for layer, batch in enumerate(batches))
    batch = replace(batches[0], blocks=blocks)
    return Ran(clusterbatch.forward(model, batch), model.embedding(minibatch.layer_outputs(model, batch)))


def _on_slices(model, case):
    """GraphInfer in memory, over one to four partitions, which meet only in the packed source terms."""
    layer = _layer if model.relations(0).only is not None else _typed_layer
    rng = np.random.default_rng(case.seed)
    owner = rng.integers(0, rng.integers(1, 5), len(case.graph.nodes))
    partitions = [np.flatnonzero(owner == part) for part in np.unique(owner)]
    rows = [
        sliced.encode_slice(model, case.graph.features.take(nodes), case.graph.nodes.take(nodes))
        for nodes in partitions
    ]
    outputs = [[] for _ in partitions]
    for index in range(model.num_layers):
        rows = layer(model, case, index, rows, partitions)
        for part, given in enumerate(rows):
            outputs[part].append(given)
    # Position of each target among the partitions' nodes, laid end to end.
    place = np.argsort(np.concatenate(partitions))[case.targets]
    logits = [sliced.prediction_slice(model, _only(model.head_layers, out)) for out in outputs]
    embedding = [sliced.embedding_slice(model, _only(model.embedding_layers, out)) for out in outputs]
    return Ran(*(torch.from_numpy(np.concatenate(rows)[place]) for rows in (logits, embedding)))


def _layer(model, case, index, rows, partitions):
    layout = plans(model, index)[0].source
    terms = [
        sliced.term_slice(model, index, h=h, nodes=case.graph.nodes.take(nodes))
        for h, nodes in zip(rows, partitions, strict=True)
    ]
    sent = np.zeros((len(case.graph.nodes), layout.width), np.float32)
    for nodes, own in zip(partitions, terms, strict=True):
        sent[nodes] = layout.pack(own.source)
    given = []
    for own, nodes in zip(terms, partitions, strict=True):
        block, needed = rows_of(case.per_layer[index], nodes)
        received = layout.unpack(sent[needed])
        given.append(sliced.layer_slice(model, index, own=own.target, source=received, block=block))
    return given


def _typed_layer(model, case, index, rows, partitions):
    """Each relation's terms of its sources, then all relations of a partition's targets."""
    schema, types = model.inputs.schema, types_of(case.graph.nodes)
    layouts = [
        each.source
        for each in plan_layer(model, index, EdgeColumns(attribute_width=model.inputs.attribute_width)).relations
    ]
    # what no owner sends must not be read
    sent = [np.full((len(types), layout.width), np.nan, np.float32) for layout in layouts]
    for number, source_type in enumerate(schema.source_types):
        for h, nodes in zip(rows, partitions, strict=True):
            own = types[nodes] == source_type
            degrees = case.graph.nodes.take(nodes[own])
            terms = sliced.term_slice(model, index, number, h=h[own], nodes=degrees)
            sent[number][nodes[own]] = layouts[number].pack(terms.source)
    given = []
    for h, nodes in zip(rows, partitions, strict=True):
        block, needed = apart(case.per_layer[index], nodes)
        parts = relation_blocks(block, types[needed], schema)

        def gather(number, own, parts=parts, needed=needed):
            part, layout = parts[number], layouts[number]
            # packed terms of the relation's targets, then of the others that its edges read
            received = sent[number][needed[part.sources[part.block.num_targets :]]]
            rows = np.concatenate([layout.pack(own.source), received])
            return sliced.Gathered(layout.unpack(rows), part.block)

        degrees = case.graph.nodes.take(nodes)
        given.append(sliced.relations_slice(model, index, h=h, nodes=degrees, gather=gather))
    return given


def _only(indices, outputs):
    return [output if index in indices else None for index, output in enumerate(outputs)]


def _on_ranks(model, case):
    """The whole graph divided among one, two or four ranks, by a kind of partitioning."""
    size, kind = (1, 2, 4)[case.seed % 3], list(KINDS)[case.seed // 3 % len(KINDS)]
    of = divided(case.graph, case.per_layer, case.targets, size=size, seed=case.seed, kind=kind)
    return Ran(*outputs_on_ranks(model, of, size=size))


_OPEN: list[Scratch] = []


@contextmanager
def closing_streams() -> Iterator[None]:
    """Close the files of the graphs that were streamed in the block, whose backward passes are in it too."""
    try:
        yield
    finally:
        while _OPEN:
            _OPEN.pop().close()


@contextmanager
def ran_on(execution: str, model: Any, case: Case) -> Iterator[Ran]:
    """Run a case on an execution; what it holds open is closed after the block, which calls backward in it."""
    with closing_streams():
        yield ADAPTERS[execution](model, case)


def on_stream(model, case, *, folder=TEMPORARY, brought=None):
    """Chunks of one to three intervals in files, cut into pieces of few edges, and of leaves in few rows.

    Where nothing is drawn and edges have no leaves, on one to four ranks, of as many intervals each. brought: gives the
    graph that the model computes on. Call it within `closing_streams`.
    """
    number = np.random.default_rng(case.seed).permutation(len(case.graph.nodes))
    places = np.argsort(number)[case.targets]
    order = np.sort(places)
    size = 1 if model.training or case.graph.adjacency.edges.leaves is not None else 1 + case.seed % 4

    lie: list[np.ndarray] = []  # the rows of the targets, the same on all ranks

    def run(exchange=None):
        typed, leaves = model.inputs.typed, model.inputs.leaves_of_relations
        graph = filed(folder, case, number, exchange, targets=order, typed=typed, leaves=leaves)
        rows = graph.numbering.rows_of(order)
        lie.append(rows)
        _OPEN.append(graph.scratch)
        graph = graph.written()
        graph = brought(graph) if brought else graph.pruned
        if exchange is not None:
            return outputs_of(model, graph, targets_of(graph, np.sort(rows)))
        return outputs_of(model, graph, np.sort(rows))

    if size == 1:
        logits, embedding = run()
    elif torch.is_grad_enabled():
        logits, embedding = OnRanks.apply(run, size, *model.parameters())
    else:
        logits, embedding = (torch.cat(column) for column in zip(*on_ranks(size, run), strict=True))
    back = np.argsort(np.argsort(lie[0]))[np.searchsorted(order, places)]
    return Ran(logits[back], embedding[back])


ADAPTERS = {
    "reference": _on_reference,
    "minibatch": _on_minibatch,
    "clusterbatch": _on_clusterbatch,
    "globalbatch": _on_ranks,
    "streamed": on_stream,
    "sliced": _on_slices,
}
