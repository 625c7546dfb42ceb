"""Which generator random draws read: of a training its own, though others compute in the same process.

torch has one generator for all threads of a process. Stages of several runs share one, as tasks on a Dask worker, and
every task that scores builds a model, whose layers draw numbers that the saved ones then replace.
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
_OF_ALL = threading.RLock()


def generator_of(device: torch.device) -> torch.Generator:
    """Return the generator that random draws on a device read: this thread's own, or the one of all threads."""
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    return getattr(_OWN, "generator", torch.default_generator)


def seed_draws(word: int, device: torch.device) -> None:
    """Make the draws that follow on a device a function of a word of 64 bits.

    The generator of all threads is seeded too: a layer of somebody else's may draw from no other.
    """
    # of these alone: `torch.manual_seed` asks every kind of device, at a millisecond each time
    with _OF_ALL:
        generator_of(device).manual_seed(word >> 1)
        if device.type == "cpu":
            torch.default_generator.manual_seed(word >> 1)


@contextmanager
def own_draws() -> Iterator[None]:
    """Have this thread draw from a generator of its own for the length of a block; that of all is restored after it."""
    before = generator_of(CPU)
    with _OF_ALL:
        state = torch.default_generator.get_state()
    _OWN.generator = torch.Generator()
    try:
        yield
    finally:
        _OWN.generator = before
        with _OF_ALL:
            torch.default_generator.set_state(state)


@contextmanager
def initial_draws(word: int | None = None) -> Iterator[None]:
    """Keep other threads from drawing initial weights, which read the generator of all, for the length of a block.

    word: of 64 bits, which the generator is seeded with.
    """
    with _OF_ALL:
        if word is not None:
            torch.default_generator.manual_seed(word >> 1)
        yield


def repeated_draws() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return a context for what `torch.utils.checkpoint` computes, and one for computing it again with the same draws.

    torch sees to its own generators.
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
