"""A small run with every piece in place; a test replaces the piece it is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gnnflow.graph.facts import RowCounts
from gnnflow.report import (
    BlowUp,
    EmbeddingSample,
    GraphSummary,
    Parity,
    PredictionSample,
    ReportInputs,
    RoundRow,
    StageRow,
)

MakeInputs = Callable[..., ReportInputs]


def _predictions() -> PredictionSample:
    """30 targets of three classes: class 0 always right, 4 of class 1 taken for 2, 1 of class 2 taken for 0."""
    labels = np.repeat([0, 1, 2], 10)
    guesses = labels.copy()
    guesses[10:14] = 2
    guesses[20] = 0
    return PredictionSample(labels, np.eye(3)[guesses] * 0.7 + 0.1)


def _embeddings() -> EmbeddingSample:
    draw = np.random.default_rng(3)
    labels = np.repeat([0, 1, 2], 14)
    rows = np.eye(3, 6)[labels] * 8 + draw.normal(size=(42, 6))
    return EmbeddingSample(rows.astype(np.float32), labels)


def _curves() -> list[dict[str, float]]:
    return [
        {
            "epoch": epoch,
            "train_loss": 2.0 / epoch,
            "valid_loss": 2.2 / epoch,
            "valid_accuracy": 0.9 - 0.01 * abs(epoch - 7),
            "seconds": 0.25,
        }
        for epoch in range(1, 11)
    ]


def profile(**changes: float) -> dict[str, float]:
    """Return an epoch of a quarter second in which the reader waits for the trainer."""
    seconds = {"wait": 0.01, "forward": 0.08, "backward": 0.12, "update": 0.03}
    seconds |= {"read": 0.02, "decode": 0.03, "build": 0.06, "sums": 0.04, "reader_wait": 0.1}
    return {"seconds": 0.25, **{f"{part}_seconds": value for part, value in (seconds | changes).items()}}


def healthy() -> ReportInputs:
    """Return a run with nothing missing and nothing to advise."""
    stages = [
        StageRow("ingest", 1.5, reused=True, digest="a" * 64, counts={"nodes": 100, "edges": 600}),
        StageRow("flat", 2.25, digest="b" * 64, rounds=[RoundRow("frontier", 0.1, 0.9, 4)]),
        StageRow("train", 4.0, digest="c" * 64),
        StageRow("infer", 3.5, digest="d" * 64, rounds=[RoundRow("slice", 0.2, 1.0, 4)]),
    ]
    graph = GraphSummary(
        num_nodes=100,
        num_edges=600,
        feature_width=32,
        num_classes=3,
        split_counts={"train": 40, "valid": 30, "test": 30},
        in_degree_histogram=[(0, 1, 4), (1, 2, 20), (2, 4, 40), (4, 8, 30), (8, 16, 6)],
        hub_threshold=10_000,
    )
    return ReportInputs(
        name="tiny-gcn",
        run_uri="memory://runs/tiny-gcn/0123",
        config_yaml="name: tiny-gcn\nseed: 0\n",
        metrics={"test.accuracy": 0.8333, "valid.accuracy": 0.9, "train.accuracy": 0.95, "infer.seconds": 3.5},
        stages=stages,
        graph=graph,
        metric="accuracy",
        blow_up=BlowUp(1_000_000, 4_200_000, 4.2, "shared", 42_000.0),
        curves=_curves(),
        profiles=[profile()],
        best_epoch=7,
        baseline={"test.accuracy": 0.6, "valid.accuracy": 0.65},
        predictions=_predictions(),
        predictions_uri="memory://runs/tiny-gcn/0123/predictions",
        class_names=("Theory", "Rules", "Networks"),
        embeddings=_embeddings(),
        parity=Parity(samples=64, max_difference=3e-7, limit=1e-4),
        tables={"nodes": RowCounts(9, 9, 0), "edges": RowCounts(9, 9, 0)},
        versions={"gnnflow": "0.1.0", "torch": "2.9.1"},
    )


@pytest.fixture(scope="session")
def make_inputs() -> MakeInputs:
    def make(**changes: Any) -> ReportInputs:
        return dataclasses.replace(healthy(), **changes)

    return make
