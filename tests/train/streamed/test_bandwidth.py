"""Who reads source intervals follows from how fast disks and links are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gnnflow.kernels.device import CPU
from gnnflow.train.streamed.bandwidth import Bandwidths, keeps_copies, measured
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import LocalDisk, Scratch
from tests.contracts.in_process import on_ranks


@pytest.mark.parametrize(
    ("reads", "links", "expected"),
    [
        ([200, 200], [900, 900], False),  # the owner reads half of what each would
        ([3000, 3000], [900, 900], True),  # a link carries half of the rows, slower than a disk gives all
        ([3000, 200], [900, 900], False),  # copies would be read as slowly as the slowest disk gives all
        ([3000, 3000], [900, 40], True),  # the slowest link holds all up
        ([1000, 1000], [500, 500], False),  # no better: less is written
    ],
)
def test_copies_are_kept_where_links_are_slower_than_disks(reads, links, expected):
    found = Bandwidths(np.array(reads), np.array(links))
    assert keeps_copies(found, np.array([1000, 1000])) is expected


def test_a_rank_with_most_of_the_nodes_is_what_the_ring_waits_for():
    found = Bandwidths(np.array([100, 100, 100]), np.array([400, 400, 400]))
    assert not keeps_copies(found, np.array([10, 10, 10]))
    # all go over one link or another, four times as fast: as long as reading the one's own
    assert keeps_copies(Bandwidths(found.reads, found.links // 5), np.array([28, 1, 1]))


@pytest.mark.parametrize("folder", [None, "a folder"])
def test_ranks_of_cards_measure_what_cards_read_and_send(folder, tmp_path):
    def run(exchange):
        scratch = Scratch(folder and str(tmp_path))
        try:
            return measured(scratch, exchange, Card(CPU))
        finally:
            scratch.close()

    first, other = on_ranks(2, run)
    assert (first.reads > 0).all()
    assert (first.links > 0).all()
    assert (first.reads == other.reads).all()


def test_all_ranks_measure_the_same_and_a_slow_disk_is_seen(tmp_path):
    class Slow(LocalDisk):
        def read(self, file, into, at):
            super().read(file, into, at)
            time.sleep(len(into) / (64 << 20))

    def run(exchange):
        scratch = Scratch(str(tmp_path), Slow() if exchange.rank == 1 else LocalDisk())
        try:
            return measured(scratch, exchange)
        finally:
            scratch.close()

    first, *others = on_ranks(3, run)
    assert first.reads.shape == first.links.shape == (3,)
    assert (first.links > 0).all()
    assert first.reads[1] <= 64 << 20
    assert all((each.reads == first.reads).all() and (each.links == first.links).all() for each in others)
    assert not list(tmp_path.iterdir())
