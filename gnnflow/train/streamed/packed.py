"""Pieces of edges as kernels take them: by target and by source, sorted once when the graph is filed.

Little is left to do where a piece is read (CSC and CSR; NGra, Ma et al. 2018, section 4): its numbers lie in as few
bytes as hold them (`coding.py`), and the core takes them in 4. A card is sent them in 4, and they lie so. That no edge
leads outside of its rows is checked when it is written.

Shapes: T targets, S sources and E edges of a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnflow.executions.moving import mapped
from gnnflow.executions.streamed import EVERY, Piece, read_ahead
from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.arrays import Array, IntArray
from gnnflow.kernels import Csr
from gnnflow.kernels.memory import give_back
from gnnflow.train.streamed.files import NUMBER, Scratch, ScratchFile, bytes_of

ROWS_OF_TWO_BYTES = 1 << 16
"""The most rows of which a number of two bytes tells each."""

_OF_BYTES = {1: np.uint8, 2: np.uint16, 4: np.int32}


@dataclass(frozen=True)
class Coding:
    """The form of numbers in a file. num_bytes: of each. are_steps: each lies as its difference from the one before."""

    num_bytes: int
    are_steps: bool = False

    @classmethod
    def of(cls, numbers: IntArray) -> Coding:
        """Return the coding of the fewest bytes."""
        plain = cls(_bytes_of(numbers))
        steps = np.diff(numbers, prepend=0)
        by_steps = _bytes_of(steps)
        return cls(by_steps, are_steps=True) if by_steps < plain.num_bytes else plain

    def coded(self, numbers: IntArray) -> Array:
        """Return the numbers as they lie: whole numbers of 4 bytes, which the last ones fill up."""
        held = np.diff(numbers, prepend=0) if self.are_steps else numbers
        made = np.zeros(self.run(len(numbers)), np.int32)
        made.view(_OF_BYTES[self.num_bytes])[: len(held)] = held
        return made

    def run(self, number: int) -> int:
        """Return how many whole numbers of 4 bytes so many take."""
        return -(-number * self.num_bytes // 4)

    def decoded(self, run: Array, number: int, dtype: type[np.integer]) -> Array:
        """Return the first so many numbers of a run of whole numbers of 4 bytes."""
        held = run.view(_OF_BYTES[self.num_bytes])[:number]
        return np.cumsum(held, dtype=dtype) if self.are_steps else held.astype(dtype, copy=False)


PLAIN = Coding(4)


def _bytes_of(numbers: IntArray) -> int:
    """Return the bytes of each of some numbers; below zero there are four."""
    if not len(numbers):
        return 1
    least, most = int(numbers.min()), int(numbers.max())
    return next((each for each in (1, 2) if least >= 0 and most < 1 << 8 * each), 4)


Fetch = Callable[[ScratchFile, int, int], Tensor]
"""What reads a run of a file, given where it begins and its bytes, as whole numbers of 4 bytes."""


def read_run(file: ScratchFile, at: int, num_bytes: int) -> Tensor:
    """Read a run of a file into memory of the process."""
    held = np.empty(num_bytes // NUMBER, np.int32)
    if len(held):
        file.read(bytes_of(held), at)
    return torch.from_numpy(held)


def packed(
    pieces: Sequence[Piece], scratch: Scratch, fetch: Fetch, *, threads: int, picks: bool = False, plain: bool = False
) -> list[Piece]:
    """Write pieces anew and return them. threads: that read and sort, a piece each. plain: numbers have 4 bytes.

    picks: edges from `EVERY` have as sources the rows alone that they name.
    Raises IndexError where an edge leads outside of its rows.
    """
    file = scratch.file()
    stored = partial(_Stored.of, file, plain=plain)
    with read_ahead(
        [partial(_sorted, piece, picks and piece.source == EVERY) for piece in pieces], number=threads
    ) as held:
        found = [_in_file(piece, *next(held), stored, fetch) for piece in pieces]
    file.lock()
    give_back()
    return found


def _in_file(
    piece: Piece, block: BlockTensors, named: Tensor | None, stored: Callable[[object], _Stored], fetch: Fetch
) -> Piece:
    """Write a sorted piece and return it as one that is read from where it lies now."""
    rows = None if named is None else partial(stored(named).read, fetch)
    csr, reverse = block.csr, None
    if block.leaves is None:
        by_source = csr.by_source
        reverse = _Reverse(
            stored(by_source.offsets),
            stored(csr.transposed.sources),
            stored(by_source.sources),
            _longest(by_source),
        )
    forward = _Forward(
        stored(replace(block, csr=replace(csr, sources=csr.sources[:0]))),
        stored(csr.sources),
        csr.num_edges,
        _longest(csr),
    )
    return replace(piece, load=partial(_load, fetch, forward, reverse), rows=rows)


class StoredCsr(Csr):
    """An adjacency that was checked when it was written, of which is read what is asked for.

    numbers: reads its sources, in 4 bytes each on a CPU. order, reverse: read which edges each source's are [E]; and
    where these begin [S + 1], and their targets [E]: None where edges have leaves. most_out: the most out-edges of a
    source.
    """

    _num_edges: int
    _most_out: int | None
    _read: Callable[[], Tensor]
    _order: Callable[[], Tensor] | None
    _read_reverse: Callable[[], tuple[Tensor, Tensor]] | None

    def __init__(
        self,
        offsets: Tensor,
        numbers: Callable[[], Tensor],
        num_sources: int,
        num_edges: int,
        *,
        is_edgewise: bool = False,
        longest: int | None = None,
        most_out: int | None = None,
        order: Callable[[], Tensor] | None = None,
        reverse: Callable[[], tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        given = {"offsets": offsets, "num_sources": num_sources, "is_identity": False, "is_edgewise": is_edgewise}
        vars(self).update(given, longest=longest, _num_edges=num_edges, _most_out=most_out)
        vars(self).update(_read=numbers, _order=order, _read_reverse=reverse)

    @cached_property
    def sources(self) -> Tensor:
        """The sources in 8 bytes each."""
        return self.numbers.to(torch.int64)

    @cached_property
    def numbers(self) -> Tensor:
        """The sources as they lie in the file."""
        return self._read()

    @property
    def num_edges(self) -> int:
        """Number of edges E."""
        return self._num_edges

    @cached_property
    def is_sound(self) -> bool:
        """True."""
        return True

    @cached_property
    def by_source(self) -> Csr:
        """The positions of each source's out-edges."""
        if self._order is None:
            return super().by_source
        ends = self._reverse[0]
        return StoredCsr(ends, self._order, self.num_edges, self.num_edges, longest=self._most_out)

    @cached_property
    def transposed(self) -> Csr:
        """The reversed adjacency; its edge i is our edge by_source.sources[i]."""
        if self._read_reverse is None:
            return super().transposed
        ends, targets = self._reverse
        return StoredCsr(ends, lambda: targets, self.num_targets, self.num_edges, longest=self._most_out)

    @cached_property
    def _reverse(self) -> tuple[Tensor, Tensor]:
        assert self._read_reverse is not None
        return self._read_reverse()


@dataclass(frozen=True)
class _Stored:
    """Tensors that lie in a file one after the other. like: the object without its numbers; codings: of each."""

    file: ScratchFile
    at: int
    num_bytes: int
    like: object
    codings: tuple[Coding, ...]

    @classmethod
    def of(cls, file: ScratchFile, held: object, *, plain: bool) -> _Stored:
        """Write the tensors below a dataclass or tuple."""
        at, codings = file.size, []

        def stored(each: Tensor) -> Tensor:
            array = each.numpy().reshape(-1)
            whole = each.dtype == torch.int64
            assert whole or each.element_size() == NUMBER
            codings.append(Coding.of(array) if whole and not plain else PLAIN)
            file.append(bytes_of(codings[-1].coded(array) if whole else array))
            return torch.empty_like(each, device="meta")

        like = mapped(held, stored)
        return cls(file, at, file.size - at, like, tuple(codings))

    def read(self, fetch: Fetch) -> Any:
        """Return the same: whole numbers in 8 bytes."""
        left, codings = fetch(self.file, self.at, self.num_bytes), iter(self.codings)

        def taken(like: Tensor) -> Tensor:
            nonlocal left
            coding = next(codings)
            part, left = torch.split(left, [size := coding.run(like.numel()), len(left) - size])
            held = (
                _decoded(part, coding, like.numel(), np.int64) if like.dtype == torch.int64 else part.view(like.dtype)
            )
            return held.view(like.shape)

        return mapped(self.like, taken)

    def numbers(self, fetch: Fetch) -> Tensor:
        """Return the same, where it is one tensor of whole numbers, which have 4 bytes on a CPU."""
        assert isinstance(self.like, Tensor)
        run = fetch(self.file, self.at, self.num_bytes)
        return _decoded(run, self.codings[0], self.like.numel(), np.int32)


@dataclass(frozen=True)
class _Forward:
    """A piece in a file, by target: a block without its edges' sources, and these."""

    block: _Stored
    sources: _Stored
    num_edges: int
    longest: int


@dataclass(frozen=True)
class _Reverse:
    """A piece in a file, by source: offsets, targets, and the edges' order, which few layers read."""

    offsets: _Stored
    targets: _Stored
    order: _Stored
    most_out: int

    def ends(self, fetch: Fetch) -> tuple[Tensor, Tensor]:
        """Read where each source's edges begin, and their targets."""
        return self.offsets.read(fetch), self.targets.numbers(fetch)


def _decoded(run: Tensor, coding: Coding, number: int, dtype: type[np.integer]) -> Tensor:
    if run.device.type != "cpu":
        return run.to(torch.int64)
    # numpy has one thread: torch would begin others, for which the computing ones would wait
    return torch.from_numpy(coding.decoded(run.numpy(), number, dtype))


def _sorted(piece: Piece, picks: bool) -> tuple[BlockTensors, Tensor | None]:  # noqa: FBT001
    """Return a piece ready to be written and, where it picks its sources, which rows they are."""
    block, rows = piece.load(), None
    if not (block.csr.is_sound and (block.leaves is None or block.leaves.is_sound)):
        raise IndexError("an edge of the adjacency refers to a row that does not exist")
    if picks:
        rows, block = _picked(block)
    if block.leaves is None:
        _ = block.csr.transposed
    return block, rows


def _picked(block: BlockTensors) -> tuple[Tensor, BlockTensors]:
    """Return the rows [S] that a block's leaves name, ascending, and the block with these alone as its sources."""
    assert block.leaves is not None
    rows, places = torch.unique(block.leaves.sources, return_inverse=True)
    return rows, replace(block, leaves=Csr(block.leaves.offsets, places, len(rows)))


def _longest(csr: Csr) -> int:
    return int(csr.degree.max()) if csr.num_targets else 0


def _load(fetch: Fetch, forward: _Forward, reverse: _Reverse | None) -> BlockTensors:
    """Read a piece but for its edges' ends, which are read when they are asked for."""
    block: BlockTensors = forward.block.read(fetch)
    csr = StoredCsr(
        block.csr.offsets,
        partial(forward.sources.numbers, fetch),
        block.csr.num_sources,
        forward.num_edges,
        is_edgewise=block.csr.is_edgewise,
        longest=forward.longest,
        most_out=None if reverse is None else reverse.most_out,
        order=None if reverse is None else partial(reverse.order.numbers, fetch),
        reverse=None if reverse is None else partial(reverse.ends, fetch),
    )
    return replace(block, csr=csr)
