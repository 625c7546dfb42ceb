"""Rows in half precision: read as they are, added up in float32, rounded once.

Each result is compared with the definition in float64 on the same rows. It may differ by half a unit in the last place
of the type it is stored in, and by the rounding of float32 on the way.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnnflow.kernels import TABLE, Csr, choose, dropout, native, softmax_sums
from gnnflow.kernels import table as kernels
from gnnflow.kernels.device import compute_threads
from gnnflow.native import core
from tests.kernels.test_kernels import adjacencies, random

needs_native = pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")
KERNELS = {kernel.name: kernel for kernel in TABLE}
HALVES = st.sampled_from([torch.bfloat16, torch.float16])
WIDTHS = st.sampled_from([1, 3, 9, 50, 64, 121])
both_ways = pytest.mark.parametrize("name", [pytest.param("native", marks=needs_native), "widened"])
every_half = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def rounded(dtype, *shape, seed):
    """Random numbers of a type, as float64 and as that type, each with a gradient."""
    stored = random(*shape, seed=seed).detach().to(dtype)
    return stored.double().requires_grad_(), stored.requires_grad_()


def assert_rounded_once(found, exact, dtype):
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=1.01 * torch.finfo(dtype).eps / 2, atol=5e-5)


@both_ways
@given(csr=adjacencies(), width=WIDTHS, dtype=HALVES, data=st.data())
def test_sums_and_their_gradients_are_the_definition_rounded_once(name, csr, width, dtype, data):
    heads, weighted = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    if data.draw(st.booleans()):
        csr = csr.edges
    shared = weighted and data.draw(st.booleans())
    exact, value = rounded(dtype, csr.num_sources, 1 if shared else heads, width, seed=2)
    wide, narrow = rounded(torch.float32, csr.num_edges, heads, seed=1) if weighted else (None, None)
    expected = KERNELS["reference"].weighted_sum(csr, wide, exact)
    found = KERNELS[name].weighted_sum(csr, narrow, value)
    assert_rounded_once(found, expected, dtype)
    blame = random(*expected.shape, seed=3).detach().to(dtype)
    wanted = torch.autograd.grad(expected, [exact, *([wide] if weighted else [])], blame.double())
    got = torch.autograd.grad(found, [value, *([narrow] if weighted else [])], blame)
    assert_rounded_once(got[0], wanted[0], dtype)
    for each, want in zip(got[1:], wanted[1:], strict=True):
        assert_rounded_once(each, want, torch.float32)


@both_ways
@given(heads=st.integers(1, 3), width=WIDTHS, dtype=HALVES, weighted=st.booleans())
def test_maxima_and_their_gradients_are_the_definition_rounded_once(name, heads, width, dtype, weighted):
    # Two sources of each target: of equal maxima the kernels choose one edge, and the definition shares the gradient.
    csr = Csr(torch.arange(0, 9, 2), torch.arange(8).flip(0), 8)
    exact, value = rounded(dtype, 8, heads, width, seed=2)
    drawn = rounded(torch.float32, 8, heads, seed=1) if weighted else ()
    wide, narrow = (each.detach() for each in drawn) if weighted else (None, None)
    expected = KERNELS["reference"].segment_max(csr, wide, exact)
    found = KERNELS[name].segment_max(csr, narrow, value)
    assert_rounded_once(found, expected, dtype)
    if found.view(4, 1, -1).eq(value.flip(0).view(4, 2, -1)).all(1).any():  # two numbers that tie once rounded
        return
    blame = random(*expected.shape, seed=3).detach().to(dtype)
    (wanted,) = torch.autograd.grad(expected, exact, blame.double())
    assert_rounded_once(torch.autograd.grad(found, value, blame)[0], wanted, dtype)


@both_ways
@given(csr=adjacencies(), trailing=st.sampled_from([(), (2,), (2, 3)]), dtype=HALVES)
def test_gathers_are_exact_and_their_gradients_the_definition_rounded_once(name, csr, trailing, dtype):
    for gather, rows in (("gather_sources", csr.num_sources), ("gather_targets", csr.num_targets)):
        exact, term = rounded(dtype, rows, *trailing, seed=2)
        expected = getattr(KERNELS["reference"], gather)(csr, exact)
        found = getattr(KERNELS[name], gather)(csr, term)
        assert found.dtype == dtype
        assert torch.equal(found.double(), expected)
        blame = random(*expected.shape, seed=3).detach().to(dtype)
        (wanted,) = torch.autograd.grad(expected, exact, blame.double())
        assert_rounded_once(torch.autograd.grad(found, term, blame)[0], wanted, dtype)


@given(csr=adjacencies(), width=st.sampled_from([1, 7, 20, 64]), dtype=HALVES, data=st.data())
def test_softmax_sums_and_their_gradients_are_the_definition_rounded_once(csr, width, dtype, data):
    heads, drop = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([0.0, 0.4]))
    shared, scaled, attributed, half_logit = (data.draw(st.booleans()) for _ in range(4))
    exact, value = rounded(dtype, csr.num_sources, 1 if shared else heads, width, seed=4)
    exact_logit, logit = rounded(dtype if half_logit else torch.float32, csr.num_edges, heads, seed=3)
    factor = random(csr.num_edges, seed=5).detach().abs().float() if scaled else None
    attributes = random(csr.num_edges, 2, seed=6).detach().float() if attributed else None
    results = []
    for kind, rows, logits in ((torch.float64, exact, exact_logit), (torch.float32, value, logit)):
        beside, times = (None if given is None else given.to(kind) for given in (attributes, factor))
        torch.manual_seed(7)
        found = softmax_sums(csr, logits, rows, attributes=beside, factor=times, drop=drop)
        blame = [random(*each.shape, seed=8).detach().to(dtype).to(each) for each in found[1:]]
        results.append([*found, *torch.autograd.grad(found[1:], [logits, rows], blame)])
    kinds = [torch.float32, torch.float32, dtype, logit.dtype, dtype]
    for expected, actual, kind in zip(*results, kinds, strict=True):
        assert_rounded_once(actual, expected, kind)


@needs_native
@every_half
@pytest.mark.parametrize("width", [1, 64])
def test_every_number_of_sixteen_bits_is_read_exactly(dtype, width):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    value = bits.view(dtype).view(-1, 1, width)
    csr = Csr(torch.arange(len(value) + 1), torch.arange(len(value)), len(value))
    torch.testing.assert_close(native.sums(csr, None, value), value.float(), rtol=0, atol=0, equal_nan=True)
    found = native.segment_max(csr, None, value)
    torch.testing.assert_close(found, value, rtol=0, atol=0, equal_nan=True)


@both_ways
@every_half
def test_a_count_does_not_end_where_half_precision_has_no_next_number(name, dtype):
    csr = Csr(torch.tensor([0, 4096]), torch.zeros(4096, dtype=torch.int64), 1)
    assert KERNELS[name].weighted_sum(csr, None, torch.ones(1, 1, 1, dtype=dtype)).item() == 4096.0


@needs_native
@every_half
def test_half_precision_has_the_same_bits_on_any_number_of_threads(dtype):
    generator = torch.Generator().manual_seed(0)
    degree = (torch.rand(300, generator=generator) ** 12 * 3000).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    csr = Csr(offsets, torch.randint(200, (int(offsets[-1]),), generator=generator), 200)
    value, logit = torch.randn(200, 2, 70).to(dtype).requires_grad_(), torch.randn(csr.num_edges, 2, requires_grad=True)
    found = []
    for threads in (1, 2, 5):
        with compute_threads(threads):
            sums, attended = kernels.weighted_sum(csr, logit, value), softmax_sums(csr, logit, value).mean
            gradients = torch.autograd.grad((sums + attended).float().square().sum(), [value, logit])
            found.append([sums, attended, kernels.segment_max(csr, None, value), *gradients])
    assert all(torch.equal(*pair) for each in found[1:] for pair in zip(each, found[0], strict=True))


@pytest.mark.parametrize("outer", [False, True])
def test_autocast_changes_neither_the_type_of_what_kernels_return_nor_of_their_gradients(outer):
    csr = Csr(torch.tensor([0, 2, 3, 3]), torch.tensor([0, 1, 1]), 2)
    for dtype in (torch.float32, torch.bfloat16):
        _, value = rounded(dtype, 2, 2, 8, seed=1)
        _, coefficient = rounded(torch.float32, 3, 2, seed=2)
        results = []
        for inside in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=inside):
                attended = softmax_sums(csr, coefficient, value)
                sums = kernels.weighted_sum(csr, coefficient, value)
                assert sums.dtype == attended.mean.dtype == kernels.gather_sources(csr, value).dtype == dtype
                assert attended.denominator.dtype == torch.float32
                loss = (sums + attended.mean + kernels.segment_max(csr, None, value).clamp(-9, 9)).float().sum()
            with torch.autocast("cpu", torch.bfloat16, enabled=inside and outer):
                results.append(torch.autograd.grad(loss, [value, coefficient]))
        assert [each.dtype for each in results[1]] == [dtype, torch.float32]
        assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@every_half
def test_dropout_keeps_the_mean_of_rows_in_half_precision(dtype):
    torch.manual_seed(0)
    dropped = dropout(torch.full((400, 500), 0.9, dtype=dtype), 0.1)
    assert dropped.dtype == dtype
    assert dropped.float().mean().item() == pytest.approx(0.9, rel=2 * torch.finfo(dtype).eps)


@needs_native
def test_the_core_takes_half_precision_and_without_it_rows_are_widened(monkeypatch):
    csr, value = Csr(torch.tensor([0, 2]), torch.tensor([0, 1]), 2), torch.ones(2, 1, 1, dtype=torch.bfloat16)
    assert choose(csr, value).name == "native"
    monkeypatch.setattr("gnnflow.kernels.core.kernels", lambda: None)
    assert choose(csr, value).name == "widened"
