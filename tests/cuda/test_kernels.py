"""The kernels for CUDA tensors equal the definition in float64, forward and backward, and give the same bits twice.

Without a card Triton's interpreter runs their programs, one after the other, on tensors of the CPU: `make test-card`.
"""

from __future__ import annotations

import pytest
import torch

from gnnflow.kernels import TABLE, Csr, Halves, choose, segment_max, softmax_sums, weighted_sum
from gnnflow.kernels import table as kernels
from tests.cuda.card import CARD, IS_INTERPRETED

KERNELS = {kernel.name: kernel for kernel in TABLE}
PLAIN = KERNELS["reference"]
FEW = 50
KINDS = [torch.float32, torch.bfloat16, torch.float16]
if IS_INTERPRETED:
    KINDS = KINDS[:2]  # it takes minutes, and both halves are read in the same way


def graph(name):
    """Return an adjacency on the CPU: with empty targets, with hubs above what one program walks, or without edges."""
    generator = torch.Generator().manual_seed(0)
    num_targets, num_sources, num_edges = {
        "small": (7, 5, 30),
        "empty rows": (300, 200, 500),
        "hubs": (60, 90, 20_000),
        "no edges": (4, 3, 0),
    }[name]
    if IS_INTERPRETED and num_edges > FEW:  # see `interpreted`
        num_targets, num_sources, num_edges = num_targets // 10, num_sources // 10, max(num_edges // 200, FEW)
    drawn = torch.rand(num_edges, generator=generator)
    targets = (drawn ** (8 if name == "hubs" else 1) * num_targets).long().sort().values
    offsets = torch.searchsorted(targets, torch.arange(num_targets + 1))
    sources = (torch.rand(num_edges, generator=generator) ** 3 * num_sources).long()
    return Csr(offsets, sources, num_sources)


def on_card(csr):
    return Csr(csr.offsets.to(CARD), csr.sources.to(CARD), csr.num_sources, is_edgewise=csr.is_edgewise)


def drawn(*shape, dtype=torch.float32, seed=0):
    """Return random numbers of a type: as float64 on the CPU, and as that type on the card, each with a gradient."""
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return rows.double().requires_grad_(), rows.to(CARD).requires_grad_()


def most_edges(csr):
    """Return how many edges a target or a source has at most: how many numbers are added up."""
    return max([1, *csr.degree.tolist(), *csr.by_source.degree.tolist()])


def assert_near(found, expected, dtype, terms=1):
    eps = torch.finfo(dtype).eps if dtype != torch.float32 else 1e-5
    near = {"rtol": eps, "atol": eps * terms**0.5 if dtype == torch.float32 else 4 * eps}
    torch.testing.assert_close(found.cpu().double(), expected, **near)


every_graph = pytest.mark.parametrize("name", ["small", "empty rows", "hubs", "no edges"])
every_kind = pytest.mark.parametrize("dtype", KINDS, ids=str)


@every_graph
@every_kind
@pytest.mark.parametrize(
    "shape",
    [
        (1, False, 64, False),
        (1, False, 5, True),
        (4, False, 16, True),
        (3, True, 7, True),
        (2, False, 140, True),
        (1, False, 1, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("edgewise", [False, True])
def test_sums_and_their_gradients_equal_the_definition(name, dtype, shape, edgewise):
    heads, shared, width, weighted = shape
    csr = graph(name).edges if edgewise else graph(name)
    exact, value = drawn(csr.num_sources, 1 if shared else heads, width, dtype=dtype, seed=1)
    wide, narrow = drawn(csr.num_edges, heads, seed=2) if weighted else (None, None)
    assert choose(on_card(csr), value).name == "cuda"
    expected, found = PLAIN.weighted_sum(csr, wide, exact), weighted_sum(on_card(csr), narrow, value)
    assert found.dtype == dtype
    assert_near(found, expected, dtype, most_edges(csr))
    blame = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    wanted = torch.autograd.grad(expected, [exact, *([wide] if weighted else [])], blame.double())
    got = torch.autograd.grad(found, [value, *([narrow] if weighted else [])], blame.to(CARD))
    assert_near(got[0], wanted[0], dtype, most_edges(csr) * heads)
    for each, want in zip(got[1:], wanted[1:], strict=True):
        assert_near(each, want, torch.float32, width)


@every_graph
@every_kind
@pytest.mark.parametrize("shape", [(1, False, 70, False), (3, True, 9, True)], ids=str)
def test_maxima_and_their_gradients_equal_the_definition(name, dtype, shape):
    heads, shared, width, weighted = shape
    csr = graph(name)
    exact, value = drawn(csr.num_sources, 1 if shared else heads, width, dtype=dtype, seed=1)
    wide, narrow = (each.detach() for each in drawn(csr.num_edges, heads, seed=2)) if weighted else (None, None)
    expected, found = PLAIN.segment_max(csr, wide, exact), segment_max(on_card(csr), narrow, value)
    assert_near(found, expected, dtype)
    assert torch.equal(found.cpu() == -torch.inf, expected == -torch.inf)
    blame = torch.where(expected == -torch.inf, 0.0, 1.0)
    (wanted,), (got,) = (
        torch.autograd.grad(out, rows, of)
        for out, rows, of in ((expected, exact, blame), (found, value, blame.to(value)))
    )
    # of equal maxima one edge receives the gradient here, and the definition shares it; each source's was rounded
    rounded = torch.finfo(dtype).eps * got.float().abs().sum(0).max().item()
    torch.testing.assert_close(got.double().sum(0).cpu(), wanted.sum(0), rtol=0, atol=rounded)


@every_graph
@every_kind
@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)])
def test_gathers_are_exact_and_their_gradients_equal_the_definition(name, dtype, trailing):
    csr = graph(name)
    for gather, rows in (("gather_sources", csr.num_sources), ("gather_targets", csr.num_targets)):
        exact, term = drawn(rows, *trailing, dtype=dtype)
        expected, found = getattr(PLAIN, gather)(csr, exact), getattr(kernels, gather)(on_card(csr), term)
        assert torch.equal(found.cpu().double(), expected)
        blame = torch.randn(expected.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        (wanted,) = torch.autograd.grad(expected, exact, blame.double())
        (got,) = torch.autograd.grad(found, term, blame.to(CARD))
        assert_near(got, wanted, dtype, most_edges(csr))


@every_graph
@every_kind
@pytest.mark.parametrize("shape", [(1, False, 64), (4, False, 16), (3, True, 7)], ids=str)
@pytest.mark.parametrize("more", [False, True])
def test_softmax_sums_and_their_gradients_equal_the_definition(name, dtype, shape, more):
    heads, shared, width = shape
    csr = graph(name)
    exact, value = drawn(csr.num_sources, 1 if shared else heads, width, dtype=dtype, seed=4)
    exact_logit, logit = drawn(csr.num_edges, heads, seed=3)
    factor, attributes = drawn(csr.num_edges, seed=5)[0].detach().abs(), drawn(csr.num_edges, 2, seed=6)[0].detach()
    results = []
    for adjacency, logits, rows in ((csr, exact_logit, exact), (on_card(csr), logit, value)):
        kind = torch.float64 if rows is exact else torch.float32
        given = {"attributes": attributes, "factor": factor} if more else {}
        given = {each: held.to(kind).to(rows.device) for each, held in given.items()}
        sums = softmax_sums(adjacency, logits, rows, **given)
        blame = [torch.randn(each.shape, generator=torch.Generator().manual_seed(8)).to(dtype) for each in sums[1:]]
        blame = [each.to(of) for each, of in zip(blame, sums[1:], strict=True)]
        results.append([*sums, *torch.autograd.grad(sums[1:], [logits, rows], blame)])
    kinds = [torch.float32, torch.float32, dtype, torch.float32, dtype]
    terms = max(most_edges(csr), width) * heads
    for expected, found, kind in zip(*results, kinds, strict=True):
        assert_near(found, expected, kind, terms)


@every_graph
@every_kind
@pytest.mark.parametrize("heads", [1, 4, 3])
def test_logits_that_come_as_halves_give_what_those_per_edge_give(name, dtype, heads):
    csr = graph(name)
    exact, value = drawn(csr.num_sources, heads, 16, dtype=dtype, seed=4)
    exact_source, source = drawn(csr.num_sources, heads, seed=3)
    exact_target, target = drawn(csr.num_targets, heads, seed=5)
    results = []
    for adjacency, halves, rows in (
        (csr, Halves(exact_source, exact_target, 0.2), exact),
        (on_card(csr), Halves(source, target, 0.2), value),
    ):
        sums = softmax_sums(adjacency, halves, rows)
        blame = [torch.randn(each.shape, generator=torch.Generator().manual_seed(8)).to(dtype) for each in sums[1:]]
        blame = [each.to(of) for each, of in zip(blame, sums[1:], strict=True)]
        results.append([*sums, *torch.autograd.grad(sums[1:], [*halves[:2], rows], blame)])
    kinds = [torch.float32, torch.float32, dtype, torch.float32, torch.float32, dtype]
    for expected, found, kind in zip(*results, kinds, strict=True):
        assert_near(found, expected, kind, most_edges(csr) * 16 * heads)


def test_attention_with_dropout_is_the_softmax_without_what_was_dropped():
    csr = on_card(graph("hubs"))
    logit, value = drawn(csr.num_edges, 2, seed=3)[1].detach(), torch.ones(csr.num_sources, 1, 1, device=CARD)
    hub = int(csr.degree.argmax())
    whole, means = softmax_sums(csr, logit, value), []
    torch.manual_seed(1)
    for _ in range(16):
        dropped = softmax_sums(csr, logit, value, drop=0.5)
        assert torch.equal(dropped.denominator, whole.denominator)
        means.append(dropped.mean[hub, :, 0])
    # what is left of a weight is 0 or twice the weight, so one mean varies by the root of the weights' squares
    shares = torch.softmax(logit[csr.offsets[hub] : csr.offsets[hub + 1]], dim=0)
    near = 4 * shares.square().sum(0).sqrt() / len(means) ** 0.5
    assert bool(((torch.stack(means).mean(0) - 1).abs() < near).all())
    assert len({tuple(mean.tolist()) for mean in means}) > 1


def test_a_number_that_is_none_is_told_and_a_count_does_not_end_in_half_precision():
    csr = on_card(graph("small"))
    value = torch.full((5, 1, 3), torch.nan, device=CARD)
    reached = csr.degree > 0
    for reduced in (weighted_sum(csr, None, value), segment_max(csr, None, value)):
        assert bool(reduced[reached].isnan().all())
    one = Csr(torch.tensor([0, 4096]).to(CARD), torch.zeros(4096, dtype=torch.int64).to(CARD), 1)
    for dtype in KINDS[1:]:
        assert weighted_sum(one, None, torch.ones(1, 1, 1, dtype=dtype, device=CARD)).item() == 4096.0


@every_kind
def test_the_same_inputs_give_the_same_bits(dtype):
    found = []
    for _ in range(3):
        csr = on_card(graph("hubs"))
        value, logit = drawn(csr.num_sources, 4, 33, dtype=dtype)[1], drawn(csr.num_edges, 4, seed=1)[1]
        sums, attended = weighted_sum(csr, logit, value), softmax_sums(csr, logit, value)
        largest = segment_max(csr, None, value)
        loss = (sums + attended.mean + largest.masked_fill(largest == -torch.inf, 0)).float().square().sum()
        found.append([sums, *attended, largest, *torch.autograd.grad(loss, [value, logit])])
        torch.empty(1 << 20, device=CARD).normal_()  # other work in between
    assert all(torch.equal(*pair) for each in found[1:] for pair in zip(each, found[0], strict=True))


def test_autocast_changes_neither_the_type_of_what_kernels_return_nor_of_their_gradients():
    csr = on_card(graph("small"))
    for dtype in (torch.float32, torch.bfloat16):
        value, coefficient = drawn(5, 2, 8, dtype=dtype)[1], drawn(30, 2, seed=2)[1]
        results = []
        for inside in (False, True):
            with torch.autocast(CARD.type, torch.bfloat16, enabled=inside):
                attended, sums = softmax_sums(csr, coefficient, value), weighted_sum(csr, coefficient, value)
                assert sums.dtype == attended.mean.dtype == dtype
                loss = (sums + attended.mean).float().sum()
            results.append(torch.autograd.grad(loss, [value, coefficient]))
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_the_reversed_adjacency_is_that_of_the_cpu():
    for name in ("small", "hubs", "no edges"):
        here, there = graph(name), on_card(graph(name))
        for mine, theirs in ((here.by_source, there.by_source), (here.transposed, there.transposed)):
            assert torch.equal(mine.offsets, theirs.offsets.cpu())
            assert torch.equal(mine.sources, theirs.sources.cpu())
