"""Partial states in the place of rows, and pieces merged one by one, give what one block of rows gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gnnflow.infer import choice
from gnnflow.infer.choice import Exchange, LayerBytes, PairCounts, choose, takes_pieces
from gnnflow.infer.run import run_rounds
from gnnflow.mapreduce.rounds import RoundRunner
from gnnflow.mapreduce.schedulers import Synchronous
from gnnflow.storage.columns import to_matrix
from tests.contracts.test_graphinfer import MODELS, SAMPLINGS, TOLERANCE, predictions, prepare, reference, stored

if TYPE_CHECKING:
    from pathlib import Path


TAKE_STATES = ["gcn", "sage mean", "sage max", "gin", "norm and residual", "source message"]
READ_TARGETS = ["gat_e", "gat", "message layer", "jumping head"]
MODELS_HERE: dict[str, dict[str, Any]] = {
    **MODELS,
    "source message": {"kind": "tests.contracts.own_layers:Squared", "head": "linear"},
}
WAYS = {
    "states": Exchange(sending="states", overlap="no piece", mapped=False),
    "pieces": Exchange(sending="rows", overlap="every piece", mapped=False),
    "both": Exchange(sending="states", overlap="every piece", mapped=False),
}


CASES = [(model, way, "widening") for model in TAKE_STATES for way in WAYS]
CASES += [("sage mean", "both", sampling) for sampling in ("whole", "weighted and widening", "top_k")]
CASES += [(model, way, "weighted") for model in READ_TARGETS for way in WAYS]
CASES += [("gat", "both", sampling) for sampling in ("whole", "widening", "top_k")] + [
    ("median layer", "pieces", "whole")
]


@pytest.mark.table(7)
@pytest.mark.parametrize(("model", "way", "sampling"), CASES)
def test_either_choice_equals_reference(tmp_path: Path, model: str, way: str, sampling: str) -> None:
    graph = stored("graph")
    job = prepare(graph, tmp_path, MODELS_HERE[model], SAMPLINGS[sampling])
    table = predictions(replace(job, exchange=WAYS[way]), tmp_path)
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)).max() < TOLERANCE


@pytest.mark.table(4)
@pytest.mark.parametrize("model", ["norm and residual", "gat"])
@pytest.mark.parametrize("way", WAYS)
def test_a_pruned_layer_takes_either_choice(tmp_path: Path, model: str, way: str) -> None:
    graph = stored("graph")
    job = prepare(graph, tmp_path, MODELS[model], SAMPLINGS["widening"], targets=(2,), embeddings=True)
    table = predictions(replace(job, exchange=WAYS[way]), tmp_path)
    rows = np.flatnonzero(graph.nodes["split"].to_numpy() == 2)
    assert np.abs(to_matrix(table["probabilities"]) - reference(graph, job)[rows]).max() < TOLERANCE


@pytest.mark.parametrize("model", ["gcn", "gat", "median layer"])
def test_only_layers_whose_states_merge_send_them(tmp_path: Path, model: str) -> None:
    job = prepare(stored("graph"), tmp_path, MODELS[model], SAMPLINGS["whole"])
    job = replace(job, exchange=WAYS["states"])
    sent = run_rounds(job, RoundRunner(str(tmp_path / "work"), Synchronous())).sent
    assert (sent.sends, sent.as_states) == (12, 0 if model == "median layer" else 12)
    left = [list((tmp_path / "work").glob(f"*/{name}_*")) for name in ("state", "edges", "kept", "target", "targets")]
    assert not any(left), "what no later round reads is deleted"


def counts(sources: int, targets: int, edges: int) -> PairCounts:
    return PairCounts(*(np.array([number]) for number in (sources, targets, edges)))


@pytest.mark.parametrize(
    ("pair", "as_states"),
    [
        (counts(100_000, 10_000, 120_000), [True, True]),  # many sources of few targets
        (counts(100_000, 99_000, 120_000), [False, False]),  # the edges cost more than the states save
        (counts(100_000, 10_000, 4_000_000), [False, False]),  # so many edges that rows are fewer bytes
        (counts(1_000, 100, 1_200), [False, False]),  # too little to be worth anything
        (counts(100_000, 40_000, 120_000), [True, False]),  # the second layer's states are wider than its rows
        (counts(0, 0, 0), [False, False]),
    ],
)
def test_the_choice_is_that_of_fewer_bytes(pair: PairCounts, as_states: list[bool]) -> None:
    layers = [LayerBytes(64, 64, merges=True), LayerBytes(32, 96, merges=True)]
    chosen = choose(pair, layers, edge_bytes=4.125, sending="fewest bytes")
    assert chosen.as_states[:, 0].tolist() == as_states
    rows, states = pair.sources[0] * np.array([64, 32]), pair.targets[0] * np.array([64, 96])
    sent = np.where(as_states, states, rows).sum() + (any(as_states) and np.ceil(pair.edges[0] * 4.125))
    assert chosen.saved == rows.sum() - sent
    assert chosen.saved == 0 or chosen.saved >= choice.LEAST_SAVED_BYTES


@pytest.mark.parametrize(("num_partitions", "taken"), [(2, False), (3, True), (16, True)])
def test_rows_that_are_kept_for_terms_of_targets_count_once_for_all_partitions(
    num_partitions: int, *, taken: bool
) -> None:
    pair, layer = counts(100_000, 1_000, 120_000), LayerBytes(64, 72, merges=True, read=8)
    chosen = choose(pair, [layer], edge_bytes=4.125, sending="fewest bytes", num_partitions=num_partitions)
    assert chosen.as_states.item() is taken
    assert chosen.state_bytes.item() == 100_000 * 64 // (num_partitions - 1) + 1_000 * 80


@pytest.mark.parametrize(
    ("edges", "merges", "taken"), [(4_000_000, True, True), (4_000_000, False, False), (500_000, True, False)]
)
def test_pieces_are_merged_one_by_one_where_they_are_large_and_merges_are_few(
    edges: int, taken: bool, *, merges: bool
) -> None:
    pair = PairCounts(np.array([0, 3_000_000]), np.array([0, 300_000]), np.array([0, edges]))
    layer, none = LayerBytes(64, 64, merges=merges), np.zeros(2, bool)
    assert takes_pieces(pair, layer, as_states=none, own=0, overlap="large pieces") is taken
    small = replace(pair, sources=pair.sources // 100)
    assert not takes_pieces(small, layer, as_states=none, own=0, overlap="large pieces")
