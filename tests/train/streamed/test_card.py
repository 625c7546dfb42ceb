"""What a card copies from: the same graph as in files, here brought to the CPU. On a card: tests/cuda."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from gnnflow.graph.errors import TrainingError
from gnnflow.kernels.device import CPU
from gnnflow.train.streamed.budget import plan
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import Scratch, check_disk
from gnnflow.train.streamed.size import GraphSize
from gnnflow.train.streamed.widths import ON_CARD
from tests.contracts.adapters import Case, closing_streams, on_stream
from tests.contracts.in_memory import graph_shapes, sampled_blocks, whole_graph
from tests.contracts.test_executions import ARCHITECTURES, FEW, NO_EDGES, gradients, model_for, some_targets


def brought(graph):
    return graph.on_card(Card(CPU))


def in_files(graph):
    return graph


@pytest.mark.table(5)
@pytest.mark.parametrize("layer", ["gcn", "gat_e", "sage-max", "magnn", "ggcn"])
@FEW
@given(shape=graph_shapes(), architecture=ARCHITECTURES)
def test_chunks_written_for_a_card_give_the_bytes_of_those_read_from_files(layer, shape, architecture):
    graph, model = whole_graph(shape), model_for(layer, architecture, shape)
    blocks = sampled_blocks(graph, num_layers=model.num_layers, seed=shape.seed)
    case, found = Case(graph, blocks, some_targets(shape), shape.seed), []
    for keys in ({"brought": in_files}, {"brought": brought}, {"brought": brought, "folder": None}):
        with closing_streams():
            logits = on_stream(model, case, **keys).logits
            found.append([logits, *gradients(model, logits, torch.ones_like(logits)).values()])
    for ours in found[1:]:
        for one, other in zip(ours, found[0], strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("folder", [None, "a folder"])
def test_rows_are_read_as_they_were_written_last(folder, tmp_path):
    scratch, card = Scratch(folder and str(tmp_path)), Card(CPU)
    rows = scratch.rows((2, 3), 2)
    for start in (0.0, 10.0):
        for interval, size in enumerate((2, 3)):
            parts = torch.arange(2 * size) + start + 100 * interval
            rows.fill_by(interval, lambda into, parts=parts: card.sent([parts[:2], parts[2:].view(1, -1)], into))
    assert card.fetched(rows.lent(1)).tolist() == [110, 111, 112, 113, 114, 115]
    assert rows.read(0).tolist() == [10, 11, 12, 13]
    scratch.close()


def test_the_budget_of_a_card_leaves_out_what_the_machine_holds():
    model = model_for("gcn", {"head": "direct", "encoder": "none", "layers": 2}, NO_EDGES)
    size = GraphSize((2_000_000,), (40_000_000,), 1000, (64,), 0, (2_000_000, 40_000_000))
    with pytest.raises(TrainingError, match="reading a partition"):
        plan(model, size, budget=1 << 30)
    made = plan(model, size, budget=1 << 30, place=ON_CARD)
    assert made.num_bytes <= 1 << 30
    assert made.disk_bytes >= 2_000_000 * 64 * 4 + 40_000_000 * 5 * 4


def test_a_machine_without_the_memory_is_told_before_anything_is_written():
    with pytest.raises(TrainingError, match=r"train\.scratch: .* in the memory of the machine, which has \d+MiB free"):
        check_disk(1 << 60, None)
