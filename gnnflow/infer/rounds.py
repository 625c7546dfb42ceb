"""Slice k on one partition: receive source rows, compute, send the next layer's source rows.

Received rows arrive in the order they were asked for, ascending dense id, so an edge finds its source by binary search
and no ids are sent. Slice 0 encodes features; slice K, the last, also scores and writes predictions. `parts.py`
computes a layer while rows arrive, `sending.py` sends what it gives run by run, as rows or states (`states.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from gnnflow.executions.sliced import embedding_slice, encode_slice, prediction_slice
from gnnflow.infer.known import node_columns
from gnnflow.infer.need import rows_by_type, rows_of_layer
from gnnflow.infer.pairs import send_ends
from gnnflow.infer.parts import compute_layer
from gnnflow.infer.predictions import commit_predictions, count_broken, prediction_columns, scores_of
from gnnflow.infer.sending import Sending
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.storage.columns import as_ids, combine, from_matrix
from gnnflow.storage.graph_store import read_features

if TYPE_CHECKING:
    from collections.abc import Generator

    from gnnflow.graph.arrays import IntArray
    from gnnflow.infer.job import InferJob
    from gnnflow.mapreduce.exchange import Emit, Inbox
    from gnnflow.mapreduce.mapped import Kept


def encode(index: int, inbox: Inbox, *, job: InferJob) -> TaskOutput:
    """Slice 0: encode the features of every needed row and send the first layer's source rows."""
    store = job.neighbors.store
    sending = Sending.of(index, inbox, job, layer=1)
    # local rows that the first layer reads [N], and their features
    rows = sending.rows
    features = read_features(store, {index: rows})
    # what nodes of types without features are encoded from
    nodes = store.degrees(index).take(rows) if None in store.facts.features_of_types else None

    def emits() -> Generator[Emit | Kept]:
        with job.computing(index) as model:
            h = encode_slice(model, features, nodes)
            yield from sending.emits(model, inbox, (h[run] for run in sending.runs), {})

    return _sent(job, emits(), rows)


def compute(index: int, inbox: Inbox, *, job: InferJob, layer: int) -> TaskOutput:
    """Slice `layer` of an inner layer: compute its rows and send the next layer's source rows."""
    rows = rows_of_layer(index, inbox, job, layer)

    def emits() -> Generator[Emit | Kept]:
        sending = Sending.of(index, inbox, job, layer=layer + 1, rows=rows)
        with job.computing(index) as model:
            h, carried = compute_layer(index, inbox, job, model, layer=layer, rows=rows, runs=sending.runs)
            yield from sending.emits(model, inbox, h, carried)

    return _sent(job, emits(), rows)


def _sent(job: InferJob, emits: Generator[Emit | Kept], rows: IntArray) -> TaskOutput:
    """Return a task's output: it sends while it computes; with overlap "nothing", after it has computed all."""
    counts = {"rows": len(rows)}
    if job.exchange.overlap == "nothing":
        return TaskOutput(emits=tuple(emits), counts=counts)
    return TaskOutput(coming=emits, counts=counts)


def score(index: int, inbox: Inbox, *, job: InferJob, parity: tuple[int, ...]) -> TaskOutput:
    """Slice K: the last layer and the prediction slice; commit predictions and report the parity targets' scores.

    Where edges are scored the predictions of nodes are embeddings, and go to the edges that end there.

    A partition with a row that is not finite commits nothing and counts such rows.
    """
    rows = rows_of_layer(index, inbox, job, job.num_layers)
    with job.computing(index) as model:
        run = slice(0, len(rows))
        (h,), carried = compute_layer(index, inbox, job, model, layer=job.num_layers, rows=rows, runs=[run])
        # output of each layer [T, W], None where no head reads it and it was not carried
        outputs = [{**carried, job.num_layers - 1: h}.get(number) for number in range(job.num_layers)]
        # Raw outputs: a probability of an infinite one would look like any other.
        logits = prediction_slice(model, outputs)
        scores = scores_of(torch.from_numpy(logits), job.row_kind)
        embedding = embedding_slice(model, outputs) if job.embeddings else None
    names = _names(index, job, rows)
    computed = logits if embedding is None else np.concatenate([logits, embedding], axis=1)
    if broken := count_broken(computed, [names["id"]]):
        return TaskOutput(counts=broken)
    decision = None if job.scores_edges else job.decision
    predicted = prediction_columns(scores, job.row_kind, job.class_names, decision)
    table = pa.table({**names, **node_columns(index, job, rows), **predicted})
    if embedding is not None:
        table = table.append_column("embedding", from_matrix(embedding))
    # which of the scored rows the parity certificate samples, and their dense ids
    sampled = np.flatnonzero(np.isin(rows + job.neighbors.store.book.start(index), parity))
    nodes = (rows[sampled] + job.neighbors.store.book.start(index)).tolist()
    found = dict(zip(map(str, nodes), scores[sampled].tolist(), strict=True))
    counts = {"rows": len(rows), "parity": found}
    if job.scores_edges:
        return TaskOutput(emits=(send_ends(index, inbox, table, rows=rows, job=job),), counts=counts)
    return TaskOutput(files=(commit_predictions(index, table, job.artifact),), counts=counts)


def _names(index: int, job: InferJob, rows: IntArray) -> dict[str, pa.Array]:
    """Return the users' ids of local rows of the targets; where these are of two types, also each one's type.

    Ids of two types of which one is text are text.
    """
    store = job.neighbors.store
    of_types = rows_by_type(rows, index, job)
    ids = [
        as_ids(combine(store.nodes(index, ["id"], node_type=kind)["id"]), store.facts.id_type_of_targets)
        for kind, _ in of_types
    ]
    # ids of the rows, one type after the other
    held = [each.take(pa.array(own)) for each, (_, own) in zip(ids, of_types, strict=True)]
    if len(of_types) == 1:
        return {"id": held[0]}
    types = [pa.repeat(pa.scalar(store.schema.types[kind]), len(own)) for kind, own in of_types]
    return {"type": pa.concat_arrays(types), "id": pa.concat_arrays(held)}
