"""The same graph for a model on a graphics card.

Rows and edges stay with the machine, and pieces of them come to the card.

    card = Card(device)
    graph = files.on_card(card)         a `StreamedGraph` whose tensors are on the card

What is read comes through page-locked memory, on a stream for copies alone: the threads that read ahead wait for their
copies, the thread that computes does not. What is written goes back on another stream, and the thread that writes
waits. All memory of the card belongs to the stream that computes: a copy begins behind what was asked of the
card before it, so it never fills memory that is still read. The processor may run ahead of the card.

Edges travel as they lie in files (`packed.py`), at 4 bytes a number.

Shapes: n rows of an interval, K numbers per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from gnnflow.train.streamed.files import NodeFile, ScratchFile


@dataclass(frozen=True)
class Card:
    """Copies between page-locked memory and one device. On the CPU they are plain copies."""

    device: torch.device
    _streams: list[torch.cuda.Stream] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make one stream of copies for each way."""
        if self.device.type == "cuda":
            self._streams.extend(torch.cuda.Stream(self.device) for _ in range(2))  # type: ignore[no-untyped-call]

    def fetched(self, held: Tensor) -> Tensor:
        """Return a copy on the device, which is there when this returns. held: page-locked, or it is copied twice."""
        if not self._streams:
            return held.to(self.device, copy=True)
        with torch.cuda.device(self.device):
            here, inward = torch.empty(held.shape, dtype=held.dtype, device=self.device), self._streams[0]
            inward.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(inward):
                here.copy_(held if held.is_pinned() else held.pin_memory(), non_blocking=True)
            inward.record_event().synchronize()
        return here

    def run(self, file: ScratchFile, at: int, num_bytes: int) -> Tensor:
        """Return whole numbers of 4 bytes that lie in a file, on the device."""
        return self.fetched(file.lent(at, num_bytes).view(torch.int32))

    def sent(self, parts: Sequence[Tensor], into: Tensor) -> Callable[[], None]:
        """Begin to copy tensors of the device into page-locked memory [K n], one after the other.

        Returns what waits until they are there. The tensors must not change before.
        """
        flat = [part.reshape(-1) for part in parts]
        runs = torch.split(into, [len(part) for part in flat])
        if not self._streams:
            for run, part in zip(runs, flat, strict=True):
                run.copy_(part)
            return lambda: None
        outward = self._streams[1]
        outward.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(outward):
            for run, part in zip(runs, flat, strict=True):
                run.copy_(part, non_blocking=True)
        return partial(_wait, outward.record_event(), flat)


def _wait(done: torch.cuda.Event, parts: Sequence[Tensor]) -> None:
    """Wait for copies, and hold what they read until then."""
    done.synchronize()
    del parts


@dataclass(frozen=True)
class CardRows:
    """K numbers for each node that lie with the machine: `gnnflow.executions.streamed.graph.Rows` on a card."""

    held: NodeFile
    card: Card

    def read(self, interval: int, columns: int | None = None) -> Tensor:
        """Return an interval's numbers [n K], or the first so many columns of them."""
        held = self.held.lent(interval)
        return self.card.fetched(held if columns is None else held[: self.held.active[interval] * columns])

    def write(self, interval: int, parts: Sequence[Tensor]) -> None:
        """Copy an interval's numbers back in the background, and write them where they lie in a file."""
        self.held.fill_by(interval, partial(self.card.sent, parts))

    def release(self) -> None:
        """Give the room back."""
        self.held.release()
