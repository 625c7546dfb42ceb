"""Trainings that share a process, as stages of several runs do on one Dask worker, have the bytes they have alone."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from gnnflow.progress import Silent
from gnnflow.train.reproducible import compute_settings
from gnnflow.train.trainer import train
from tests.train.planted import job_for, planted

GRAPH = planted()
# dropout draws in every step, and attention's in every layer
JOBS = [
    replace(job_for(GRAPH, kind=kind, epochs=8, batch_size=8, baseline=kind == "sage", threads=threads), seed=seed)
    for kind, seed, threads in (("sage", 1, 1), ("gat", 2, 2), ("sage", 3, 1))
]


def weights_of(job):
    return train(job, progress=Silent(), open_source=GRAPH.open_source).weights


@pytest.fixture
def often_switched():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
@pytest.mark.usefixtures("often_switched")
def test_trainings_beside_each_other_and_beside_models_that_are_built_give_the_bytes_they_give_alone():
    alone = [weights_of(job) for job in JOBS]
    ended = threading.Event()

    def build() -> None:
        while not ended.is_set():  # as every task that scores loads a model
            JOBS[0].model.build()

    with ThreadPoolExecutor(len(JOBS) + 1) as pool:
        building = pool.submit(build)
        beside = list(pool.map(weights_of, JOBS))
        ended.set()
        building.result()
    assert beside == alone


def test_the_kernels_are_deterministic_until_the_last_training_ends():
    before, begun, ended = torch.get_deterministic_debug_mode(), threading.Event(), threading.Event()

    def first() -> None:
        with compute_settings(1):
            begun.set()
            assert ended.wait(60)

    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(first)
        assert begun.wait(60)
        with compute_settings(1):
            ended.set()
            training.result()
            assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_deterministic_debug_mode() == before
