"""How the contract suite drives each execution: one function per row of `EXECUTIONS`, from a case to the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions import minibatch, reference, sliced
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.batch import Block
from tests.contracts.in_memory import mini_batch, rows_of


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


def _on_slices(model, case):
    """GraphInfer in memory, over one to four partitions, which meet only in the packed source terms."""
    rng = np.random.default_rng(case.seed)
    owner = rng.integers(0, rng.integers(1, 5), len(case.graph.nodes))
    partitions = [np.flatnonzero(owner == part) for part in np.unique(owner)]
    rows = [sliced.encode_slice(model, case.graph.features.take(nodes)) for nodes in partitions]
    outputs = [[] for _ in partitions]
    for index in range(model.num_layers):
        layout = sliced.term_layouts(model, index).source
        terms = [
            sliced.term_slice(model, index, h=h, nodes=case.graph.nodes.take(nodes))
            for h, nodes in zip(rows, partitions, strict=True)
        ]
        sent = np.zeros((len(owner), layout.width), np.float32)
        for nodes, own in zip(partitions, terms, strict=True):
            sent[nodes] = layout.pack(own.source)
        for part, nodes in enumerate(partitions):
            block, needed = rows_of(case.per_layer[index], nodes)
            received = layout.unpack(sent[needed])
            rows[part] = sliced.layer_slice(model, index, own=terms[part].target, source=received, block=block)
            outputs[part].append(rows[part])
    # Position of each target among the partitions' nodes, laid end to end.
    place = np.argsort(np.concatenate(partitions))[case.targets]
    logits = [sliced.prediction_slice(model, _only(model.head_layers, out)) for out in outputs]
    embedding = [sliced.embedding_slice(model, _only(model.embedding_layers, out)) for out in outputs]
    return Ran(*(torch.from_numpy(np.concatenate(rows)[place]) for rows in (logits, embedding)))


def _only(indices, outputs):
    return [output if index in indices else None for index, output in enumerate(outputs)]


ADAPTERS = {"reference": _on_reference, "minibatch": _on_minibatch, "sliced": _on_slices}
