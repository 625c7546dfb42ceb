"""A state that pieces were added to is that of all edges, and so are the gradients, without a message in between."""

from __future__ import annotations

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions.adding import SLOPE, added, by_targets, pulled
from gnnflow.executions.propagate import partial_state
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr
from gnnflow.layers import EdgeContext, ModelInputs, NodeContext, Terms, build_model
from tests.kernels.test_half_precision import needs_native

TARGETS, SOURCES, WIDTH = 12, 9, 20
ADDED_IN_PLACE = {
    "gcn": {"kind": "gcn"},
    "mean": {"kind": "sage"},
    "sum": {"kind": "sage", "aggregator": "sum"},
    "gin": {"kind": "gin"},
    "gates": {"kind": "ggcn"},
}


def block(seed, *, weighted, sampled):
    generator = torch.Generator().manual_seed(seed)
    degree = torch.randint(0, 4, (TARGETS,), generator=generator)
    offsets = torch.cat([torch.zeros(1).long(), degree.cumsum(0)])
    size = int(offsets[-1])
    csr = Csr(offsets, torch.randint(SOURCES, (size,), generator=generator), SOURCES)
    weight = torch.rand(size, generator=generator) if weighted else None
    return BlockTensors(csr, EdgeContext(size, weight), torch.full((TARGETS,), 1.5) if sampled else None)


def layer_and_terms(model):
    torch.manual_seed(0)
    built = build_model(model_from_dict({**model, "layers": 1, "hidden": 6}), ModelInputs(WIDTH, 3))
    layer = built.layer(0)

    def terms(rows):
        degrees = torch.arange(rows) % 4 + 0.0
        with torch.no_grad():
            return layer.transform(torch.randn(rows, WIDTH), NodeContext(degrees, degrees, degrees))

    return layer, terms(SOURCES).source, terms(TARGETS).target


@needs_native
@pytest.mark.parametrize(
    ("name", "weighted", "sampled"),
    [
        *((name, weighted, False) for name in ADDED_IN_PLACE for weighted in (False, True)),
        # the kernel for gates takes no scale of a sample
        *((name, False, True) for name in ADDED_IN_PLACE if name != "gates"),
    ],
)
def test_pieces_added_in_place_give_the_state_and_the_gradients_of_all_edges(name, weighted, sampled):
    layer, source, target = layer_and_terms(ADDED_IN_PLACE[name])
    pieces = [block(seed, weighted=weighted, sampled=sampled) for seed in range(3)]
    leaves = {f"source/{key}": rows.requires_grad_() for key, rows in source.items()}
    leaves |= {f"target/{key}": rows.requires_grad_() for key, rows in target.items()}
    states = [partial_state(layer, source=source, target=target, block=each) for each in pieces]
    whole = layer.levels.instance.merge_all(states)
    with torch.no_grad():
        state = None
        for each in pieces:
            before = state
            state = added(layer, state, source=source, target=target, block=each, with_slopes=True)
            assert before is None or state["sum"] is before["sum"], "in place"
    for key, rows in whole.items():
        torch.testing.assert_close(state[key], rows.detach(), msg=key)
    blame = {key: torch.randn_like(rows) for key, rows in state.items() if key != SLOPE}
    outs = [rows for rows in whole.values() if rows.requires_grad]
    found = {key: torch.zeros_like(rows) for key, rows in source.items()}
    for each in pieces:
        how = {"by_state": blame, "has_slopes": SLOPE in state}
        assert pulled(layer, found, source=source, target=target, block=each, **how)
    every = torch.autograd.grad(outs, leaves.values(), [blame["sum"]], allow_unused=True)
    from_targets = by_targets(layer, state, blame, Terms(source, target), pieces[0].edge)
    made = {f"source/{key}": rows for key, rows in found.items()}
    made |= {f"target/{key}": rows for key, rows in from_targets.items()}
    for key, want in zip(leaves, every, strict=True):
        if want is not None:
            torch.testing.assert_close(made[key], want, atol=1e-5, rtol=1e-4, msg=key)


def test_attention_is_differentiated_piece_by_piece():
    layer, source, target = layer_and_terms({"kind": "gat", "heads": 2})
    one = block(0, weighted=False, sampled=False)
    whole = added(layer, None, source=source, target=target, block=one)
    gradients = {key: torch.zeros_like(rows) for key, rows in source.items()}
    how = {"by_state": whole, "has_slopes": False}
    assert not pulled(layer, gradients, source=source, target=target, block=one, **how)
    assert not any(rows.any() for rows in gradients.values())
