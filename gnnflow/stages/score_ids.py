"""Scores some nodes with the model in service: their neighbourhoods are cut, and nothing else is computed.

GraphFlat cuts the k-hop neighbourhoods of these nodes, with the sampling and the seed of training, and the mini-batch
execution runs on them. Every scoring of all nodes is certified against this path (`stages/infer.py`), so both give the
same scores to rounding. Nothing is kept: the answer is a table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.errors import ConfigError, ScoringError
from gnnflow.graph.labels import metric_text
from gnnflow.neighbors.selected import Neighbors
from gnnflow.stages.base import StageResult, neighbors_of
from gnnflow.stages.neighborhoods import AT_ONCE, RunGraph
from gnnflow.stages.score import in_service, not_published, prepare, to_score
from gnnflow.storage.columns import from_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.layers.model import Model
    from gnnflow.stages.base import StageContext

_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class SomeScores(StageResult):
    """Predictions of the model in service for some nodes, in the order asked: too few for metrics or drift."""

    name: str
    version: int
    predictions: pa.Table
    metrics: dict[str, float] = field(default_factory=dict)
    drift: None = None
    report: str = ""

    def lines(self) -> Iterator[str]:
        """Yield a table: the names of columns, and each node's predictions."""
        rows = [self.predictions.column_names, *(map(_cell, row.values()) for row in self.predictions.to_pylist())]
        columns = [[*column] for column in zip(*rows, strict=True)]
        widths = [max(map(len, column)) for column in columns]
        for row in zip(*columns, strict=True):
            yield "  ".join(map(str.ljust, row, widths)).rstrip()

    def summary(self) -> dict[str, Any]:
        """Return the version that scored, and its predictions as rows."""
        scored = {"name": self.name, "version": self.version, "predictions": self.predictions.to_pylist()}
        return {**super().summary(), **scored, "rows_out": self.predictions.num_rows}


def score_ids(context: StageContext, ids: Sequence[Any]) -> SomeScores:
    """Return the champion's predictions for nodes of the target type. A repeated id counts once.

    Raises RegistryError if nothing is in service, or the champion cannot read this graph; TableError for ids that the
    tables do not have; ConfigError where the targets are edges, or of two types.
    """
    from gnnflow.infer.known import columns_of_targets
    from gnnflow.infer.predictions import prediction_columns, scores_of
    from gnnflow.layers.saved import load_model, read_decision

    begin = time.monotonic()
    if not len(ids):
        raise ConfigError("no ids are given", where="ids", fix="Give ids of the node table; None scores all.")
    context = to_score(context)
    _refuse_targets(context)
    name, version = in_service(context.config)
    if version is None:
        raise not_published(name)
    prepared = prepare(context, name, version)
    theirs, learned = prepared.context, prepared.learned
    neighbors = neighbors_of(theirs)
    graph = RunGraph(theirs.config, Neighbors(neighbors.store) if theirs.config.infer.sampling == "none" else neighbors)
    asked = list(dict.fromkeys(ids))
    targets = graph.find(asked)
    logits, embeddings = _outputs(load_model(version.uri, read=version.read), graph, targets)
    _check_finite(np.concatenate([logits, embeddings], 1), asked)
    import torch

    scores = scores_of(torch.from_numpy(logits), learned.label_kind)
    decision = read_decision(version.uri, read=version.read)
    columns = prediction_columns(scores, learned.label_kind, learned.class_names, decision)
    known = {} if learned.label_kind == "link" else columns_of_targets(graph.neighbors.store, targets)
    table = pa.table({"id": graph.read_ids(asked), **known, **columns})
    if theirs.config.infer.embeddings:
        table = table.append_column("embedding", from_matrix(embeddings))
    seconds = time.monotonic() - begin
    return SomeScores(stage="score", seconds=seconds, name=name, version=version.version, predictions=table)


def _refuse_targets(context: StageContext) -> None:
    """Raise ConfigError where ids do not name the targets."""
    config = context.config
    if config.task.kind == "edge" or len(config.graph.target_types) > 1:
        targets = "edges" if config.task.kind == "edge" else "nodes of two types"
        raise ConfigError(
            f"ids name nodes of one type, and the targets of this model are {targets}",
            where="ids",
            fix="Score all of them, and filter the predictions.",
        )


def _outputs(model: Model, graph: RunGraph, targets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the logits [T, C] and the embeddings [T, W] of nodes, given by distinct dense ids."""
    import torch

    from gnnflow.executions.minibatch import layer_outputs
    from gnnflow.graphfeature.blocks import build_minibatch

    logits: list[FloatArray] = []
    embeddings: list[FloatArray] = []
    with torch.no_grad():
        for start in range(0, len(targets), AT_ONCE):
            whole, _ = graph.cut(targets[start : start + AT_ONCE])
            for first in range(0, len(whole.roots), _BATCH):
                rows = whole.roots[first : first + _BATCH]
                sampling = graph.neighbors.sampling
                batch = build_minibatch(whole, rows, sampling=sampling, num_layers=model.num_layers)
                outputs = layer_outputs(model, batch)
                logits.append(model.predict(outputs).numpy())
                embeddings.append(model.embedding(outputs).numpy())
    return np.concatenate(logits), np.concatenate(embeddings)


def _check_finite(computed: FloatArray, asked: Sequence[Any]) -> None:
    broken = np.flatnonzero(~np.isfinite(computed).all(axis=1))
    if len(broken):
        raise ScoringError(
            f"the scores of {len(broken):,} of {len(asked):,} targets are not finite, for example of node "
            f"{asked[int(broken[0])]}",
            where="ids",
            fix="Look for extreme features or edge weights at these nodes and their in-neighbours.",
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return "[" + ", ".join(map(_cell, value)) + "]"
    return metric_text(value) if isinstance(value, float) else str(value)
