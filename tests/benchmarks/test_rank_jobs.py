"""A rank's threads get cores of their own, whole ones, where the machine has them."""

from __future__ import annotations

import os

from rank_jobs import cores, dealt_cores

PAIRS = [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_a_rank_of_one_thread_has_a_whole_core():
    assert dealt_cores(PAIRS, ranks=4, threads=1) == PAIRS


def test_a_rank_and_its_reader_have_two_cores_where_there_are_enough():
    assert dealt_cores(PAIRS, ranks=2, threads=2) == [[0, 4, 1, 5], [2, 6, 3, 7]]
    assert dealt_cores(PAIRS, ranks=3, threads=2) == PAIRS[:3]


def test_more_ranks_than_cores_are_not_placed():
    assert dealt_cores(PAIRS, ranks=5, threads=1) == []


def test_every_processor_of_this_process_is_of_one_core():
    assert sorted(cpu for core in cores() for cpu in core) == sorted(os.sched_getaffinity(0))
