"""The arguments of a layer's functions: the terms of each node, and the graph's values of nodes and edges.

Shapes: N nodes, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from gnnflow.kernels import empty_rows


class Terms(NamedTuple):
    """A layer's per-node tensors; rows are nodes.

    source goes to all places where the node is a neighbour; source["value"] [N, H, D] is aggregated. target stays at
    the node's owner. Only source terms ever cross a partition, a process or a file.

    If the aggregation is a sum, either may have a "scale" [N] without a gradient: a factor of the node's value, or of
    its aggregated row. The kernel applies it without a pass over whole rows.
    """

    source: dict[str, Tensor]
    target: dict[str, Tensor]


class LinearUpdate(NamedTuple):
    """The update: aggregated [N, D] + own[term] [N, I] times weight [D, I] transposed + bias [D].

    The product is omitted without a term, the bias if it is None.
    """

    bias: Tensor | None = None
    term: str = ""
    weight: Tensor | None = None


@dataclass(frozen=True, eq=False)
class TypeRows:
    """Says which of N rows are of each node type.

    rows: of each type, ascending. places [N]: where each row lies among the rows of all types laid end to end. Of one
    type there are neither: it has all rows.
    """

    num_rows: int
    rows: tuple[Tensor, ...] = ()
    places: Tensor | None = None

    def of(self, node_type: int, rows: Tensor) -> Tensor:
        """Return the rows of one type among N rows."""
        return rows if self.places is None else rows.index_select(0, self.rows[node_type])

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return N rows, joined from the rows of each type."""
        return parts[0] if self.places is None else torch.cat(tuple(parts)).index_select(0, self.places)


@dataclass(frozen=True)
class NodeContext:
    """Full-graph values of each node, float32 [N]. in_weight is the sum of in-edge weights, else the in-degree.

    With several relations [N, R]; a layer gets the values of its relation.
    """

    in_degree: Tensor
    out_degree: Tensor
    in_weight: Tensor

    def prefix(self, rows: int) -> NodeContext:
        """Return the first rows."""
        return NodeContext(self.in_degree[:rows], self.out_degree[:rows], self.in_weight[:rows])

    def part(self, rows: slice) -> NodeContext:
        """Return a run of the rows."""
        return NodeContext(self.in_degree[rows], self.out_degree[rows], self.in_weight[rows])

    def take(self, rows: Tensor) -> NodeContext:
        """Return the given rows, in the given order."""
        return NodeContext(*(each.index_select(0, rows) for each in (self.in_degree, self.out_degree, self.in_weight)))

    def joined(self, others: NodeContext) -> NodeContext:
        """Return these rows, followed by others."""
        columns = ("in_degree", "out_degree", "in_weight")
        return NodeContext(*(torch.cat([getattr(self, name), getattr(others, name)]) for name in columns))

    def of_type(self, types: TypeRows, number: int) -> NodeContext:
        """Return the rows of a type. types: of all rows."""
        return self.take(types.rows[number]) if types.rows else self

    def of_relation(self, number: int, rows: Tensor | None = None) -> NodeContext:
        """Return the values of the given rows in one relation [len(rows)], or of all."""
        if rows is None and self.in_degree.dim() == 1:
            return self
        columns = (self.in_degree, self.out_degree, self.in_weight)
        own = columns if self.in_degree.dim() == 1 else [each[:, number] for each in columns]
        return NodeContext(*(each.contiguous() if rows is None else each.index_select(0, rows) for each in own))


@dataclass(frozen=True)
class EdgeContext:
    """Full-graph values of each edge: weight [E] and attributes [E, A], None if the graph has none."""

    num_edges: int
    weight: Tensor | None = None
    attributes: Tensor | None = None

    def weight_or_one(self, like: Tensor) -> Tensor:
        """Return each edge's weight as a column [E, 1], ones in a graph without weights: a factor for a message.

        like: any tensor of the layer, for its dtype and device.
        """
        column = self.weight_column(like)
        return like.new_ones(self.num_edges, 1) if column is None else column

    def weight_column(self, like: Tensor) -> Tensor | None:
        """Return each edge's weight as a coefficient [E, 1], or None in a graph without weights.

        like: any tensor of the layer, for its dtype and device.
        """
        return None if self.weight is None else self.weight[:, None].to(like)

    def part(self, edges: slice) -> EdgeContext:
        """Return a run of the edges."""
        return EdgeContext(
            len(range(*edges.indices(self.num_edges))),
            None if self.weight is None else self.weight[edges],
            None if self.attributes is None else self.attributes[edges],
        )

    def self_edges(self, num_targets: int) -> EdgeContext:
        """Return the context of one self edge per target: weight one and attributes zero, if the graph has them."""
        return EdgeContext(
            num_targets,
            None if self.weight is None else self.weight.new_ones(num_targets),
            None if self.attributes is None else self.attributes.new_zeros(num_targets, self.attributes.shape[1]),
        )


class GatheredTerms(Mapping[str, Tensor]):
    """Terms gathered per edge on first use, such as terms["logit"], so that an unused term costs nothing."""

    def __init__(self, terms: Mapping[str, Tensor], gather: Callable[[Tensor], Tensor]) -> None:
        self._terms = terms
        self._gather = gather
        self._gathered: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._gathered:
            self._gathered[name] = self._gather(self._terms[name])
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def used(self) -> frozenset[str]:
        """The names of the terms that were gathered so far."""
        return frozenset(self._gathered)


@dataclass(frozen=True)
class FeatureTensors:
    """Node input features: dense [N, F], or sparse rows as offsets [N + 1], index [nnz] and value [nnz] or None."""

    width: int
    dense: Tensor | None = None
    offsets: Tensor | None = None
    index: Tensor | None = None
    value: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.dense is not None:
            return len(self.dense)
        assert self.offsets is not None
        return len(self.offsets) - 1

    @property
    def of_targets(self) -> FeatureTensors:
        """The features of the first row's type, the targets' type: there is only one."""
        return self

    def rows(self, start: int, stop: int) -> FeatureTensors:
        """Return a run of the rows."""
        if self.dense is not None:
            return FeatureTensors(self.width, dense=self.dense[start:stop])
        assert self.offsets is not None
        assert self.index is not None
        offsets = self.offsets[start : stop + 1]
        held = slice(int(offsets[0]), int(offsets[-1]))
        value = None if self.value is None else self.value[held]
        return FeatureTensors(self.width, offsets=offsets - offsets[0], index=self.index[held], value=value)

    @classmethod
    def joined(cls, parts: Sequence[FeatureTensors]) -> FeatureTensors:
        """Return the rows of all parts, which have one form and width, in order."""

        def column(name: str) -> Tensor | None:
            held = [getattr(part, name) for part in parts]
            return None if held[0] is None else torch.cat(held)

        if parts[0].offsets is None:
            return cls(parts[0].width, dense=column("dense"))
        lengths = torch.cat([part.offsets.diff() for part in parts if part.offsets is not None])
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return cls(parts[0].width, offsets=offsets, index=column("index"), value=column("value"))


def attention_terms(h: Tensor, linear: Tensor, *attend: Tensor) -> tuple[Tensor, ...]:
    """Return the values W h [N, H, D], and a . W h [N, H] for each a [H, D], from rows h [N, I] and W [H x D, I].

    The latter are computed as (a W) h: one product with H columns for each a, instead of H x D for the rows W h.
    """
    each = linear.view(*attend[0].shape, -1)
    # the rows a W [H, I] of each a, in order
    folded = torch.cat([torch.bmm(a[:, None], each)[:, 0] for a in attend])
    plain = {h.dtype, linear.dtype} != {torch.float32} or h.device.type != "cpu" or torch.is_autocast_enabled("cpu")
    if plain:
        value, halves = functional.linear(h, linear), h @ folded.T
    else:
        value, halves = _TwoMaps.apply(h, linear, folded)  # type: ignore[no-untyped-call]
    return value.view(len(h), *attend[0].shape), *halves.view(-1, len(attend), len(each)).unbind(1)


class _TwoMaps(torch.autograd.Function):
    """Two linear maps of the same rows; the second product also adds up their gradients, without another pass."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(h, first, second)
        return torch.mm(h, first.T, out=empty_rows(len(h), len(first))), h @ second.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_first: Tensor, by_second: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        h, first, second = ctx.saved_tensors
        by_rows = None
        if ctx.needs_input_grad[0]:
            by_rows = torch.mm(by_second, second, out=empty_rows(*h.shape)).addmm_(by_first, first)
        return by_rows, by_first.T @ h, by_second.T @ h


def heads_joined(aggregated: Tensor, bias: Tensor, *, concat: bool) -> Tensor:
    """Return heads [N, H, D] concatenated [N, H x D], or their mean [N, D], plus the bias."""
    rows = aggregated.flatten(1) if concat else torch.mean(aggregated, 1)
    plain = {rows.dtype, bias.dtype} != {torch.float32} or rows.device.type != "cpu"
    return rows + bias if plain else _AddRow.apply(rows, bias)  # type: ignore[no-untyped-call]


class _AddRow(torch.autograd.Function):
    """A sum of rows and one row, in kept memory."""

    @staticmethod
    def forward(_: Any, rows: Tensor, bias: Tensor) -> Tensor:
        return torch.add(rows, bias, out=empty_rows(*rows.shape))

    @staticmethod
    @once_differentiable
    def backward(_: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad.sum(0)
