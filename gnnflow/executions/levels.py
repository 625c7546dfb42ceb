"""From leaves to instances: the level below the one that every layer has (layers/levels.py).

What is computed follows from the layer and the block, and `gnnflow explain` prints it:

    none      every in-edge is its one source's row, which the kernels read where it lies
    together  leaves and instances are closed in one weighted sum over all leaves of a target; only terms of a few
              numbers, such as logits, come as a row per instance
    apart     a row per instance, by a weighted sum over its leaves, is what the layer's aggregation reads in order

Shapes: T targets, E instances, S sources, P positions, H heads, D width of a head.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from gnnflow.executions.tensors import BlockTensors
from gnnflow.kernels import Instances, gather_targets
from gnnflow.layers import Aggregation, EdgeContext, Layer, Messages
from gnnflow.layers.terms import GatheredTerms

Leaves = Literal["none", "together", "apart"]


def leaf_closing(layer: Layer, *, has_leaves: bool) -> Leaves:
    """Return the way in which a layer closes its leaves. has_leaves: in-edges come from several nodes."""
    if not has_leaves and layer.positions == 1 and not layer.uses_instances:
        return "none"
    return "together" if layer.closes_leaves_with_roots else "apart"


def instances_of(layer: Layer, block: BlockTensors) -> Instances | None:
    """Return a block's in-edges as instances, or None where the layer reads them as they are."""
    if leaf_closing(layer, has_leaves=block.leaves is not None) == "none":
        return None
    return block.instances(layer.positions)


def leaf_terms(layer: Layer, source: Mapping[str, Tensor], instances: Instances) -> GatheredTerms:
    """Return the sum of each instance's leaves, term by term and on first use [E, ...].

    source: terms of the S sources. The result's value is already multiplied by "scale", which is no longer a term.
    """
    return GatheredTerms(scaled_terms(source), functools.partial(_closed, layer, instances))


def instance_terms(
    layer: Layer, *, source: Mapping[str, Tensor], target: Mapping[str, Tensor], instances: Instances, edge: EdgeContext
) -> dict[str, Tensor]:
    """Return the source terms of instances [E, ...], a row for each."""
    leaves = leaf_terms(layer, source, instances)
    by_target = GatheredTerms(target, functools.partial(gather_targets, instances.roots))
    return layer.instance(leaves, by_target, edge)


def scaled_terms(source: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return source terms with the value multiplied by its scale, where there is one."""
    terms = dict(source)
    scale = terms.pop("scale", None)
    if scale is not None:
        terms["value"] = terms["value"] * scale.view(-1, *[1] * (terms["value"].dim() - 1)).to(terms["value"])
    return terms


def by_position(layer: Layer, rows: Tensor) -> Tensor:
    """Return a term [S, P, ...] as the rows that leaves read [S x P, ...]; with one position as it is."""
    return rows if layer.positions == 1 else rows.flatten(0, 1)


def _closed(layer: Layer, instances: Instances, rows: Tensor) -> Tensor:
    rows = by_position(layer, rows)
    # all trailing dimensions as columns of one head [S x P, 1, K]
    columns = rows.reshape(len(rows), 1, math.prod(rows.shape[1:]))
    leaf: Aggregation = layer.levels.leaf
    return leaf.whole(Messages(instances.leaves, columns)).reshape(instances.leaves.num_targets, *rows.shape[1:])
