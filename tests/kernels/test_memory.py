"""Large results take the memory that others of their size had, and give all of it back."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch
from torch.nn import functional

from gnnflow.kernels import cross_entropy
from gnnflow.kernels.memory import (
    _own_bytes,
    _Pieces,
    empty_rows,
    give_back,
    give_back_if_full,
    kept_memory,
    return_memory,
)

LARGE = 5 * 1024**2  # numbers


def test_a_large_tensor_lies_where_one_of_its_size_lay_before_and_never_where_one_still_does():
    with kept_memory():
        first, second = empty_rows(LARGE), empty_rows(LARGE // 8, 8)
        first.fill_(1.0)
        second.fill_(2.0)
        assert (first == 1.0).all()
        place = first.data_ptr()
        view = first.view(-1, 64)[5:]
        del first
        gc.collect()
        other = empty_rows(LARGE)
        assert other.data_ptr() != place, "a view is still there"
        assert (view == 1.0).all()
        del view
        gc.collect()
        again = empty_rows(LARGE)
        assert again.data_ptr() == place
        assert (second == 2.0).all()


def test_a_tensor_outlives_the_block_in_which_memory_was_kept():
    with kept_memory():
        rows = empty_rows(LARGE)
        rows.fill_(3.0)
    assert (rows == 3.0).all()
    outside, small = empty_rows(LARGE, 1), empty_rows(2, 3)
    assert (outside.shape, small.shape, small.dtype) == ((LARGE, 1), (2, 3), torch.float32)


def test_memory_that_fits_no_tensor_for_long_is_given_up_before_more_is_taken():
    with kept_memory():
        rows = empty_rows(LARGE)
        rows.fill_(4.0)
        del rows
        gc.collect()
        for _ in range(100):
            empty_rows(2 * LARGE)
        larger = empty_rows(4 * LARGE)
        assert (empty_rows(LARGE) == 0.0).all(), "the system clears what it gives anew"
        del larger


def test_under_a_budget_free_memory_is_given_up_for_what_is_asked_for():
    with kept_memory():
        return_memory(most=6 * LARGE, budget=None)
        first = empty_rows(LARGE)
        first.fill_(1.0)
        place = first.data_ptr()
        del first
        gc.collect()
        again = empty_rows(LARGE)
        assert again.data_ptr() == place, "within the budget it serves again"
        del again
        gc.collect()
        larger = empty_rows(2 * LARGE)
        larger.fill_(1.0)
        assert (empty_rows(LARGE) == 0.0).all(), "the system clears what it gives anew"


@pytest.mark.skipif(not _own_bytes(), reason="the system does not say what a process holds")
@pytest.mark.parametrize("is_full", [False, True])
def test_what_lies_between_tensors_in_use_is_given_back_where_a_budget_is_full(is_full):
    mib = 1024**2
    with kept_memory():
        give_back()  # else the tensors lie in holes that earlier tests left, and the process does not grow by them
        return_memory(most=0, budget=(60 if is_full else 1000) * mib)
        # each smaller than what is mapped apart, so that every second one leaves a hole
        rows = [torch.ones(mib // 4) for _ in range(64)]
        del rows[::2]
        before = _own_bytes()
        give_back_if_full()
        given = (before - _own_bytes()) / mib
        assert given > 24 if is_full else given < 8
        assert all(bool((each == 1.0).all()) for each in rows)


def test_the_piece_of_a_tensor_that_ends_while_others_are_given_up_is_not_lost():
    pieces, page = _Pieces(), mmap.PAGESIZE

    class Ending(bytes):
        """A piece in the midst of whose being counted a tensor ends; take() asks for its size once before that."""

        asked = 0

        def __len__(self):
            self.asked += 1
            if self.asked == 2:
                pieces.give(mmap.mmap(-1, page))
            return super().__len__()

    pieces.users, pieces._bytes = 1, 3 * page
    pieces._free = [(0, Ending(2 * page))]
    pieces.take(page // 2)
    assert sum(len(piece) for _, piece in pieces._free) == 3 * page
    assert pieces._bytes == 4 * page, "free ones, and what was taken"


@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_in_kept_memory_has_the_bits_of_torchs(weighted):
    rows, classes = torch.randn(LARGE // 40, 41) * 5, torch.arange(LARGE // 40) % 41
    weight = torch.rand(41) if weighted else None
    own, other = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    expected = functional.cross_entropy(other, classes, weight=weight)
    with kept_memory():
        found = cross_entropy(own, classes, weight)
        assert "_CrossEntropy" in type(found.grad_fn).__name__
        (found * 0.3).backward()
    (expected * 0.3).backward()
    assert torch.equal(found, expected)
    assert torch.equal(own.grad, other.grad)
