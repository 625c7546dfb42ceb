"""Equal training jobs give equal bytes: seeds are a function of the step, and torch runs deterministically.

Dropout draws from a generator of the training's own (`gnnflow.kernels.draws`). Before every step it is seeded with a
hash of (seed, epoch, step, rank), so a step's draws do not depend on how many steps, evaluations or restarts came
before it, nor on what else computes in the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch.utils import deterministic as _untyped

from gnnflow.graph.hashing import mix, seed_word
from gnnflow.kernels.device import CPU, compute_threads, computing_on
from gnnflow.kernels.draws import own_draws, seed_draws
from gnnflow.kernels.memory import kept_memory


def seed_step(seed: int, *, epoch: int, step: int, rank: int, device: torch.device = CPU) -> None:
    """Make the random draws of one training step on a device a function of these four numbers."""
    word = mix(np.array([_epoch_word(seed, epoch, rank) ^ np.uint64(step)]))
    seed_draws(int(word[0]), device)


@lru_cache(maxsize=4)
def _epoch_word(seed: int, epoch: int, rank: int) -> np.uint64:
    return seed_word("step", seed, epoch, rank)


@contextmanager
def compute_settings(threads: int, device: torch.device = CPU) -> Iterator[None]:
    """Compute on a device with so many threads, deterministic kernels and memory that is kept; restored on leaving.

    The number of threads is part of what decides the bits: MKL cuts the inner dimension of a matrix product over them,
    and so do reductions to a single number (docs/decisions/0007-threads.md).

    On a CPU only the accumulating index kernels change. Filling uninitialised memory, which the deterministic
    mode also turns on, is left off: it costs a pass over every buffer and nothing reads one before writing
    it.
    """
    cards = [] if device.type == "cpu" else [device.index]
    with (
        computing_on(device, where="train.device"),
        torch.random.fork_rng(devices=cards, enabled=bool(cards)),
        own_draws(),
        compute_threads(threads),
        kept_memory(),
        _DETERMINISTIC,
    ):
        yield


class _Deterministic:
    """Torch's deterministic mode, which is one for all threads: on until the last block that asks for it ends."""

    def __init__(self) -> None:
        self._lock, self._blocks = Lock(), 0
        self._before: tuple[int, bool] = (0, True)

    def __enter__(self) -> None:
        deterministic: Any = _untyped  # a module whose setting is a property, which no stub declares
        with self._lock:
            self._blocks += 1
            if self._blocks > 1:
                return
            self._before = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
            # the same as use_deterministic_algorithms(True), which imports the whole compiler to tell it too
            torch.set_deterministic_debug_mode("error")
            deterministic.fill_uninitialized_memory = False

    def __exit__(self, *_: object) -> None:
        deterministic: Any = _untyped
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                mode, deterministic.fill_uninitialized_memory = self._before
                torch.set_deterministic_debug_mode(mode)


_DETERMINISTIC = _Deterministic()
