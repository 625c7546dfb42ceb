"""Pieces of edges as kernels take them: by target and by source, sorted once when the graph is filed.

Nothing is left to do where a piece is read but to widen its numbers, which lie at 4 bytes (CSC and CSR; NGra, Ma et
al. 2018, section 4). That no edge leads outside of its rows is checked when it is written.

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
from gnnflow.executions.streaming import Piece, ahead
from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Csr
from gnnflow.kernels.memory import give_back
from gnnflow.train.streamed.files import Scratch, ScratchFile, bytes_of

_NUMBER = 4  # bytes

Fetch = Callable[[ScratchFile, int, int], Tensor]
"""What reads a run of a file, given where it begins and its bytes, as whole numbers of 4 bytes."""


def read_here(file: ScratchFile, at: int, num_bytes: int) -> Tensor:
    """Read a run of a file into memory of the process."""
    held = np.empty(num_bytes // _NUMBER, np.int32)
    if len(held):
        file.read(bytes_of(held), at)
    return torch.from_numpy(held)


def packed(pieces: Sequence[Piece], scratch: Scratch, fetch: Fetch, *, threads: int) -> list[Piece]:
    """Write pieces anew and return them. threads: that read and sort, a piece each.

    Raises IndexError where an edge leads outside of its rows.
    """
    file, found = scratch.file(), []
    with ahead([partial(_sorted, piece) for piece in pieces], number=threads) as blocks:
        for piece, block in zip(pieces, blocks, strict=True):
            csr, forward, reverse = block.csr, block, None
            if block.leaves is None:
                by_source = csr.by_source
                reverse = _Reverse(
                    _Stored.of(file, (by_source.offsets, csr.transposed.sources)),
                    _Stored.of(file, by_source.sources),
                    _longest(by_source),
                )
            forward = replace(block, csr=replace(csr, longest=_longest(csr)))
            found.append(replace(piece, load=partial(_load, fetch, _Stored.of(file, forward), reverse)))
    file.lock()
    give_back()
    return found


@dataclass(frozen=True, eq=False)
class StoredCsr(Csr):
    """An adjacency that was checked when it was written; where edges have no leaves, its order by source is in a file.

    order, reverse: read which edges each source's are [E]; and where these begin [S + 1], and their targets [E].
    most_out: the most out-edges of a source.
    """

    most_out: int | None = None
    order: Callable[[], Tensor] | None = None
    reverse: Callable[[], tuple[Tensor, Tensor]] | None = None

    @cached_property
    def is_sound(self) -> bool:
        """True."""
        return True

    @cached_property
    def by_source(self) -> Csr:
        """The positions of each source's out-edges."""
        if self.order is None:
            return super().by_source
        return StoredCsr(self._reverse[0], self.order(), self.num_edges, longest=self.most_out)

    @cached_property
    def transposed(self) -> Csr:
        """The reversed adjacency; its edge i is our edge by_source.sources[i]."""
        if self.reverse is None:
            return super().transposed
        return StoredCsr(*self._reverse, self.num_targets, longest=self.most_out)

    @cached_property
    def _reverse(self) -> tuple[Tensor, Tensor]:
        assert self.reverse is not None
        return self.reverse()


@dataclass(frozen=True)
class _Stored:
    """Tensors that lie in a file behind each other, 4 bytes a number. like: what they are of, without the numbers."""

    file: ScratchFile
    at: int
    num_bytes: int
    like: object

    @classmethod
    def of(cls, file: ScratchFile, held: object) -> _Stored:
        """Write the tensors below a dataclass or tuple."""
        at = file.size

        def stored(each: Tensor) -> Tensor:
            number = each.to(torch.int32) if each.dtype == torch.int64 else each
            assert number.element_size() == _NUMBER
            file.append(bytes_of(number.contiguous()))
            return torch.empty_like(each, device="meta")

        like = mapped(held, stored)
        return cls(file, at, file.size - at, like)

    def read(self, fetch: Fetch) -> Any:
        """Return the same: whole numbers in 8 bytes, as kernels take them."""
        left = fetch(self.file, self.at, self.num_bytes)

        def taken(like: Tensor) -> Tensor:
            nonlocal left
            part, left = left[: like.numel()], left[like.numel() :]
            return (_widened(part) if like.dtype == torch.int64 else part.view(like.dtype)).view(like.shape)

        return mapped(self.like, taken)


@dataclass(frozen=True)
class _Reverse:
    """Where a piece lies by source: offsets with targets, and the edges' order apart, which few layers read."""

    ends: _Stored
    order: _Stored
    most_out: int


def _widened(numbers: Tensor) -> Tensor:
    if numbers.device.type != "cpu":
        return numbers.to(torch.int64)
    # numpy has one thread: torch would begin others for this one, beside those that compute
    return torch.from_numpy(numbers.numpy().astype(np.int64))


def _sorted(piece: Piece) -> BlockTensors:
    block = piece.load()
    if not (block.csr.is_sound and (block.leaves is None or block.leaves.is_sound)):
        raise IndexError("an edge of the adjacency leads outside of its rows")
    if block.leaves is None:
        _ = block.csr.transposed
    return block


def _longest(csr: Csr) -> int:
    return int(csr.degree.max()) if csr.num_targets else 0


def _load(fetch: Fetch, forward: _Stored, reverse: _Reverse | None) -> BlockTensors:
    """Read a piece; its order by source is read when it is asked for."""
    block: BlockTensors = forward.read(fetch)
    held = block.csr
    csr = StoredCsr(
        held.offsets,
        held.sources,
        held.num_sources,
        is_identity=held.is_identity,
        is_edgewise=held.is_edgewise,
        longest=held.longest,
        most_out=None if reverse is None else reverse.most_out,
        order=None if reverse is None else partial(reverse.order.read, fetch),
        reverse=None if reverse is None else partial(reverse.ends.read, fetch),
    )
    return replace(block, csr=csr)
