"""Generators of random draws: each training has a separate one, though others compute in the same process.

torch has one generator for all threads of a process. Several runs share a process, as tasks on a Dask worker, and every
task that scores builds a model, whose layers draw numbers before the saved ones replace them.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from gnnflow.kernels.device import CPU

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_OWN = threading.local()
_SHARED_LOCK = threading.RLock()


def generator_of(device: torch.device) -> torch.Generator:
    """Return the generator of random draws on a device: this thread's own one, or the shared one."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return getattr(_OWN, "generator", torch.default_generator)


def seed_draws(word: int, device: torch.device) -> None:
    """Make the following draws on a device a function of a word of 64 bits.

    The shared generator is seeded too: a user's layer may draw from no other.
    """
    # `torch.manual_seed` would ask every kind of device, which takes a millisecond
    with _SHARED_LOCK:
        generator_of(device).manual_seed(word >> 1)
        if device.type == "cpu":
            torch.default_generator.manual_seed(word >> 1)


@contextmanager
def own_draws() -> Iterator[None]:
    """Let this thread draw from a separate generator within a block; afterwards the shared one is restored."""
    before = generator_of(CPU)
    with _SHARED_LOCK:
        state = torch.default_generator.get_state()
    _OWN.generator = torch.Generator()
    try:
        yield
    finally:
        _OWN.generator = before
        with _SHARED_LOCK:
            torch.default_generator.set_state(state)


@contextmanager
def initial_draws(word: int | None = None) -> Iterator[None]:
    """Keep other threads from drawing initial weights, which read the shared generator, within a block.

    word: the seed of 64 bits, if any.
    """
    with _SHARED_LOCK:
        if word is not None:
            torch.default_generator.manual_seed(word >> 1)
        yield


def repeated_draws() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return two contexts for `torch.utils.checkpoint`: the second repeats the draws of the first.

    torch restores its default generators.
    """
    states: list[torch.Tensor] = []

    @contextmanager
    def first() -> Iterator[None]:
        states.append(generator_of(CPU).get_state())
        yield

    @contextmanager
    def again() -> Iterator[None]:
        generator = generator_of(CPU)
        before = generator.get_state()
        generator.set_state(states[0])
        try:
            yield
        finally:
            generator.set_state(before)

    return first(), again()
