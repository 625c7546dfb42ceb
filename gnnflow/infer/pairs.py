"""Edges scored from the embeddings of their ends: rows are sent to the edges, and the decoder scores them there.

An edge is scored where it is stored, by the owner of its destination. Nodes are computed once, by the slices, whatever
number of edges end there; a node's embedding is sent once to each partition that has an edge of it.

Shapes: P edges, U distinct nodes that they end in, W width of an embedding, C outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from gnnflow.graph.arrays import distinct
from gnnflow.infer.known import known_columns
from gnnflow.infer.predictions import commit_predictions, count_broken, prediction_columns, scores_of
from gnnflow.kernels.device import compute_threads
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import as_ids, combine, take_rows, to_matrix, to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_SLICE = 1 << 16  # edges scored at a time


def ask_ends(index: int, inbox: Inbox, *, job: InferJob) -> TaskOutput:
    """Ask the owners for the ends of the edges that lead to a partition and are to be scored."""
    edges = _edges(index, job, ["src", "dst", "split"])
    # both ends of all edges, each once [U]
    nodes = distinct(np.concatenate([to_numpy(edges["src"]), to_numpy(edges["dst"])]))
    asked = pa.table({"node": nodes, "asker": np.full(len(nodes), index)})
    return TaskOutput(emits=(Emit("asked", asked, job.neighbors.store.book.owner(nodes)),))


def send_ends(index: int, inbox: Inbox, table: pa.Table, *, rows: IntArray, job: InferJob) -> Emit:
    """Return a partition's nodes (id, embedding) on their way to who asked. rows: their local rows, ascending."""
    # dense ids of the rows, and the row that each request is for
    nodes = rows + job.neighbors.store.book.start(index)
    asked = inbox.read("asked")
    numbered = table.append_column("node", pa.array(nodes))
    return Emit("ends", numbered, to_numpy(asked["asker"]), picked=np.searchsorted(nodes, to_numpy(asked["node"])))


def score_edges(index: int, inbox: Inbox, *, job: InferJob) -> TaskOutput:
    """Score a partition's edges and commit their predictions, in the order in which the store has the edges."""
    edges = _edges(index, job, ["src", "dst", "split", *job.neighbors.store.pair_columns])
    ends = inbox.read("ends").combine_chunks()
    # received rows in the order of their dense ids [U]
    ends = take_rows(ends, np.argsort(to_numpy(ends["node"]), kind="stable"))
    # rows of both ends of each edge among the nodes received [P], [P]
    rows = [np.searchsorted(to_numpy(ends["node"]), to_numpy(edges[name])) for name in ("src", "dst")]
    attributes = to_matrix(edges["attributes"]) if "attributes" in edges.column_names else None
    # the decoder's outputs [P, C]
    logits = pair_logits(job.load_model(), to_matrix(ends["embedding"]), rows, attributes)
    named = zip(rows, job.neighbors.store.facts.id_types_of_pairs, strict=True)
    ids = [as_ids(combine(ends["id"]).take(pa.array(each)), kind) for each, kind in named]
    if broken := count_broken(logits, ids):
        return TaskOutput(counts=broken)
    scores = scores_of(torch.from_numpy(logits), job.label_kind)
    columns = prediction_columns(scores, job.label_kind, job.class_names, job.decision)
    known = known_columns(edges, np.arange(edges.num_rows), job.neighbors.store.facts)
    table = pa.table({"src": ids[0], "dst": ids[1], **known, **columns})
    return TaskOutput(files=(commit_predictions(index, table, job.artifact),), counts={"rows": len(logits)})


def scored_edges(pairs: pa.Table, targets: str | tuple[int, ...]) -> IntArray:
    """Return the positions of the edges that are scored, in stored order. pairs: with their split."""
    return np.arange(pairs.num_rows) if targets == "all" else np.flatnonzero(np.isin(to_numpy(pairs["split"]), targets))


def _edges(index: int, job: InferJob, columns: Sequence[str]) -> pa.Table:
    table = job.neighbors.store.pairs(index, columns)
    return take_rows(table.combine_chunks(), scored_edges(table, job.targets))


def pair_logits(
    model: Model, embeddings: FloatArray, rows: Sequence[IntArray], attributes: FloatArray | None = None
) -> FloatArray:
    """Return the decoder's outputs for each pair [P, C], so many at a time.

    rows: of both ends among the embeddings [U, W], [P] each.
    """
    decoder = model.inputs.decoder
    assert decoder is not None, "a model of edges has a decoder"
    with compute_threads(1), torch.no_grad():
        held, logits = torch.from_numpy(embeddings), np.empty((len(rows[0]), decoder.num_outputs), np.float32)
        for start in range(0, len(logits), _SLICE):
            part = slice(start, start + _SLICE)
            # embeddings of both ends of some pairs [n, W], and their attributes
            source, target = (held[torch.from_numpy(each[part])] for each in rows)
            own = torch.from_numpy(attributes[part]) if attributes is not None and decoder.attribute_width else None
            logits[part] = model.score(source, target, own).numpy()
    return logits
