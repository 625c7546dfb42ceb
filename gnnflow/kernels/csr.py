"""An adjacency as tensors, the orders derived from it, and factors of its nodes.

Edges are grouped by target, so a forward pass never sorts. The order by source, which only a backward pass needs, is
computed once per block on first use and kept: every head and every term of a layer shares it.

Shapes: T targets, S sources, E edges.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gnnflow.native import Transposed, transpose


@dataclass(frozen=True, eq=False)
class _Kept:
    """A result, with the tensors that it was computed from and their states at that time."""

    given: tuple[Tensor, ...]
    states: tuple[object, ...]
    made: Tensor


def _states(tensors: tuple[Tensor, ...]) -> tuple[object, ...]:
    """Return the memory and the version of each tensor: a write changes the version."""
    return tuple((each.data_ptr(), each.shape, each.stride(), each.dtype, each._version) for each in tensors)  # noqa: SLF001


class Pieces(NamedTuple):
    """The pieces of each target's in-edges: a state over them is the merge of their states, in this order.

    bounds [T + 1]: which pieces a target has, at least one. begins [pieces + 1]: where the edges of each piece begin.
    """

    bounds: Tensor
    begins: Tensor


@dataclass(frozen=True, eq=False)
class Csr:
    """In-edges grouped by target: edge e of target t has offsets[t] <= e < offsets[t + 1] and comes from sources[e].

    offsets: int64 [T + 1]. sources: int64 [E], rows among num_sources. is_identity: target t has exactly one edge, from
    source t; kernels then need no gather. is_edgewise: source e is edge e, so its reverse needs no sort. longest: the
    most in-edges of a target, where known. pieces: only the native core takes them, for sums and softmax.
    """

    offsets: Tensor
    sources: Tensor
    num_sources: int
    is_identity: bool = False
    is_edgewise: bool = False
    longest: int | None = None
    pieces: Pieces | None = None

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges E."""
        return len(self.sources)

    @property
    def numbers(self) -> Tensor:
        """The sources as they lie in memory [E], in 8 or 4 bytes each, which the core takes either way."""
        return self.sources

    @cached_property
    def degree(self) -> Tensor:
        """In-edges of each target, int64 [T]."""
        return self.offsets.diff()

    @cached_property
    def share(self) -> Tensor:
        """One over the in-edges of each target, 0 where it has none: float64 [T]."""
        return self.degree.clamp(min=1).double().reciprocal().masked_fill(self.degree == 0, 0.0)

    @cached_property
    def is_sound(self) -> bool:
        """True if every edge lies within the rows; kernels that check no index need this."""
        if not self.num_edges:
            return int(self.offsets[0]) == int(self.offsets[-1]) == 0
        within = int(self.sources.min()) >= 0 and int(self.sources.max()) < self.num_sources
        ordered = int(self.offsets[0]) == 0 and int(self.offsets[-1]) == self.num_edges
        return within and ordered and bool((self.degree >= 0).all())

    @cached_property
    def targets(self) -> Tensor:
        """The target of each edge, int64 [E]."""
        return torch.repeat_interleave(self.degree, output_size=self.num_edges)

    @cached_property
    def edges(self) -> Csr:
        """The same targets over per-edge rows: source e is edge e itself."""
        rows = torch.arange(self.num_edges, device=self.sources.device)
        return Csr(
            self.offsets,
            rows,
            self.num_edges,
            is_identity=self.is_identity,
            is_edgewise=True,
            longest=self.longest,
            pieces=self.pieces,
        )

    @cached_property
    def by_source(self) -> Csr:
        """The positions of each source's out-edges: its targets are our sources, its sources our edges."""
        if self.is_edgewise:  # each edge is its own source's one out-edge
            return Csr(torch.arange(self.num_edges + 1, device=self.sources.device), self.sources, self.num_edges)
        if self._transposed is not None:
            offsets, order = (torch.from_numpy(array) for array in self._transposed[:2])
            return Csr(offsets, order, self.num_edges)
        # sources in ascending order and the edges in that order [E]; equal sources keep their edge order
        ordered, order = torch.sort(self.sources, stable=True)
        bounds = torch.arange(self.num_sources + 1, device=self.sources.device)
        # the first position of each source's edges [S + 1]
        return Csr(torch.searchsorted(ordered, bounds), order, self.num_edges)

    @cached_property
    def transposed(self) -> Csr:
        """The reversed adjacency; its edge i is our edge by_source.sources[i]."""
        if self._transposed is not None:
            return Csr(self.by_source.offsets, torch.from_numpy(self._transposed.targets), self.num_targets)
        return Csr(self.by_source.offsets, self.targets.index_select(0, self.by_source.sources), self.num_targets)

    def kept(self, name: str, given: tuple[Tensor, ...], make: Callable[..., Tensor]) -> Tensor:
        """Return make(*given), computed once for tensors without a gradient.

        The result is kept until other tensors are given under this name, so that layers and steps over one block share
        it.
        """
        known = self._kept.get(name)
        if known is None or known.states != _states(given):
            known = self._kept[name] = _Kept(given, _states(given), make(*given))
        return known.made

    @cached_property
    def _kept(self) -> dict[str, _Kept]:
        return {}

    @cached_property
    def _transposed(self) -> Transposed | None:
        # One pass over the edges, where torch sorts them.
        if self.is_edgewise or self.sources.device.type != "cpu":
            return None
        return transpose(self.offsets.numpy(), self.sources.numpy(), num_sources=self.num_sources)

    def part(self, targets: slice, edges: slice) -> Csr:
        """Return the given targets with the given run of their edges, over the same sources.

        Both slices have a start and a stop. A target whose edges lie partly outside the run keeps only those inside.
        """
        # the first edge of each target within the run [t + 1]; edges outside the run are cut off
        offsets = self.offsets[targets.start : targets.stop + 1].clamp(edges.start, edges.stop) - edges.start
        return Csr(offsets, self.sources[edges], self.num_sources)

    def matrix(self, values: Tensor) -> Tensor:
        """Return the sparse matrix [T, S] with one value [E] per edge; repeated edges stay separate entries."""
        return torch.sparse_csr_tensor(self.offsets, self.sources, values, (self.num_targets, self.num_sources))


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances of targets: an instance is an in-edge that comes from several sources, its leaves.

    roots [T x E]: the instances of each target; source e is instance e. leaves [E x S]: the leaves of each instance.
    """

    roots: Csr
    leaves: Csr

    def part(self, targets: slice, edges: slice) -> Instances:
        """Return the given targets with the given run of their instances, as `Csr.part` does."""
        offsets = self.roots.part(targets, edges).offsets
        num_edges, first = edges.stop - edges.start, self.leaves.offsets[edges.start]
        every = torch.arange(num_edges, device=offsets.device)
        # the first leaf of each instance of the run [e + 1], and the sources of all its leaves
        bounds = self.leaves.offsets[edges.start : edges.stop + 1] - first
        run = self.leaves.sources[int(first) : int(first) + int(bounds[-1])]
        roots = Csr(offsets, every, num_edges, is_edgewise=True)
        return Instances(roots, Csr(bounds, run, self.leaves.num_sources))

    @cached_property
    def flat(self) -> Csr:
        """The leaves of all instances of each target [T x S], instance by instance."""
        return Csr(self.leaves.offsets[self.roots.offsets], self.leaves.sources, self.leaves.num_sources)

    def heads(self, number: int) -> Csr:
        """Return each instance over the heads of its target's row [E x T H]: source t H + h is head h of target t."""
        if number not in self._heads:
            # the first head row of each instance's target [E], and all its head rows [E, H]
            first = self.roots.targets * number
            rows = first[:, None] + torch.arange(number, device=first.device)
            every = torch.arange(len(first) + 1, device=first.device) * number
            self._heads[number] = Csr(every, rows.reshape(-1), self.roots.num_targets * number)
        return self._heads[number]

    @cached_property
    def _heads(self) -> dict[int, Csr]:
        return {}

    @cached_property
    def size(self) -> int | None:
        """The number of leaves that every instance has; None if they differ or there is no instance."""
        counts = self.leaves.degree
        return int(counts[0]) if len(counts) and bool((counts == counts[0]).all()) else None


class Scales(NamedTuple):
    """Factors of the sources' rows [S] and of the targets' sums [T], without a gradient; None for one."""

    source: Tensor | None
    target: Tensor | None

    @property
    def are_one(self) -> bool:
        """True if neither factor is given."""
        return self.source is None and self.target is None

    @property
    def reversed(self) -> Scales:
        """The factors for the reversed edges."""
        return Scales(self.target, self.source)


UNSCALED = Scales(None, None)


def identity(num_targets: int, *, device: torch.device | None = None) -> Csr:
    """Return the adjacency in which each target's one in-edge comes from itself."""
    offsets = torch.arange(num_targets + 1, device=device)
    return Csr(offsets, offsets[:-1], num_targets, is_identity=True)


# torch announces once per process that CSR tensors are in beta; said here, it cannot surprise a user mid-training.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    identity(1).matrix(torch.ones(1))


def rows_of(number: int, tensor: Tensor) -> Tensor:
    """Return the tensor in contiguous memory. Raises IndexError unless it has this number of rows."""
    if len(tensor) != number:
        raise IndexError(f"an operand has {len(tensor)} rows, not {number}")
    return tensor.contiguous()
