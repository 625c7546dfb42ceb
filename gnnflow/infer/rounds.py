"""What slice k does to one partition: receive source rows, compute, send the next layer's source rows.

Received rows arrive in the order they were asked for, ascending dense id, so an edge finds its source by binary search
and no ids are sent. Slice 0 encodes features; slice K, the last, also scores and writes predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.executions.sliced import (
    TermLayout,
    embedding_slice,
    encode_slice,
    layer_slice,
    prediction_slice,
    term_layout,
    term_slice,
)
from gnnflow.graph.block import Block, NodeColumns, distinct, offsets_of
from gnnflow.infer.need import rows_of_layer, sends_of
from gnnflow.infer.task import one_thread, scores_of
from gnnflow.mapreduce.exchange import Emit
from gnnflow.mapreduce.rounds import TaskOutput
from gnnflow.selection.rounds import kept_edges, prefix_rows
from gnnflow.storage.columns import combine, from_matrix, take_rows, to_matrix, to_numpy
from gnnflow.storage.graph_store import DEGREE_COLUMNS, features_of, node_columns_of
from gnnflow.storage.tables import commit_table

if TYPE_CHECKING:
    from gnnflow.graph.block import FloatArray, IntArray
    from gnnflow.infer.task import InferTask
    from gnnflow.layers.model import Model
    from gnnflow.mapreduce.exchange import Inbox

_LIKELY = 0.5


def encode(index: int, inbox: Inbox, *, task: InferTask) -> TaskOutput:
    """Slice 0: encode the features of every needed row and send the first layer's source rows."""
    store = task.selection.store
    rows = rows_of_layer(index, inbox, task, 0)
    table = take_rows(store.nodes(index, store.feature_columns).combine_chunks(), rows)
    with one_thread():
        model = task.load_model()
        h = encode_slice(model, features_of(table, store.feature_width))
        emits = _send(index, inbox, task, model, layer=1, h=h, rows=rows, outputs={})
    return TaskOutput(emits=emits, counts={"rows": len(rows)})


def compute(index: int, inbox: Inbox, *, task: InferTask, layer: int) -> TaskOutput:
    """Slice `layer` of an inner layer: compute its rows and send the next layer's source rows."""
    with one_thread():
        model = task.load_model()
        rows, h, outputs = _layer(index, inbox, task, model, layer)
        emits = _send(index, inbox, task, model, layer=layer + 1, h=h, rows=rows, outputs={**outputs, layer - 1: h})
    return TaskOutput(emits=emits, counts={"rows": len(rows)})


def score(index: int, inbox: Inbox, *, task: InferTask, parity: tuple[int, ...]) -> TaskOutput:
    """Slice K: the last layer and the prediction slice; commit predictions and report the parity targets' scores."""
    with one_thread():
        model = task.load_model()
        rows, h, carried = _layer(index, inbox, task, model, task.num_layers)
        outputs = [{**carried, task.num_layers - 1: h}.get(number) for number in range(task.num_layers)]
        scores = _scores(model, outputs, task)
        embedding = embedding_slice(model, outputs) if task.embeddings else None
    ids = combine(task.selection.store.nodes(index, ["id"])["id"]).take(pa.array(rows))
    table = pa.table({"id": ids, **_columns(scores, task.task)})
    if embedding is not None:
        table = table.append_column("embedding", from_matrix(embedding))
    entry = commit_table(task.artifact, f"predictions/part-{index:05d}.parquet", table)
    sampled = np.flatnonzero(np.isin(rows + task.selection.store.book.start(index), parity))
    nodes = (rows[sampled] + task.selection.store.book.start(index)).tolist()
    found = dict(zip(map(str, nodes), scores[sampled].tolist(), strict=True))
    return TaskOutput(files=(entry,), counts={"rows": len(rows), "parity": found})


def _scores(model: Model, outputs: list[FloatArray | None], task: InferTask) -> FloatArray:
    import torch

    scores: FloatArray = scores_of(torch.from_numpy(prediction_slice(model, outputs)), task.task)
    return scores


def _columns(scores: FloatArray, task: str) -> dict[str, Any]:
    if task == "regression":
        return {"value": scores[:, 0]}
    if task == "multi":
        return {"prediction": from_matrix((scores >= _LIKELY).astype(np.int8)), "probabilities": from_matrix(scores)}
    return {
        "prediction": scores.argmax(1) if len(scores) else np.zeros(0, np.int64),
        "probabilities": from_matrix(scores),
    }


def _layer(
    index: int, inbox: Inbox, task: InferTask, model: Model, layer: int
) -> tuple[IntArray, FloatArray, dict[int, FloatArray]]:
    """Return (local rows, layer `layer`'s output, outputs carried from earlier layers) of this partition."""
    rows = rows_of_layer(index, inbox, task, layer)
    own, received = inbox.read(f"own_{layer}"), inbox.read(f"source_{layer}")
    source = np.concatenate([to_matrix(own["source"]), to_matrix(received["row"])])
    block = _block(index, inbox, task, rows, layer)
    h = layer_slice(
        model,
        layer - 1,
        own=_target_layout(model, layer - 1).unpack(to_matrix(own["target"])),
        source=term_layout(model, layer - 1).unpack(source),
        block=block,
    )
    carried = {number: to_matrix(own[f"output_{number}"]) for number in _carried(model, layer, task)}
    return rows, h, carried


def _block(index: int, inbox: Inbox, task: InferTask, rows: IntArray, layer: int) -> Block:
    edges = kept_edges(index, inbox, task.selection)
    fanout = task.fanout(layer)
    picked, counts = prefix_rows(edges, rows, np.zeros(len(rows), np.int64), fanout)
    src = edges.src[picked]
    asked = distinct(src)
    scale = None
    if fanout is not None:
        in_degree = to_numpy(task.selection.store.nodes(index, ["in_degree"])["in_degree"])[rows]
        scale = np.where(counts > 0, in_degree / np.maximum(counts, 1), 1).astype(np.float32)
    return Block(
        num_targets=len(rows),
        num_sources=len(rows) + len(asked),
        offsets=offsets_of(counts),
        sources=len(rows) + np.searchsorted(asked, src),
        edge_weight=None if edges.weight is None else edges.weight[picked],
        edge_attributes=None if edges.attributes is None else edges.attributes[picked],
        sample_scale=scale,
    )


def _send(
    index: int,
    inbox: Inbox,
    task: InferTask,
    model: Model,
    *,
    layer: int,
    h: FloatArray,
    rows: IntArray,
    outputs: dict[int, FloatArray],
) -> tuple[Emit, ...]:
    """Send layer `layer`'s source terms where they were asked for, and keep what its own targets need here."""
    table = take_rows(task.selection.store.nodes(index, DEGREE_COLUMNS).combine_chunks(), rows)
    terms = term_slice(model, layer - 1, h=h, nodes=node_columns_of(table))
    packed = term_layout(model, layer - 1).pack(terms.source)
    sends = sends_of(index, inbox, task, layer)
    needed = np.searchsorted(rows, rows_of_layer(index, inbox, task, layer))
    target = _target_layout(model, layer - 1).pack(terms.target)
    own = {"source": from_matrix(packed[needed]), "target": from_matrix(target[needed])}
    for number in _carried(model, layer, task):
        own[f"output_{number}"] = from_matrix(outputs[number][needed])
    sent = pa.table({"row": from_matrix(packed[np.searchsorted(rows, sends.rows)])})
    return (
        Emit(f"source_{layer}", sent, sends.destination),
        Emit(f"own_{layer}", pa.table(own), np.full(len(needed), index)),
    )


def _carried(model: Model, layer: int, task: InferTask) -> list[int]:
    """Return which layers' outputs (from 0), computed before layer `layer` (from 1), the end still needs."""
    wanted = set(model.head_layers) | (set(model.embedding_layers) if task.embeddings else set())
    return sorted(number for number in wanted if number < layer - 1)


def _target_layout(model: Model, number: int) -> TermLayout:
    none = np.zeros(0, np.int64)
    empty = NodeColumns(none, none, none.astype(np.float32))
    width = model.layer(number).in_width
    terms = term_slice(model, number, h=np.zeros((0, width), np.float32), nodes=empty).target
    names = tuple(sorted(terms))
    return TermLayout(names, tuple(tuple(terms[name].shape[1:]) for name in names))
