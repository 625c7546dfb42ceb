"""Equal training jobs give equal bytes: seeds are a function of the step, and torch runs deterministically.

Dropout draws from torch's generator, which is one global stream. Before every step it is seeded with a hash
of (seed, epoch, step, rank), so a step's draws do not depend on how many steps, evaluations or restarts came
before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.utils import deterministic as _untyped

from gnnflow.graph.hashing import mix, seed_word
from gnnflow.kernels.device import CPU, computing_on, generator_of
from gnnflow.kernels.memory import kept_memory
from gnnflow.kernels.threads import compute_threads


def seed_step(seed: int, *, epoch: int, step: int, rank: int, device: torch.device = CPU) -> None:
    """Make the random draws of one training step on a device a function of these four numbers."""
    word = mix(np.array([_epoch_word(seed, epoch, rank) ^ np.uint64(step)]))
    generator_of(device).manual_seed(_nonnegative(word[0]))


def seed_weights(seed: int) -> None:
    """Make the initial weights a function of the seed."""
    torch.default_generator.manual_seed(_nonnegative(seed_word("weights", seed)))


@lru_cache(maxsize=4)
def _epoch_word(seed: int, epoch: int, rank: int) -> np.uint64:
    return seed_word("step", seed, epoch, rank)


def _nonnegative(word: np.uint64) -> int:
    return int(word) >> 1


@contextmanager
def compute_settings(threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Compute on a device with so many threads, deterministic kernels and memory that is kept; restored on leaving.

    The number of threads is part of what decides the bits: MKL cuts the inner dimension of a matrix product over them,
    and so do reductions to a single number (docs/decisions/0007-threads.md).

    On a CPU only the accumulating index kernels change. Filling uninitialised memory, which the deterministic
    mode also turns on, is left off: it costs a pass over every buffer and nothing reads one before writing
    it.
    """
    deterministic: Any = _untyped  # a module whose setting is a property, which no stub declares
    mode = torch.get_deterministic_debug_mode()
    filling = deterministic.fill_uninitialized_memory
    cards = [] if device.type == "cpu" else [device.index]
    with (
        computing_on(device, where="train.device"),
        torch.random.fork_rng(devices=cards),
        compute_threads(threads),
        kept_memory(),
    ):
        try:
            # the same as use_deterministic_algorithms(True), which imports the whole compiler to tell it too
            torch.set_deterministic_debug_mode("error")
            deterministic.fill_uninitialized_memory = False
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            deterministic.fill_uninitialized_memory = filling
