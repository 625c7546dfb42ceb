"""What goes round a ring: every rank sees every interval in one order, its owner alone reads it, gradients add up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from gnnflow.executions.plan import TermLayout
from gnnflow.executions.streamed import Held, Ring, passing_terms, sources_of
from tests.contracts.in_process import on_ranks

WIDTH = 2
COLUMNS = TermLayout(("rows",), ((WIDTH,),))


class Kept:
    """Rows in memory that know what was read of them."""

    def __init__(self, held):
        self.held, self.read_of, self.fails_at = dict(held), [], None

    def read(self, interval):
        if interval == self.fails_at:
            raise OSError("the disk is gone")
        self.read_of.append(interval)
        return self.held[interval].clone()

    def write(self, interval, parts):
        self.held[interval] = torch.cat(list(parts))

    def release(self):
        pass


def sizes_of(ranks, each):
    """Intervals of unequal sizes, one of them empty."""
    return tuple(number % 3 for number in range(ranks * each))


def value(interval, sizes):
    return torch.full((sizes[interval] * WIDTH,), float(interval + 1))


def ring_of(exchange, each, *, copies=False):
    return Ring(exchange, sizes_of(exchange.size, each), copies=copies)


def graph_of(ring):
    """Every other interval of a rank is of type 1."""
    each = len(ring.sizes) // ring.exchange.size
    return SimpleNamespace(ring=ring, sizes=ring.sizes, types=[at % each % 2 for at in range(len(ring.sizes))])


def terms_of(ring):
    return Kept({each: value(each, ring.sizes) for each in ring.own})


def parts_of(ring, rank):
    """What a rank adds to the gradient of each interval."""
    return {each: value(each, ring.sizes) * (rank + 1) for each in range(len(ring.sizes))}


@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize(("ranks", "each"), [(2, 1), (2, 3), (3, 2), (4, 2)])
def test_all_see_all_and_the_owner_alone_reads_where_nobody_keeps_copies(ranks, each, copies):
    def run(exchange):
        ring = ring_of(exchange, each, copies=copies)
        rows, graph = terms_of(ring), graph_of(ring)
        rounds = [list(sources_of(graph, None)) for _ in range(3)]
        seen = []
        with passing_terms(graph, None, Held(COLUMNS, rows), rounds) as passed:
            for wanted in rounds:
                seen += [(number, passed.terms.read(number)["rows"].flatten()) for number in wanted]
        return ring, seen, rows.read_of

    for ring, seen, read_of in on_ranks(ranks, run):
        assert [number for number, _ in seen] == [*ring.order] * 3
        assert sorted(ring.order) == list(range(len(ring.sizes)))
        assert all(torch.equal(found, value(number, ring.sizes)) for number, found in seen)
        later = ring.order if copies else list(ring.own)
        assert read_of == [*ring.own, *later, *later]


def test_what_a_rank_does_not_read_goes_by():
    def run(exchange):
        ring = ring_of(exchange, 2)
        graph = graph_of(ring)
        wanted = [[number for number in ring.order if number % 2 == exchange.rank % 2], ring.order[-1:]]
        with passing_terms(graph, None, Held(COLUMNS, terms_of(ring)), wanted) as passed:
            return [passed.terms.read(number)["rows"].flatten() for each in wanted for number in each], wanted, ring

    for found, wanted, ring in on_ranks(3, run):
        expected = [value(number, ring.sizes) for each in wanted for number in each]
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))


@pytest.mark.parametrize(("ranks", "each"), [(2, 1), (2, 3), (3, 2), (4, 1)])
def test_gradients_are_summed_over_ranks_and_end_at_their_owner(ranks, each):
    def run(exchange):
        ring = ring_of(exchange, each)
        graph, home = graph_of(ring), terms_of(ring)
        own = parts_of(ring, exchange.rank)
        with passing_terms(graph, None, Held(COLUMNS, terms_of(ring)), [ring.order], Held(COLUMNS, home)) as passed:
            for number in ring.order:
                passed.terms.read(number)
                passed.gradients.write(number, {"rows": own[number].view(-1, WIDTH)})
        return ring, home.held

    factor = sum(rank + 1 for rank in range(ranks))
    for ring, held in on_ranks(ranks, run):
        assert list(held) == list(ring.own)
        assert all(torch.equal(held[number], factor * value(number, ring.sizes)) for number in ring.own)


def test_a_disk_that_fails_is_told_where_the_rows_are_taken():
    def run(exchange):
        ring = ring_of(exchange, 2)
        graph, rows = graph_of(ring), terms_of(ring)
        rows.fails_at = 3
        with passing_terms(graph, None, Held(COLUMNS, rows), [ring.order]) as passed:
            for number in ring.order:
                passed.terms.read(number)

    with pytest.raises(OSError, match="the disk is gone"):
        on_ranks(2, run)


def test_a_rank_that_fails_waits_for_nobody():
    class WrongError(Exception):
        pass

    def run(exchange):
        ring = ring_of(exchange, 2)
        graph = graph_of(ring)
        with passing_terms(graph, None, Held(COLUMNS, terms_of(ring)), [ring.order]) as passed:
            passed.terms.read(ring.order[0])
            if exchange.rank == 1:
                raise WrongError
            for number in ring.order[1:]:
                passed.terms.read(number)

    with pytest.raises(WrongError):
        on_ranks(2, run)


@pytest.mark.parametrize(("ranks", "each"), [(2, 2), (3, 4), (2, 1)])
def test_intervals_of_one_type_alone_go_round(ranks, each):
    def run(exchange):
        ring = ring_of(exchange, each)
        graph, home, seen = graph_of(ring), terms_of(ring), {}
        for node_type in (0, 1):
            wanted = sources_of(graph, node_type)
            with passing_terms(
                graph, node_type, Held(COLUMNS, terms_of(ring)), [wanted], Held(COLUMNS, home)
            ) as passed:
                for number in wanted:
                    seen[number] = passed.terms.read(number)["rows"].flatten()
                    passed.gradients.write(number, {"rows": parts_of(ring, exchange.rank)[number].view(-1, WIDTH)})
        return ring, seen, home.held

    for ring, seen, home in on_ranks(ranks, run):
        assert sorted(seen) == list(range(len(ring.sizes)))
        assert all(torch.equal(found, value(number, ring.sizes)) for number, found in seen.items())
        every = sum(range(1, ranks + 1))
        assert all(torch.equal(home[number], value(number, ring.sizes) * every) for number in ring.own)
