"""Start of the Triton programs: the tensors that they accept, tiles, and the division of hubs among programs.

One program would take long over a target with many edges, so the edges of hubs are divided into pieces. Only the GPU
knows how many pieces there are, and asking would stop the stream. So tables have as many places as there can be pieces;
an unused place holds T, which is no target.

Shapes: T targets, E edges, P places of pieces, U places of hubs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gnnflow.kernels.csr import Csr

_KINDS = frozenset({torch.float32, torch.bfloat16, torch.float16})
_LONGEST = 512
"""Most edges of a target for one program; it also fixes the order in which the edges of a hub are added."""
_MOST_TARGETS = 16
_MULTIPLIED, _MOST_MULTIPLIED = 512, 256  # numbers that a program multiplies at a time, and of one edge


def accepts(_: Csr, rows: Tensor) -> bool:
    """Return whether these kernels compute on rows of this type and device."""
    return rows.is_cuda and rows.dtype in _KINDS and _has_triton()


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def device_of(rows: Tensor) -> AbstractContextManager[None]:
    """Start programs on the GPU that holds these rows, within a block."""
    return torch.cuda.device(rows.device) if rows.is_cuda else nullcontext()


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number of at least one."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Hubs:
    """The pieces of hubs: the target of each [P]; the first piece and the number of pieces of each target [T].

    hub_targets [U]. longest: edges of a piece, except the last one of a hub.
    """

    longest: int
    piece_targets: Tensor
    first_pieces: Tensor
    num_pieces: Tensor
    hub_targets: Tensor


class Division(NamedTuple):
    """The division of edges among programs. hubs: None if there are known to be none."""

    num_targets: int
    hubs: Hubs | None

    @staticmethod
    def of(csr: Csr) -> Division:
        """Return the division of an adjacency's edges, computed once."""
        if csr.num_edges <= _LONGEST or (csr.longest is not None and csr.longest <= _LONGEST):
            return Division(csr.num_targets, None)
        if csr not in _found:
            _found[csr] = _divide(csr, _LONGEST)
        return Division(csr.num_targets, _found[csr])

    def programs(self, rows: int) -> int:
        """Return the number of programs that take `rows` targets each, plus one for each piece."""
        return -(-self.num_targets // rows) + (0 if self.hubs is None else len(self.hubs.piece_targets))

    def pieces(self, out: Tensor) -> Tensor | None:
        """Return uninitialised rows of pieces [P, ...], like those in out [T, ...]; None without hubs."""
        return None if self.hubs is None else out.new_empty(len(self.hubs.piece_targets), *out.shape[1:])

    @property
    def tables(self) -> tuple[Tensor | None, Tensor | None]:
        """The target of each piece, and the first piece of each target."""
        return (None, None) if self.hubs is None else (self.hubs.piece_targets, self.hubs.first_pieces)

    @property
    def options(self) -> dict[str, int]:
        """The constants that a program over edges is compiled with."""
        return {"DIVIDED": self.hubs is not None, "LONGEST": 0 if self.hubs is None else self.hubs.longest}


_found: WeakKeyDictionary[Csr, Hubs] = WeakKeyDictionary()


def _divide(csr: Csr, longest: int) -> Hubs:
    is_hub, most = csr.degree > longest, csr.num_edges // longest
    # the pieces of each target, zero for those that are not hubs [T], and their running total [T]
    num_pieces = torch.where(is_hub, (csr.degree + longest - 1) // longest, 0)
    ends = num_pieces.cumsum(0)
    device = csr.offsets.device
    return Hubs(
        longest=longest,
        # a hub has fewer than 2 x degree / longest pieces
        piece_targets=torch.searchsorted(ends, torch.arange(2 * most, device=device), right=True),
        first_pieces=ends - num_pieces,
        num_pieces=num_pieces,
        hub_targets=torch.searchsorted(is_hub.cumsum(0), torch.arange(1, most + 1, device=device)),
    )


class Tile(NamedTuple):
    """The numbers that a program takes at a time [rows, heads, width], powers of two. rows: targets, or edges."""

    rows: int
    heads: int
    width: int

    @staticmethod
    def added(heads: int, width: int) -> Tile:
        """Return the tile of sums, for one warp: the fastest that was tried (docs/performance.md).

        Each thread has four numbers where it can read them at once, else two.
        """
        numbers = 32 * (4 if width % 4 == 0 else 2)
        wide = min(power_of_two(width), numbers)
        high = min(power_of_two(heads), numbers // wide)
        return Tile(min(numbers // (high * wide), _MOST_TARGETS), high, wide)

    @staticmethod
    def multiplied(heads: int, width: int) -> Tile:
        """Return the tile of products."""
        wide = min(power_of_two(width), _MOST_MULTIPLIED)
        high = min(power_of_two(heads), _MOST_MULTIPLIED // wide)
        return Tile(min(max(_MULTIPLIED // (high * wide), 4), 64), high, wide)


class Launch(NamedTuple):
    """The grid of programs, and the constants that they are compiled with."""

    grid: tuple[int, int, int]
    constants: dict[str, int]


def launch(division: Division, coefficient: Tensor | None, value: Tensor) -> Launch:
    """Return how programs over edges are started.

    coefficient, value: as for `sums`.
    """
    _, value_heads, width = value.shape
    heads = value_heads if coefficient is None else coefficient.shape[1]
    if coefficient is None:  # all heads are alike: one head that is as wide as all
        heads, width, value_heads = 1, heads * width, 1
    tile = Tile.added(heads, width)
    constants = {"HEADS": heads, "WIDTH": width, "VALUE_HEADS": value_heads, **division.options}
    constants |= {"TILE_TARGETS": tile.rows, "TILE_HEADS": tile.heads, "TILE_WIDTH": tile.width, "num_warps": 1}
    grid = division.programs(tile.rows), -(-heads // tile.heads), -(-width // tile.width)
    return Launch(grid, constants)


def merge(program: Any, hubs: Hubs, pieces: Sequence[Tensor | None], out: Sequence[Tensor]) -> None:
    """Run a program that writes the rows of hubs in `out` [T, ...] from those in pieces [P, ...]."""
    columns = out[0][0].numel()
    tile = Tile.multiplied(1, columns)
    program[len(hubs.hub_targets), -(-columns // tile.width)](
        *pieces,
        hubs.first_pieces,
        hubs.num_pieces,
        hubs.hub_targets,
        *out,
        len(out[0]),
        columns,
        TILE_PIECES=tile.rows,
        TILE_COLUMNS=tile.width,
        num_warps=1,
    )
