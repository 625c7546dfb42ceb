"""A state that pieces were added to is that of all edges, and so are the gradients, without a message in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnflow.config import model_from_dict
from gnnflow.executions.propagate import partial_state
from gnnflow.executions.streamed import SLOPE, add_block, add_gradients, attended, reads_values, target_gradients
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


def layer_and_terms(model, attributes=0):
    torch.manual_seed(0)
    inputs = ModelInputs(WIDTH, 3, attribute_width=attributes)
    built = build_model(model_from_dict({**model, "layers": 1, "hidden": 6}), inputs)
    layer = built.relations(0).layer(0)

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
            state = add_block(layer, state, source=source, target=target, block=each, with_slopes=True)
            assert before is None or state["sum"] is before["sum"], "in place"
    for key, rows in whole.items():
        torch.testing.assert_close(state[key], rows.detach(), msg=key)
    blame = {key: torch.randn_like(rows) for key, rows in state.items() if key != SLOPE}
    outs = [rows for rows in whole.values() if rows.requires_grad]
    found = {key: torch.zeros_like(rows) for key, rows in source.items()}
    for each in pieces:
        how = {"by_state": blame, "has_slopes": SLOPE in state}
        assert add_gradients(layer, Terms(found, {}), source=source, target=target, block=each, **how)
    every = torch.autograd.grad(outs, leaves.values(), [blame["sum"]], allow_unused=True)
    from_targets = target_gradients(layer, state, blame, Terms(source, target), pieces[0].edge)
    made = {f"source/{key}": rows for key, rows in found.items()}
    made |= {f"target/{key}": rows for key, rows in from_targets.items()}
    for key, want in zip(leaves, every, strict=True):
        if want is not None:
            torch.testing.assert_close(made[key], want, atol=1e-5, rtol=1e-4, msg=key)


@needs_native
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("weighted_sample", [False, True])
def test_attention_over_pieces_is_that_over_all_edges_and_so_are_its_gradients(dropout, weighted_sample):
    layer, source, target = layer_and_terms({"kind": "gat", "heads": 2, "attention_dropout": dropout})
    layer.train()
    pieces = [block(seed, weighted=False, sampled=False) for seed in range(3)]
    if weighted_sample:
        pieces = [replace(each, edge_scale=1 + torch.rand(each.csr.num_edges)) for each in pieces]
    leaves = [rows.requires_grad_() for held in (source, target) for rows in held.values()]
    terms = {"source": source, "target": target}
    assert all(attended(layer, source, target, each) for each in pieces)

    def seeded(number):
        torch.manual_seed(number)
        return {**terms, "block": pieces[number]}

    kind = layer.levels.instance
    whole = kind.merge_all(partial_state(layer, **seeded(number)) for number in range(3))
    with torch.no_grad():
        state = None
        for number in range(3):
            before = state
            state = add_block(layer, state, **seeded(number))
            assert before is None or all(state[key] is before[key] for key in state), "in place"
    for key, rows in whole.items():
        torch.testing.assert_close(state[key], rows.detach(), msg=key)
    blame = {key: torch.zeros_like(rows) for key, rows in state.items()} | {"mean": torch.randn_like(state["mean"])}
    every = torch.autograd.grad([whole["mean"]], leaves, [blame["mean"]])
    found = Terms(*({key: torch.zeros_like(rows) for key, rows in held.items()} for held in (source, target)))
    for number in range(3):
        given = {"by_state": kind.for_parts(state, blame), "has_slopes": False}
        assert add_gradients(layer, found, **seeded(number), **given)
    for made, want in zip([*found.source.values(), *found.target.values()], every, strict=True):
        torch.testing.assert_close(made, want, atol=1e-5, rtol=1e-4)


def test_attention_that_reads_edges_is_differentiated_piece_by_piece():
    layer, source, target = layer_and_terms({"kind": "gat_e", "heads": 2}, attributes=3)
    one = block(0, weighted=False, sampled=False)
    one = replace(one, edge=EdgeContext(one.csr.num_edges, None, torch.randn(one.csr.num_edges, 3)))
    whole = add_block(layer, None, source=source, target=target, block=one)
    gradients = Terms({key: torch.zeros_like(rows) for key, rows in source.items()}, {})
    how = {"by_state": whole, "has_slopes": False}
    assert attended(layer, source, target, one) is None
    assert not add_gradients(layer, gradients, source=source, target=target, block=one, **how)
    assert not any(rows.any() for rows in gradients.source.values())


def weighs_by_value(_, source, target, edge):
    """Weigh a message with the value that it carries."""
    return torch.sigmoid(source["value"].sum(2)).detach()


@pytest.mark.parametrize(
    ("name", "expected"), [("gcn", False), ("mean", False), ("gin", False), ("gates", True), ("gat", True)]
)
def test_values_are_read_back_where_gradients_depend_on_them(name, expected):
    layer, source, target = layer_and_terms(ADDED_IN_PLACE.get(name, {"kind": name}))
    none = [{key: rows[:0] for key, rows in terms.items()} for terms in (source, target)]
    empty = BlockTensors(Csr(torch.zeros(1).long(), torch.zeros(0).long(), 0), EdgeContext(0, None), None)
    assert reads_values(layer, source=none[0], target=none[1], block=empty) is expected
    if not expected:
        layer.__class__ = type("Weighed", (type(layer),), {"coefficient": weighs_by_value})
        assert reads_values(layer, source=none[0], target=none[1], block=empty)
