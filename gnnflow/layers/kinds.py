"""From a configured kind to a layer: the built-in ones by name, a user's own as `package.module:Class`.

A user's class is built as Class(in_width, out_width, **options). Every way this can fail is a LayerError that says what
was found and what to write instead.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from gnnflow.graph.errors import LayerError
from gnnflow.layers.aggregation import Aggregation, SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.gat import GAT
from gnnflow.layers.gat_e import GATE
from gnnflow.layers.gcn import GCN
from gnnflow.layers.gin import GIN
from gnnflow.layers.sage import GraphSAGE

_KIND = "model.kind"
_SPELLING = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class LayerOptions:
    """Everything any layer may be built from; each kind takes what it has.

    width is out_width, and for attention layers the width of one head. edge_width is 0 without edge attributes.
    """

    in_width: int
    width: int
    heads: int = 1
    concat: bool = True
    attention_dropout: float = 0.0
    edge_width: int = 0
    aggregator: str = "mean"
    options: Mapping[str, Any] = field(default_factory=dict)


def _gat(spec: LayerOptions) -> Layer:
    return GAT(
        spec.in_width,
        spec.width,
        heads=spec.heads,
        concat=spec.concat,
        attention_dropout=spec.attention_dropout,
    )


def _gat_e(spec: LayerOptions) -> Layer:
    return GATE(
        spec.in_width,
        spec.width,
        edge_width=spec.edge_width,
        heads=spec.heads,
        concat=spec.concat,
        attention_dropout=spec.attention_dropout,
    )


BUILT_IN: dict[str, Callable[[LayerOptions], Layer]] = {
    "gcn": lambda spec: GCN(spec.in_width, spec.width),
    "sage": lambda spec: GraphSAGE(spec.in_width, spec.width, aggregator=spec.aggregator),
    "gat": _gat,
    "gin": lambda spec: GIN(spec.in_width, spec.width),
    "gat_e": _gat_e,
}


def build_layer(
    kind: str,
    in_width: int,
    out_width: int,
    *,
    heads: int = 1,
    concat: bool = True,
    dropout: float = 0.0,
    attention_dropout: float | None = None,
    edge_width: int = 0,
    aggregator: str = "mean",
    options: Mapping[str, Any] | None = None,
) -> Layer:
    """Return a layer of the given kind, whose `out_width` says how wide its rows come out.

    out_width is the width of one head for gat and gat_e. attention_dropout defaults to dropout. Raises LayerError where
    the kind cannot be found or built.
    """
    spec = LayerOptions(
        in_width=in_width,
        width=out_width,
        heads=heads,
        concat=concat,
        attention_dropout=dropout if attention_dropout is None else attention_dropout,
        edge_width=edge_width,
        aggregator=aggregator,
        options=options or {},
    )
    return _checked(_built_in(kind, spec) if kind in BUILT_IN else _own(kind, spec), kind=kind, edge_width=edge_width)


def load_layer_class(kind: str) -> type[Layer]:
    """Return the user's layer class named `package.module:Class`. Raises LayerError saying which part is wrong."""
    if not _SPELLING.fullmatch(kind):
        raise LayerError(
            f"{kind!r} names no layer",
            where=_KIND,
            fix=f"Use one of {', '.join(BUILT_IN)}, or your own as package.module:Class.",
        )
    module_name, class_name = kind.split(":")
    module = _imported(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        classes = [name for name, value in vars(module).items() if _is_own_layer(value, module)]
        raise LayerError(
            f"module {module_name!r} has no class {class_name!r}",
            where=_KIND,
            fix=f"Its layers are: {', '.join(classes) or 'none'}.",
        )
    if not (isinstance(found, type) and issubclass(found, Layer)):
        raise LayerError(
            f"{kind!r} is not a gnnflow layer",
            where=_KIND,
            fix="Derive the class from gnnflow.layers.Layer.",
        )
    return found


def _built_in(kind: str, spec: LayerOptions) -> Layer:
    if spec.options:
        raise LayerError(
            f"{kind} takes no options, {', '.join(spec.options)} given",
            where="model.options",
            fix="Remove them; options are arguments of a layer class of your own.",
        )
    return BUILT_IN[kind](spec)


def _own(kind: str, spec: LayerOptions) -> Layer:
    cls = load_layer_class(kind)
    try:
        return cls(spec.in_width, spec.width, **spec.options)
    except (TypeError, ValueError) as error:
        arguments = ", ".join(f"{name}={value!r}" for name, value in spec.options.items())
        raise LayerError(
            f"{kind}({spec.in_width}, {spec.width}{', ' if arguments else ''}{arguments}) failed: {error}",
            where="model.options",
            fix="The class is built as Class(in_width, out_width, **options); give it the options it takes.",
        ) from error


def _imported(module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise LayerError(
                f"module {module_name!r} imports {missing!r}, which is not installed",
                where=_KIND,
                fix=f"Install {missing!r} wherever the stages run.",
            ) from error
        raise LayerError(
            f"there is no module {module_name!r}",
            where=_KIND,
            fix="Install its package or add its folder to PYTHONPATH, wherever the stages run.",
        ) from error
    except Exception as error:
        raise LayerError(
            f"importing module {module_name!r} failed: {type(error).__name__}: {error}",
            where=_KIND,
            fix="Import it in a Python shell to see where.",
        ) from error


def _is_own_layer(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, Layer) and value.__module__ == module.__name__


def _checked(layer: Layer, *, kind: str, edge_width: int) -> Layer:
    # What only the built object shows: these would otherwise surface at the first batch.
    aggregation = getattr(layer, "aggregation", None)
    if not isinstance(aggregation, Aggregation):
        raise LayerError(
            f"{kind} has no aggregation ({aggregation!r} found)",
            where=_KIND,
            fix="Set aggregation to Sum(), Mean(), Max() or SoftmaxAttention() in the class.",
        )
    if layer.uses_messages and (isinstance(aggregation, SoftmaxAttention) or layer.uses_edge_attributes):
        raise LayerError(
            f"{kind} defines message(), which softmax attention and uses_edge_attributes do not go with",
            where=_KIND,
            fix="Define coefficient() instead, or read edge.attributes inside message() and aggregate otherwise.",
        )
    if layer.uses_edge_attributes and edge_width == 0:
        raise LayerError(
            f"{kind} needs edge attributes and the graph has none",
            where=_KIND,
            fix="Name the edge columns to use in graph.edge_features.",
        )
    return layer
