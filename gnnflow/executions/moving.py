"""Moves batches to the device that computes them: page-locked memory, and a stream that copies during the compute.

    pinned = mover.pinned(tensors)         by the thread that prepared them
    moved = mover.begin(pinned)            starts the copies and returns at once
    tensors = mover.arrived(moved)         by the thread that computes: its stream waits for the copies, it does not

On the CPU all three return their argument. Any frozen dataclass of tensors can be moved; the values that it has cached
(`cached_property`) do not move with it, and are computed again where they are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor

from gnnflow.kernels import Csr
from gnnflow.kernels.device import CPU

Held = TypeVar("Held")


@dataclass(frozen=True)
class Moved(Generic[Held]):
    """The moved tensors, and the event that ends their copy; None where they have arrived already."""

    held: Held
    done: Any = None


@dataclass(frozen=True)
class Mover:
    """Moves to one device. Any thread may begin; copies reach the device in the order they were begun in."""

    device: torch.device = CPU
    _streams: list[Any] = field(default_factory=list)

    @property
    def leaves_the_cpu(self) -> bool:
        """True if batches are computed on a device other than the CPU."""
        return self.device.type != "cpu"

    def pinned(self, held: Held) -> Held:
        """Return the same in page-locked memory, from which copies run while the processor computes.

        Raises IndexError where an edge refers to a missing row: a graphics card does not check that.
        """
        if not self.leaves_the_cpu:
            return held
        for each in _parts_of(held):
            if isinstance(each, Csr) and not each.is_sound:
                raise IndexError("an edge of the adjacency refers to a row that does not exist")
        return mapped(held, Tensor.pin_memory)

    def begin(self, held: Held, *, then: Callable[[Held], None] | None = None) -> Moved[Held]:
        """Start to move it. then: called with the copy, to compute more from it on the copying stream."""
        if not self.leaves_the_cpu:
            if then is not None:
                then(held)
            return Moved(held)
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream()):
            moved = mapped(held, lambda tensor: tensor.to(self.device, non_blocking=True))
            if then is not None:
                then(moved)
            return Moved(moved, self._stream().record_event())

    def arrived(self, moved: Moved[Held]) -> Held:
        """Return the moved tensors, for the current stream to compute on."""
        if moved.done is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(moved.done)
            for tensor in tensors_of(moved.held):
                tensor.record_stream(stream)  # the copying stream owns its memory and must not reuse it
        return moved.held

    def _stream(self) -> Any:
        if not self._streams:
            self._streams.append(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        return self._streams[0]


def to_device(device: torch.device, held: Held) -> Held:
    """Return a frozen dataclass, or a container, with its tensors on a device."""
    return held if device.type == "cpu" else mapped(held, lambda each: each.to(device))


def mapped(held: Held, function: Callable[[Tensor], Tensor]) -> Held:
    """Return a frozen dataclass with a function applied to each tensor of its fields, and of theirs."""
    return cast("Held", _mapped(held, function))


def _mapped(held: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(held, Tensor):
        return function(held)
    if isinstance(held, tuple):
        return tuple(_mapped(each, function) for each in held)
    if isinstance(held, Mapping):
        return {name: _mapped(each, function) for name, each in held.items()}
    if dataclasses.is_dataclass(held) and not isinstance(held, type):
        names = [each.name for each in dataclasses.fields(held)]
        return dataclasses.replace(held, **{name: _mapped(getattr(held, name), function) for name in names})
    return held


def tensors_of(held: Any) -> Iterator[Tensor]:
    """Yield each tensor below a dataclass, with what it has derived and kept so far."""
    return (each for each in _parts_of(held) if isinstance(each, Tensor))


def _parts_of(held: Any) -> Iterator[Any]:
    yield held
    inner: list[Any] = []
    if isinstance(held, tuple):
        inner = list(held)
    elif isinstance(held, Mapping):
        inner = list(held.values())
    elif dataclasses.is_dataclass(held) and not isinstance(held, type):
        inner = list(vars(held).values())
    for each in inner:
        yield from _parts_of(each)
