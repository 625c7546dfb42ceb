"""Every kernel of the table computes what the plain definition computes, and so do its gradients."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnflow.kernels import TABLE, Csr, Halves, Scales, binary_cross_entropy, choose, identity, native, softmax_sums
from gnnflow.kernels import table as kernels
from gnnflow.kernels.device import compute_threads
from gnnflow.native import core
from tests.budget import examples

needs_native = pytest.mark.skipif(core() is None, reason="the native core was not built: no C compiler")

FUSED = next(kernel for kernel in TABLE if kernel.name == "fused")
NATIVE = next(kernel for kernel in TABLE if kernel.name == "native")
PLAIN = next(kernel for kernel in TABLE if kernel.name == "reference")


@st.composite
def adjacencies(draw):
    """Multigraphs with empty targets, from none to more edges than there are pairs."""
    num_targets, num_sources = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    edge = st.tuples(st.integers(0, num_targets - 1), st.integers(0, num_sources - 1))
    edges = sorted(draw(st.lists(edge, max_size=30)), key=lambda pair: pair[0])
    targets = torch.tensor([target for target, _ in edges], dtype=torch.int64)
    offsets = torch.searchsorted(targets, torch.arange(num_targets + 1))
    return Csr(offsets, torch.tensor([source for _, source in edges], dtype=torch.int64), num_sources)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


@given(csr=adjacencies(), heads=st.integers(1, 3), shared=st.booleans(), weighted=st.booleans())
def test_weighted_sum_and_its_gradients_equal_the_definition(csr, heads, shared, weighted):
    coefficient = random(csr.num_edges, heads, seed=1) if weighted else None
    value = random(csr.num_sources, 1 if shared and weighted else heads, 4, seed=2)
    inputs = [value] if coefficient is None else [value, coefficient]
    expected, actual = (kernel.weighted_sum(csr, coefficient, value) for kernel in (PLAIN, FUSED))
    torch.testing.assert_close(actual, expected)
    blame = torch.randn_like(expected)
    wanted, found = (torch.autograd.grad((out * blame).sum(), inputs) for out in (expected, actual))
    torch.testing.assert_close(found, wanted)


@given(
    csr=adjacencies(), heads=st.integers(1, 3), data=st.data(), dtype=st.sampled_from([torch.float32, torch.float64])
)
def test_scaled_sums_and_their_gradients_are_those_of_rows_multiplied_before_and_after(csr, heads, data, dtype):
    weighted, by_source, by_target = (data.draw(st.booleans()) for _ in range(3))
    coefficient = random(csr.num_edges, heads, seed=1).detach().to(dtype) if weighted else None
    value = random(csr.num_sources, data.draw(st.sampled_from([1, heads])) if weighted else heads, 4, seed=2).to(dtype)
    scales = Scales(
        random(csr.num_sources, seed=3).detach().to(dtype) if by_source else None,
        random(csr.num_targets, seed=4).detach().to(dtype) if by_target else None,
    )
    found = kernels.weighted_sum(csr, coefficient, value, scales)
    multiplied = value * scales.source[:, None, None] if by_source else value
    expected = PLAIN.weighted_sum(csr, coefficient, multiplied)
    expected = expected * scales.target[:, None, None] if by_target else expected
    torch.testing.assert_close(found, expected)
    blame = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad((out * blame).sum(), value) for out in (found, expected)))


@needs_native
@given(
    csr=adjacencies(), heads=st.integers(1, 3), width=st.sampled_from([1, 3, 5, 9, 50, 64, 121, 200]), data=st.data()
)
def test_the_native_core_and_its_gradients_equal_the_definition(csr, heads, width, data):
    weighted = data.draw(st.booleans())
    shared = weighted and data.draw(st.booleans())
    operands = [random(csr.num_sources, 1 if shared else heads, width, seed=2)]
    operands += [random(csr.num_edges, heads, seed=1)] if weighted else []
    in_float32 = [operand.detach().float().requires_grad_() for operand in operands]
    blame = torch.randn(csr.num_targets, heads, width, dtype=torch.float64)
    results = []
    for kernel, (value, *coefficient) in ((PLAIN, operands), (NATIVE, in_float32)):
        sums = kernel.weighted_sum(csr, coefficient[0] if coefficient else None, value)
        results.append([sums, *torch.autograd.grad((sums * blame.to(sums)).sum(), [value, *coefficient])])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=2e-5)


@needs_native
@given(csr=adjacencies(), heads=st.integers(1, 3), width=st.sampled_from([1, 3, 9, 64, 70]), data=st.data())
def test_native_maxima_and_their_gradients_equal_the_definition(csr, heads, width, data):
    weighted = data.draw(st.booleans())
    coefficient = random(csr.num_edges, heads, seed=1).detach() if weighted else None
    if data.draw(st.booleans()):
        csr = csr.edges
    value = random(csr.num_sources, 1 if weighted and data.draw(st.booleans()) else heads, width, seed=2)
    in_float32 = value.detach().float().requires_grad_()
    expected = PLAIN.segment_max(csr, coefficient, value)
    actual = NATIVE.segment_max(csr, None if coefficient is None else coefficient.float(), in_float32)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=1e-6)
    # float64 tells apart what float32 may round to a tie: then either edge may receive the gradient
    blame = torch.where(expected == -torch.inf, 0.0, torch.randn_like(expected))
    wanted = torch.autograd.grad((expected.masked_fill(expected == -torch.inf, 0) * blame).sum(), value)[0]
    found = torch.autograd.grad((actual.masked_fill(actual == -torch.inf, 0) * blame.float()).sum(), in_float32)[0]
    if repeated_edges(csr):
        wanted, found = wanted.sum(), found.sum()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=2e-5)


def repeated_edges(csr):
    pairs = torch.stack([csr.targets, csr.sources], 1)
    return len(pairs.unique(dim=0)) < len(pairs)


@needs_native
def test_a_native_maximum_of_no_number_is_none_and_of_equal_ones_the_first_counts():
    csr = Csr(torch.tensor([0, 3, 3]), torch.tensor([0, 1, 2]), 3)
    value = torch.tensor([1.0, torch.nan, 2.0])[:, None, None]
    assert native.segment_max(csr, None, value)[0].isnan().all()
    lowest = torch.full((3, 1, 1), -torch.inf, requires_grad=True)
    native.segment_max(csr, None, lowest)[0].sum().backward()
    assert lowest.grad.flatten().tolist() == [1.0, 0.0, 0.0]


@needs_native
def test_the_native_core_gives_the_same_bits_on_any_number_of_threads():
    generator = torch.Generator().manual_seed(0)
    # a few targets have most of the edges, so chunks are cut between and right beside them
    degree = (torch.rand(400, generator=generator) ** 12 * 4000).long()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    csr = Csr(offsets, torch.randint(300, (int(offsets[-1]),), generator=generator), 300)
    value, coefficient = torch.randn(300, 2, 70), torch.randn(csr.num_edges, 2)
    grad = torch.randn(400, 2, 70)
    found = []
    for threads in (1, 2, 3, 8):
        with compute_threads(threads):
            found.append((native.sums(csr, coefficient, value), native.products(csr, grad, value)))
    for sums, products in found[1:]:
        assert torch.equal(sums, found[0][0])
        assert torch.equal(products, found[0][1])


@needs_native
def test_the_native_core_reads_nothing_outside_of_its_operands():
    offsets, one = torch.tensor([0, 2]), torch.ones(3, 1, 4)
    for csr in (Csr(offsets, torch.tensor([0, 3]), 3), Csr(offsets, torch.tensor([0, -1]), 3)):
        with pytest.raises(IndexError, match="a row that does not exist"):
            native.sums(csr, None, one)
    with pytest.raises(IndexError, match="3 rows, not 2"):
        native.sums(Csr(offsets, torch.tensor([0, 1]), 2), None, one)


@needs_native
def test_several_threads_may_call_the_native_core_at_once():
    csr = Csr(torch.arange(0, 40_001, 10), torch.randint(4000, (40_000,)), 4000)
    value = torch.randn(4000, 1, 64)
    expected = native.sums(csr, None, value)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(sums, expected) for sums in pool.map(lambda _: native.sums(csr, None, value), range(40)))


@given(csr=adjacencies(), heads=st.integers(1, 2), weighted=st.booleans())
def test_segment_max_equals_the_definition_and_is_minus_infinity_without_edges(csr, heads, weighted):
    coefficient = random(csr.num_edges, heads, seed=1).detach() if weighted else None
    value = random(csr.num_sources, heads, 3, seed=2)
    expected, actual = (kernel.segment_max(csr, coefficient, value) for kernel in (PLAIN, FUSED))
    torch.testing.assert_close(actual, expected)
    assert bool((actual[csr.degree == 0] == -torch.inf).all())
    reached = csr.degree > 0
    wanted, found = (torch.autograd.grad(out[reached].sum(), value)[0] for out in (expected, actual))
    torch.testing.assert_close(found, wanted)


@given(csr=adjacencies(), trailing=st.sampled_from([(), (2,), (2, 3)]))
def test_gathers_and_their_gradients_equal_the_definition(csr, trailing):
    for name, rows in (("gather_sources", csr.num_sources), ("gather_targets", csr.num_targets)):
        term = random(rows, *trailing)
        expected, actual = (getattr(kernel, name)(csr, term) for kernel in (PLAIN, FUSED))
        assert torch.equal(actual, expected)
        blame = torch.randn_like(expected)
        wanted, found = (torch.autograd.grad((out * blame).sum(), term)[0] for out in (expected, actual))
        torch.testing.assert_close(found, wanted)
        if core() is not None:
            in_float32 = term.detach().float().requires_grad_()
            gathered = getattr(NATIVE, name)(csr, in_float32)
            assert torch.equal(gathered, expected.float())
            found = torch.autograd.grad((gathered * blame.float()).sum(), in_float32)[0]
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=examples(15))
@given(csr=adjacencies())
def test_weighted_sum_gradients_equal_finite_differences(csr):
    coefficient, value = random(csr.num_edges, 2, seed=1), random(csr.num_sources, 2, 2, seed=2)
    assert torch.autograd.gradcheck(lambda c, v: FUSED.weighted_sum(csr, c, v), (coefficient, value))


@given(csr=adjacencies(), magnitude=st.sampled_from([1.0, 1e4]))
def test_softmax_sums_divide_to_a_softmax(csr, magnitude):
    logit, value = random(csr.num_edges, 2, seed=3).detach() * magnitude, random(csr.num_sources, 2, 3, seed=4).detach()
    found = softmax_sums(csr, logit, value)
    for target in range(csr.num_targets):
        edges = slice(int(csr.offsets[target]), int(csr.offsets[target + 1]))
        if edges.start == edges.stop:
            assert bool((found.maximum[target] == -torch.inf).all())
            assert not found.mean[target].any()
            continue
        expected = (logit[edges].softmax(0)[:, :, None] * value[csr.sources[edges]]).sum(0)
        torch.testing.assert_close(found.mean[target], expected)


@needs_native
@given(
    csr=adjacencies(),
    heads=st.integers(1, 5),
    width=st.sampled_from([1, 7, 20]),
    drop=st.sampled_from([0.0, 0.4]),
    data=st.data(),
)
def test_the_native_softmax_sums_and_their_gradients_equal_the_definition(csr, heads, width, drop, data):
    shared, scaled, attributed = (data.draw(st.booleans()) for _ in range(3))
    operands = [random(csr.num_edges, heads, seed=3), random(csr.num_sources, 1 if shared else heads, width, seed=4)]
    factor = random(csr.num_edges, seed=5).detach().abs() if scaled else None
    attributes = random(csr.num_edges, 2, seed=6).detach() if attributed else None
    results = []
    for dtype in (torch.float64, torch.float32):
        logit, value = (operand.detach().to(dtype).requires_grad_() for operand in operands)
        beside, times = (None if given is None else given.to(dtype) for given in (attributes, factor))
        torch.manual_seed(7)
        found = softmax_sums(csr, logit, value, attributes=beside, factor=times, drop=drop)
        loss = (found.mean * torch.linspace(-1, 1, found.mean.shape[2], dtype=dtype)).sum()
        gradients = torch.autograd.grad(loss + found.denominator.square().sum(), [logit, value])
        results.append([*found, *gradients])
    assert choose(csr, results[1][2]).name == "native"
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=2e-5)


@needs_native
@given(csr=adjacencies(), heads=st.sampled_from([1, 3, 4, 8]), drop=st.sampled_from([0.0, 0.4]), data=st.data())
def test_logits_given_as_halves_equal_logits_per_edge_and_so_do_their_gradients(csr, heads, drop, data):
    factor = random(csr.num_edges, seed=5).detach().abs() if data.draw(st.booleans()) else None
    attributes = random(csr.num_edges, 2, seed=6).detach() if data.draw(st.booleans()) else None
    shapes = (csr.num_sources, heads), (csr.num_targets, heads), (csr.num_sources, heads, 20)
    operands = [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    if data.draw(st.booleans()):  # halves whose columns, and not their rows, are one after the other in memory
        operands[:2] = (half.t().contiguous().t() for half in operands[:2])
    results = []
    for dtype, whole in ((torch.float64, True), (torch.float64, False), (torch.float32, False)):
        source, target, value = (operand.detach().to(dtype).requires_grad_() for operand in operands)
        logit = Halves(source, target, 0.2)
        if whole:
            added = PLAIN.gather_sources(csr, source) + PLAIN.gather_targets(csr, target)
            logit = torch.nn.functional.leaky_relu(added, 0.2)
        beside, times = (None if given is None else given.to(dtype) for given in (attributes, factor))
        torch.manual_seed(7)
        found = softmax_sums(csr, logit, value, attributes=beside, factor=times, drop=drop)
        loss = (found.mean * torch.linspace(-1, 1, found.mean.shape[2], dtype=dtype)).sum()
        gradients = torch.autograd.grad(loss + found.denominator.square().sum(), [source, target, value])
        results.append([*found, *gradients])
    for found in results[1:]:
        for expected, actual in zip(results[0], found, strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=2e-5)


@settings(max_examples=examples(15), deadline=None)
@given(csr=adjacencies())
def test_gradients_of_softmax_means_equal_finite_differences(csr):
    shapes = (csr.num_sources, 2), (csr.num_targets, 2), (csr.num_sources, 2, 2)
    operands = [random(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert torch.autograd.gradcheck(lambda s, t, v: softmax_sums(csr, Halves(s, t, 0.2), v).mean, operands)


@pytest.mark.table(2)
@needs_native
@pytest.mark.parametrize(("heads", "width"), [(4, 64), (3, 50), (1, 100)])
def test_a_hub_whose_edges_do_not_fit_into_one_run_is_attended_as_any_other(heads, width):
    generator = torch.Generator().manual_seed(0)
    # a target with 4,500 in-edges, then 4,500 targets with two, of which one comes from the same source
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.arange(4500, 13501, 2)])
    sources = torch.randint(900, (13500,), generator=generator)
    sources[4500::2] = 7
    csr = Csr(offsets, sources, 900)
    operands = [random(900, heads, seed=1), random(4501, heads, seed=2), random(900, heads, width, seed=3)]
    results = []
    for dtype in (torch.float64, torch.float32):
        source, target, value = (operand.detach().to(dtype).requires_grad_() for operand in operands)
        found = softmax_sums(csr, Halves(source, target, 0.2), value)
        blame = random(*found.mean.shape, seed=4).detach().to(dtype)
        results.append([*found, *torch.autograd.grad((found.mean * blame).sum(), [source, target, value])])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=5e-5, atol=5e-5)


@needs_native
def test_the_native_softmax_has_the_same_bits_on_any_number_of_threads_and_keeps_what_is_not_a_number():
    csr = Csr(torch.arange(0, 4001, 4), torch.randint(900, (4000,)), 900)
    logit, value = torch.randn(4000, 4) * 20, torch.randn(900, 4, 30).requires_grad_()
    source, target = (torch.randn(rows, 4).requires_grad_() for rows in (900, 1000))
    found, gradients = [], []
    for threads in (1, 3):
        with compute_threads(threads):
            found.append(softmax_sums(csr, logit, value))
            mean = softmax_sums(csr, Halves(source, target, 0.2), value).mean
            gradients.append(torch.autograd.grad(mean.square().sum(), [source, target, value]))
    assert all(torch.equal(*pair) for pair in [*zip(*found, strict=True), *zip(*gradients, strict=True)])
    assert bool((found[0].denominator >= 1).all())
    logit[17, 2] = torch.nan
    spoilt = softmax_sums(csr, logit, value)
    assert spoilt.mean.isnan().nonzero()[:, :2].unique(dim=0).tolist() == [[4, 2]]


@given(csr=adjacencies(), cut=st.floats(0, 1))
def test_parts_of_an_adjacency_sum_to_the_whole(csr, cut):
    coefficient, value = random(csr.num_edges, 1, seed=1).detach(), random(csr.num_sources, 1, 3, seed=2).detach()
    every, middle = slice(0, csr.num_targets), int(cut * csr.num_edges)
    first, rest = csr.part(every, slice(0, middle)), csr.part(every, slice(middle, csr.num_edges))
    parts = (
        kernels.weighted_sum(first, coefficient[:middle], value),
        kernels.weighted_sum(rest, coefficient[middle:], value),
    )
    torch.testing.assert_close(parts[0] + parts[1], kernels.weighted_sum(csr, coefficient, value))


def test_an_identity_adjacency_needs_no_gather_and_gives_the_same():
    csr = identity(4)
    general = Csr(csr.offsets, csr.sources, 4)
    coefficient, value = random(4, 2, seed=1), random(4, 2, 3, seed=2)
    assert [choose(each, value).name for each in (csr, general)] == ["elementwise", "fused"]  # in float64
    for operation in (kernels.weighted_sum, kernels.segment_max):
        torch.testing.assert_close(operation(csr, coefficient, value), operation(general, coefficient, value))
    assert torch.equal(kernels.gather_targets(csr, value), value)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_have_the_same_bits_whatever_the_number_of_threads(threads):
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(50, (5000,), generator=generator).sort().values
    csr = Csr(
        torch.searchsorted(targets, torch.arange(51)), torch.randint(300, (5000,), generator=generator), num_sources=300
    )
    coefficient = torch.randn(5000, 2, generator=generator, requires_grad=True)
    value = torch.randn(300, 2, 16, generator=generator, requires_grad=True)
    before, runs = torch.get_num_threads(), []
    try:
        for count in (1, threads):
            torch.set_num_threads(count)
            sums = kernels.weighted_sum(csr, coefficient, value)
            runs.append((sums, *torch.autograd.grad(sums.square().sum(), (coefficient, value))))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (500, 121)])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 40.0])
def test_binary_cross_entropy_and_its_gradient_equal_torchs(shape, scale):
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(shape, generator=generator) * scale).requires_grad_()
    labels = (torch.rand(shape, generator=generator) < 0.3).float()
    exact = logits.detach().double().requires_grad_()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(exact, labels.double())
    found = binary_cross_entropy(logits, labels)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    if logits.numel():
        wanted, got = (torch.autograd.grad(3 * loss, x)[0] for loss, x in ((expected, exact), (found, logits)))
        torch.testing.assert_close(got.double(), wanted, rtol=1e-6, atol=3e-7 / logits.numel())


def test_binary_cross_entropy_keeps_what_is_no_number_and_its_bits_on_any_number_of_threads():
    logits, labels = torch.randn(300, 121), torch.ones(300, 121)
    found = []
    for threads in (1, 2, 5):
        with compute_threads(threads):
            found.append(binary_cross_entropy(logits, labels))
    assert all(torch.equal(each, found[0]) for each in found)
    logits[7, 3] = torch.nan
    assert binary_cross_entropy(logits, labels).isnan()


def test_what_an_adjacency_keeps_is_of_the_weights_of_now():
    csr, made = Csr(torch.tensor([0, 2, 3]), torch.tensor([1, 0, 1]), 2), []

    def doubled(weight):
        made.append(weight)
        return 2 * weight

    weight = torch.tensor([1.0, 2.0, 3.0])
    assert csr.kept("twice", (weight[:, None],), doubled).flatten().tolist() == [2.0, 4.0, 6.0]
    csr.kept("twice", (weight[:, None],), doubled)
    assert len(made) == 1
    weight[1] = 7.0
    assert csr.kept("twice", (weight[:, None],), doubled).flatten().tolist() == [2.0, 14.0, 6.0]
    assert csr.kept("twice", (weight[:2],), doubled).tolist() == [2.0, 14.0]
