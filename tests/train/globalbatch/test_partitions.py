"""Stores of every kind of partition, shared by ranks: loss, weights after a step and outputs of the definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnflow.executions import reference
from gnnflow.executions.globalbatch import PlacedTensors
from gnnflow.executions.reference import WholeGraph
from gnnflow.graph.batch import Block
from gnnflow.train.globalbatch import open_source
from gnnflow.train.minibatch import hold_graph
from gnnflow.train.objective import Objective
from gnnflow.train.ranks.gradients import AllReduce
from gnnflow.train.updater import LocalUpdater
from tests.small_graphs import write_graph
from tests.train.globalbatch.stepping import fresh, opened
from tests.train.on_stores import config_of, job_of
from tests.train.ranks.together import together

PARTITIONS: dict[str, dict[str, Any]] = {
    "hash": {"kind": "hash"},
    "range": {"kind": "range"},
    "ldg": {"kind": "ldg"},
    "metis": {"kind": "metis"},
    "louvain": {"kind": "louvain"},
    "balanced": {"kind": "balanced"},
    "source": {"kind": "edge_1d", "by": "source"},
    "grid": {"kind": "vertex_cut"},
}
EXTRAS = {"metis": "pymetis", "louvain": "networkit"}
MODELS = {
    "plain": {"kind": "gat", "hidden": 8, "heads": 2, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0},
    "typed": {"kind": "sage", "hidden": 8, "layers": 2, "dropout": 0.0},
}


def step_and_outputs(source: Any, job: Any, updater_of: Any) -> Any:
    """Return the loss of a step, the weights after it, and what these say of two splits."""
    model = fresh(job)
    (step,) = source.steps(0, since=0)
    is_placed = isinstance(step.batch.tensors.layers[0], PlacedTensors)
    loss, count = Objective("single").loss(step.logits(model), step.labels)
    taken = updater_of(model).step(loss, num_targets=count, weight=float(count))
    outputs = {split: source.outputs(model, split) for split in ("train", "test")}
    held = {split: (each.targets, each.logits) for split, each in outputs.items()}
    return taken.mean, model.state_dict(), held, is_placed


@pytest.mark.table(22)
@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("kind", PARTITIONS)
def test_ranks_of_any_partitions_compute_the_plain_definition(
    tmp_path: Path, kind: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if which == "plain":  # where edges are placed elsewhere than at their targets, they are computed there
        monkeypatch.setattr("gnnflow.executions.globalbatch.batch.is_fewer_bytes", lambda *_, **__: True)
    if kind in EXTRAS:
        pytest.importorskip(EXTRAS[kind], reason=f"an extra: pip install 'gnnflow[{kind}]'")
    write_graph(tmp_path, num_nodes=90, num_edges=600, hub=3)
    sections = {"partition": PARTITIONS[kind], "model": MODELS[which], "graph": {"partitions": 4}}
    train = {"strategy": "global-batch", "optimizer": "sgd", "lr": 0.5, "epochs": 1}
    job = job_of(config_of(tmp_path, which, train=train, **sections))

    def on(group: Any) -> Any:
        with opened(open_source, job, group) as source:
            return step_and_outputs(
                source, job, lambda made: LocalUpdater(made, job.train, exchange=AllReduce(made, group, is_joint=True))
            )

    ran = {size: together(on, size) for size in (2, 4)}
    if which == "plain" and kind in {"source", "grid"}:
        first, again = ran[4][0][1], together(on, 4)[0][1]
        assert all(torch.equal(again[name], value) for name, value in first.items())
    held = hold_graph(job.neighbors).neighborhood
    graph, model = WholeGraph(Block(held.edges, held.num_nodes), held.degrees, held.features), fresh(job)
    targets = hold_graph(job.neighbors).splits["train"]
    loss, count = Objective("single").loss(reference.forward(model, graph)[targets.nodes], targets.labels)
    LocalUpdater(model, job.train).step(loss, num_targets=count, weight=float(count))
    with torch.no_grad():
        expected = reference.forward(model.eval(), graph).numpy()
    for mean, weights, outputs, is_placed in (found for each in ran.values() for found in each):
        assert is_placed == (which == "plain" and kind in {"source", "grid"})
        assert mean == pytest.approx(float(loss.detach()), rel=1e-5)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(weights[name], value, rtol=1e-4, atol=1e-5, msg=name)
        for nodes, logits in outputs.values():
            np.testing.assert_allclose(logits, expected[nodes], rtol=1e-4, atol=1e-5)
