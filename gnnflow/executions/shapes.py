"""Checks that a layer's functions return the shapes of the contract.

Shapes: T targets, S sources, E edges, A edge attributes, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from gnnflow.executions.tensors import BlockTensors
from gnnflow.graph.errors import LayerError
from gnnflow.layers import Layer

TermRows = Mapping[str, Tensor]


def check_terms(layer: Layer, source: TermRows, target: TermRows, block: BlockTensors) -> None:
    """Raise LayerError if a layer's terms break the contract, or the graph lacks columns that it reads."""
    if "value" not in source:
        raise LayerError(
            f"transform() gave the source terms {', '.join(source) or 'none'}, without value",
            where=type(layer).__name__,
            fix='Return Terms(source={"value": rows [N, H, D], ...}, target={...}).',
        )
    forms = () if layer.positions == 1 else (layer.positions,)
    expected = (block.num_sources, *forms, None, None)
    check_rows(layer, 'transform()\'s source term "value"', source["value"], expected)
    takes_scales = layer.levels.instance.takes_scales and layer.uses_coefficients
    if not takes_scales and ("scale" in source or "scale" in target):
        raise LayerError(
            'transform() gave a term "scale", which only a sum of coefficient x value takes',
            where=type(layer).__name__,
            fix="Aggregate with Sum and define coefficient(), or give the term another name.",
        )
    if reads_attributes(layer) and block.edge.attributes is None:
        raise LayerError(
            "it needs edge attributes and the graph has none",
            where=type(layer).__name__,
            fix="Name the edge columns to use in graph.edge_features.",
        )


def check_rows(layer: Layer, what: str, rows: Tensor, expected: tuple[int | None, ...]) -> None:
    """Raise LayerError where rows do not have a shape, in which None is any size; what: of whose rows it tells."""
    fits = rows.dim() == len(expected) and all(
        want in {None, have} for want, have in zip(expected, rows.shape, strict=True)
    )
    if not fits:
        shape = ", ".join("any" if size is None else str(size) for size in expected)
        raise LayerError(
            f"{what} has shape {list(rows.shape)}, expected [{shape}]",
            where=type(layer).__name__,
            fix="Shapes are value [N, H, D], coefficient [E, H], message [E, H, D], propagate [T, H, D]; H is 1 in a "
            "layer without heads.",
        )


def reads_attributes(layer: Layer) -> bool:
    """Return whether edge attributes are part of a layer's messages, or say what becomes of them."""
    return layer.uses_edge_attributes or layer.levels.instance.reads_attributes
