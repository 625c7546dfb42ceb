"""Seconds of a layer's stages: where a pass is, forward and backward, and what waiting for other ranks takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.executions import globalbatch
from gnnflow.executions.row_exchange import OneRank
from gnnflow.executions.stages import UNTIMED, StageClock
from gnnflow.graph.run_facts import STAGE_PARTS
from tests.contracts.among_ranks import batch_of, divided
from tests.contracts.in_memory import GraphShape, whole_graph
from tests.contracts.in_process import on_ranks
from tests.contracts.test_executions import gradients, model_for
from tests.contracts.test_relations import model_for as typed_model_for
from tests.contracts.typed_graphs import SCHEMA, TypedShape, typed_graph

pytestmark = pytest.mark.usefixtures("one_thread")

SECONDS = 0.02
EDGES = tuple(map(tuple, np.random.default_rng(3).integers(0, 60, (500, 2)).tolist()))
SHAPE = GraphShape(60, EDGES, seed=1)


def typed_case():
    shape = TypedShape(SCHEMA, (9,) * SCHEMA.num_types, (40,) * SCHEMA.num_relations, seed=2)
    graph = typed_graph(shape)
    return graph, typed_model_for("gat sum", {"layers": 2}, shape).train(), np.arange(len(graph.nodes))


def case(layer: str):
    if layer == "typed":
        return typed_case()
    return whole_graph(SHAPE), model_for(layer, {"head": "linear", "layers": 3}, SHAPE).train(), np.arange(20)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("layer", ["gcn", "gat", "sage-max", "own-message", "typed"])
def test_the_stages_of_a_pass_are_no_longer_than_it_and_change_no_bit(layer: str, *, recompute: bool):
    graph, model, targets = case(layer)
    batch = batch_of(model, divided(graph, [graph.adjacency] * model.num_layers, targets, size=1, seed=0), OneRank())
    ran = []
    for stages in (UNTIMED, StageClock()):
        begin = time.perf_counter()
        torch.manual_seed(4)
        logits = globalbatch.forward(model, batch, OneRank(), recompute=recompute, stages=stages)
        found = gradients(model, logits, torch.ones_like(logits))
        ran.append([logits, *(each for each in found.values() if each is not None)])
        seconds = time.perf_counter() - begin
    assert all(torch.equal(one, two) for one, two in zip(*ran, strict=True))
    spent = stages.seconds()
    assert set(spent) <= {f"{stage}_seconds" for stage in STAGE_PARTS}
    assert min(spent[f"{stage}_seconds"] for stage in ("transform", "gather_sum", "apply")) > 0
    assert "mirrors_seconds" not in spent
    assert sum(spent.values()) < seconds


@dataclass
class Late:
    """An exchange whose rows take some time to come."""

    exchange: Any
    waits: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exchange, name)

    def begin(self, rows, **how):
        return Arriving(self, self.exchange.begin(rows, **how))


@dataclass
class Arriving:
    late: Late
    rows: Any

    def wait(self):
        self.late.waits += 1
        found = self.rows.wait()
        time.sleep(SECONDS)
        return found


@pytest.mark.table(4)
@pytest.mark.parametrize("layer", ["gcn", "gat", "own-median", "typed"])
def test_waiting_for_rows_of_other_ranks_is_counted_apart_in_both_directions(layer: str):
    graph, model, targets = case(layer)
    of = divided(graph, [graph.adjacency] * model.num_layers, targets, size=2, seed=2)

    def compute(exchange):
        late, clock = Late(exchange), StageClock()
        batch = batch_of(model, of, late)
        late.waits, begin = 0, time.perf_counter()
        logits = globalbatch.forward(model, batch, late, stages=clock)
        forth, waits = clock.seconds(), late.waits
        torch.autograd.grad(logits.sum(), list(model.parameters()), allow_unused=True)
        return forth, waits, clock.seconds(), late.waits, time.perf_counter() - begin

    for forth, waits, spent, all_waits, seconds in on_ranks(2, compute):
        assert waits >= model.num_layers  # as many as a layer has terms
        assert all_waits > waits
        assert forth["mirrors_seconds"] >= waits * SECONDS
        assert spent["mirrors_seconds"] >= all_waits * SECONDS
        assert sum(spent.values()) < seconds, "what is waited for is counted once"


def test_what_lies_between_two_passes_belongs_to_no_stage():
    graph, model, targets = case("gcn")
    batch = batch_of(model, divided(graph, [graph.adjacency] * 3, targets, size=1, seed=0), OneRank())
    clock, begin = StageClock(), time.perf_counter()
    for _ in range(2):
        logits = globalbatch.forward(model, batch, OneRank(), stages=clock)
        time.sleep(SECONDS)
        logits.sum().backward()
        time.sleep(SECONDS)
    assert sum(clock.seconds().values()) < time.perf_counter() - begin - 4 * SECONDS
