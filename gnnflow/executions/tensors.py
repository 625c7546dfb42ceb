"""From stored NumPy arrays to tensors, sharing memory where the array may be written to."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import torch
from torch import Tensor

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.graph.batch import Block, Degrees, Features, MiniBatch, NodeFeatures, TypedFeatures, relation_blocks
from gnnflow.graph.schema import UNTYPED, GraphSchema
from gnnflow.kernels import Csr, Instances
from gnnflow.layers import EdgeContext, FeatureTensors, NodeContext, TypedFeatureTensors
from gnnflow.layers.terms import TypeRows
from gnnflow.native import widen


@dataclass(frozen=True, eq=False)
class BlockTensors:
    """A block ready to compute on. The scales of a sample, sample_scale [T] and edge_scale [E], are as in `Block`.

    leaves [E x S]: where edges have leaves. Source e of csr is then edge e. own [T]: source rows of the targets, as in
    `Block`.
    """

    csr: Csr
    edge: EdgeContext
    sample_scale: Tensor | None
    edge_scale: Tensor | None = None
    leaves: Csr | None = None
    own: Tensor | None = None

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.csr.num_targets

    @property
    def num_sources(self) -> int:
        """Number of source rows S, the targets first unless `own` says otherwise."""
        return self.csr.num_sources if self.leaves is None else self.leaves.num_sources

    @cached_property
    def _instances(self) -> dict[int, Instances]:
        return {}

    def instances(self, positions: int = 1) -> Instances:
        """Return the edges as instances; a source's row is read in one of so many forms, by the leaf's position."""
        if positions not in self._instances:
            roots, leaves = self.csr, self.leaves
            if leaves is None:
                every = torch.arange(roots.num_edges + 1, device=roots.sources.device)
                roots, leaves = roots.edges, Csr(every, roots.sources, roots.num_sources)
            if positions > 1:
                # the place of each leaf in its instance [L]
                place = torch.arange(leaves.num_edges, device=leaves.sources.device) - leaves.offsets[leaves.targets]
                rows = leaves.sources * positions + place.clamp(max=positions - 1)
                leaves = Csr(leaves.offsets, rows, leaves.num_sources * positions)
            self._instances[positions] = Instances(roots, leaves)
        return self._instances[positions]

    @cached_property
    def with_self(self) -> BlockTensors:
        """The block with an edge from each target to itself."""
        own = torch.arange(self.num_targets, device=self.csr.sources.device) if self.own is None else self.own
        return self.joined_by(own.to(self.csr.sources.dtype))

    def joined_by(self, rows: Tensor) -> BlockTensors:
        """Return the block with one more in-edge per target, its last, from source rows [T].

        Its weight is one and its attributes are zero, as `EdgeContext.self_edges` says. sample_scale is left as it is.
        """
        csr, targets = self.csr, torch.arange(self.num_targets + 1, device=self.csr.sources.device)
        # where each target's new edge comes to lie [T], and where the edges it has do [E]
        last = csr.offsets[1:] + targets[:-1]
        others = torch.arange(csr.num_edges, device=last.device) + csr.targets
        size = csr.num_edges + self.num_targets

        def joined(column: Tensor, new: Tensor) -> Tensor:
            out = column.new_empty(size, *column.shape[1:])
            return out.index_copy_(0, others, column).index_copy_(0, last, new)

        own, edge = self.edge.self_edges(self.num_targets), self.edge
        weight = None if edge.weight is None or own.weight is None else joined(edge.weight, own.weight)
        attributes = (
            None if edge.attributes is None or own.attributes is None else joined(edge.attributes, own.attributes)
        )
        scale = self.edge_scale
        offsets = csr.offsets + targets
        if self.leaves is None:
            adjacency, leaves = Csr(offsets, joined(csr.sources, rows), csr.num_sources), None
        else:
            adjacency = Csr(offsets, rows.new_empty(size), csr.num_sources).edges
            leaves = self._leaves_joined_by(rows, last, counts=joined(self.leaves.degree, torch.ones_like(rows)))
        return BlockTensors(
            adjacency,
            EdgeContext(size, weight, attributes),
            self.sample_scale,
            None if scale is None else joined(scale, scale.new_ones(self.num_targets)),
            leaves,
        )

    def _leaves_joined_by(self, rows: Tensor, last: Tensor, *, counts: Tensor) -> Csr:
        """Return the leaves with one more of each target [T], for its new edge at `last`; counts: of all edges."""
        assert self.leaves is not None
        # where the leaves of each edge end, new edges included [E + T]
        ends = counts.cumsum(0)
        # where the one leaf of each new edge comes to lie [T], and where the leaves of the others do [L]
        new, old = ends[last] - 1, torch.arange(self.leaves.num_edges, device=last.device)
        old = old + self.csr.targets[self.leaves.targets]
        sources = rows.new_empty(self.leaves.num_edges + self.num_targets)
        sources.index_copy_(0, old, self.leaves.sources).index_copy_(0, new, rows)
        return Csr(torch.cat([ends.new_zeros(1), ends]), sources, self.leaves.num_sources)


@dataclass(frozen=True, eq=False)
class RelationTensors:
    """One relation's part of a layer's block, a block of T' targets and S' sources.

    sources [S']: which of the layer's source rows its own are, its targets first; None: all.
    """

    block: BlockTensors
    sources: Tensor | None = None


@dataclass(frozen=True, eq=False)
class LayerTensors:
    """One layer's block ready to compute on, taken apart by relation. targets: the types of its T targets."""

    relations: tuple[RelationTensors, ...]
    targets: TypeRows
    num_sources: int

    @property
    def num_targets(self) -> int:
        """Number of targets T."""
        return self.targets.num_rows


@dataclass(frozen=True)
class FirstRows:
    """The first layer up to its weights: its T targets' terms, and the rows [T, H, D (+ A)] that they aggregated.

    h: the targets' own input rows, where the model adds them to what the layer gives.
    """

    target: Mapping[str, Tensor]
    aggregated: Tensor
    h: Tensor | None


@dataclass(frozen=True)
class BatchTensors:
    """A batch ready to compute on; labels None where it has none.

    It has either features, and a block for every layer, or first: the first layer was aggregated already, and blocks
    and nodes belong to the later layers.
    """

    blocks: tuple[LayerTensors, ...]
    nodes: NodeContext
    features: FeatureTensors | TypedFeatureTensors | None
    labels: Tensor | None
    first: FirstRows | None = None


@overload
def tensor(array: Array) -> Tensor: ...
@overload
def tensor(array: Array | None) -> Tensor | None: ...
def tensor(array: Array | None) -> Tensor | None:
    """Return a tensor over the array's own memory, or over a copy where the array is read-only; None for None."""
    if array is None:
        return None
    # torch has no read-only tensors: sharing such memory would let an in-place operation write through the lock.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def shared_tensor(array: Array) -> Tensor:
    """Return a tensor over the array's own memory, read-only or not: for code known to write nothing into it."""
    return torch.from_numpy(array)


def block_tensors(block: Block, *, keeps_leaves: bool = False) -> BlockTensors:
    """Return the block's adjacency, edge context and sample scales as tensors.

    keeps_leaves: also where every edge has one, as other parts of a relation may have more.
    """
    attributes = tensor(block.edges.attributes)
    if attributes is not None and attributes.shape[1] == 0:
        attributes = None
    adjacency = Csr(tensor(block.edges.offsets), tensor(block.edges.sources), block.num_sources)
    leaves = None
    if block.edges.leaves is not None and (keeps_leaves or bool((block.edges.leaf_counts != 1).any())):
        leaves = Csr(tensor(block.edges.leaves), adjacency.sources, block.num_sources)
        # source e is edge e, whose leaves follow
        every = torch.arange(block.num_edges)
        adjacency = Csr(adjacency.offsets, every, block.num_edges, is_edgewise=True)
    return BlockTensors(
        adjacency,
        EdgeContext(block.num_edges, tensor(block.edges.weight), attributes),
        tensor(block.sample_scale),
        tensor(block.edge_scale),
        leaves,
        tensor(block.own),
    )


def node_context(nodes: Degrees) -> NodeContext:
    """Return degrees and in-weights as float32 tensors [N], with several relations [N, R]."""
    return NodeContext(
        tensor(nodes.in_degree).float(), tensor(nodes.out_degree).float(), tensor(nodes.in_weight).float()
    )


def layer_tensors(block: Block, types: IntArray, schema: GraphSchema) -> LayerTensors:
    """Return a block's relations as tensors. types: the number of each source row's type [S]."""
    targets = rows_of_types(types[: block.num_targets], schema.num_types)
    if schema.num_relations == 1 and schema.num_types == 1:
        parts = [RelationTensors(block_tensors(block))]
    else:
        found = relation_blocks(block, types, schema)
        parts = [RelationTensors(block_tensors(part.block), tensor(part.sources)) for part in found]
    return LayerTensors(tuple(parts), targets, block.num_sources)


def rows_of_types(types: IntArray, num_types: int) -> TypeRows:
    """Return which rows are of each type. types: the number of each row's type."""
    if num_types == 1:
        return TypeRows(len(types))
    # rows type by type [n], the place of each row in that order [n], and where each type's rows end
    order = np.argsort(types, kind="stable")
    places = np.empty(len(types), np.int64)
    places[order] = np.arange(len(types))
    ends = np.cumsum(np.bincount(types, minlength=num_types))
    return TypeRows(len(types), tuple(tensor(rows) for rows in np.split(order, ends[:-1])), tensor(places))


@overload
def feature_tensors(features: Features) -> FeatureTensors: ...
@overload
def feature_tensors(features: NodeFeatures) -> FeatureTensors | TypedFeatureTensors: ...
def feature_tensors(features: NodeFeatures) -> FeatureTensors | TypedFeatureTensors:
    """Return the input features as tensors, in the form they are stored in."""
    if isinstance(features, TypedFeatures):
        parts = (None if part is None else feature_tensors(part) for part in features.parts)
        return TypedFeatureTensors(tuple(parts), rows_of_types(features.types, len(features.parts)))
    return FeatureTensors(
        features.width,
        dense=tensor(numbers_of(features)),
        offsets=tensor(features.offsets),
        index=tensor(features.index),
        value=tensor(features.value),
    )


def numbers_of(features: Features) -> FloatArray | None:
    """Return dense features as float32 numbers [N, F]: narrow rows in new memory. None for sparse features."""
    if features.dense is None or features.narrow is None:
        return features.dense
    form = features.narrow
    found = widen(
        features.dense,
        features.rows,
        kind=form.kind,
        width=form.width,
        low=form.low,
        step=form.step,
        threads=torch.get_num_threads(),
    )
    return form.decode(features.stored) if found is None else found


def types_of(nodes: Degrees) -> IntArray:
    """Return the number of each row's type [N]."""
    return np.zeros(len(nodes), np.int64) if nodes.types is None else nodes.types


def batch_tensors(batch: MiniBatch, schema: GraphSchema = UNTYPED) -> BatchTensors:
    """Return the whole batch as tensors. Meant for the loading side of a pipeline: it computes nothing.

    schema: of the graph. Layers that have one block in common share its tensors too, and what is derived of them.
    """
    types = types_of(batch.nodes)
    made = {id(block): layer_tensors(block, types[: block.num_sources], schema) for block in batch.blocks}
    return BatchTensors(
        tuple(made[id(block)] for block in batch.blocks),
        node_context(batch.nodes),
        feature_tensors(batch.features),
        tensor(batch.labels),
    )


# torch says once per process that it has no read-only tensors; `shared_tensor` knows.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    shared_tensor(np.frombuffer(bytes(8)))
