"""Construction of layers from a model section: the class that its kind names builds them.

A user's class is named `package.module:Class`; so is a convolution of PyG, which gets a layer around it. All failures
are LayerErrors that name the problem and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from gnnflow.config import GGNNConfig, HANConfig, HGTConfig, MAGNNConfig, ModelConfig, OwnLayerConfig, RGCNConfig
from gnnflow.config.base import OWN_SPELLING
from gnnflow.config.model_section import OWN_KIND
from gnnflow.config.own_code import own_module
from gnnflow.graph.errors import LayerError
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers import ggnn, han, hgt, magnn, rgcn
from gnnflow.layers.aggregation import Aggregation
from gnnflow.layers.attention import SoftmaxAttention
from gnnflow.layers.base import Layer
from gnnflow.layers.levels import Levels
from gnnflow.layers.place import Place
from gnnflow.layers.pyg import is_convolution, layer_of
from gnnflow.layers.relational import RelationLayers

_KIND = "model.kind"


def build_layer(config: ModelConfig, place: Place) -> Layer:
    """Return the layer of a model section at its place; `out_width` is the width of its rows.

    Raises LayerError if the class cannot be found or built.
    """
    if isinstance(config, OwnLayerConfig):
        layer = _own(config, place)
    else:
        layer = load_layer_class(config.layer_class).from_config(config, place)
    return _checked(layer, kind=config.kind, attribute_width=place.attribute_width)


def build_relations(
    config: ModelConfig, place: Place, schema: GraphSchema, *, leaves: Sequence[int] | None = None
) -> RelationLayers:
    """Return the layers of a model section at a place, one per relation of a typed graph.

    leaves: the number of source nodes of each relation's edges, 0 if it varies; None: one. Raises LayerError if the
    class cannot be found or built.
    """
    leaves = leaves or (1,) * schema.num_relations
    # kinds whose relations share parameters build them together
    if isinstance(config, RGCNConfig):
        return rgcn.relation_layers(config, place, schema)
    if isinstance(config, HANConfig):
        return han.relation_layers(config, place, schema)
    if isinstance(config, HGTConfig):
        return hgt.relation_layers(config, place, schema)
    if isinstance(config, GGNNConfig):
        return ggnn.relation_layers(config, place, schema)
    if isinstance(config, MAGNNConfig):
        return magnn.relation_layers(config, place, schema, leaves=leaves)
    layers = [build_layer(config, replace(place, leaves=size)) for size in leaves]
    return RelationLayers(schema, layers, across=config.across)


def load_layer_class(kind: str) -> type[Layer]:
    """Return the layer class named `package.module:Class`. Raises LayerError naming the wrong part.

    Every import of code that a config, a saved model or a registry names goes through here. Raises ConfigError, before
    anything is imported, if the module is not allowed here.
    """
    if not OWN_SPELLING.fullmatch(kind):
        raise LayerError(f"{kind!r} does not name a layer class", where=_KIND, fix=f"Write it as {OWN_KIND}.")
    module_name, class_name = kind.split(":")
    module = own_module(kind, where=_KIND)
    found = getattr(module, class_name, None)
    if found is None:
        own = [name for name, value in vars(module).items() if _is_own_layer(value, module)]
        near = difflib.get_close_matches(
            class_name, [name for name, value in vars(module).items() if is_convolution(value)]
        )
        fix = f"Did you mean {', '.join(near)}?" if near else f"Its layers are: {', '.join(own) or 'none'}."
        raise LayerError(f"module {module_name!r} has no class {class_name!r}", where=_KIND, fix=fix)
    if is_convolution(found):
        return layer_of(found)
    if not (isinstance(found, type) and issubclass(found, Layer)):
        raise LayerError(
            f"{kind!r} is not a gnnflow layer",
            where=_KIND,
            fix="Derive the class from gnnflow.layers.Layer, or from a convolution of torch_geometric.nn.",
        )
    return found


def _own(config: OwnLayerConfig, place: Place) -> Layer:
    cls = load_layer_class(config.kind)
    try:
        return cls.from_config(config, place)
    except LayerError:
        raise
    except Exception as error:
        arguments = [place.in_width, place.width, *(f"{name}={value!r}" for name, value in config.options.items())]
        raise LayerError(
            f"{config.kind}({', '.join(map(str, arguments))}) failed: {type(error).__name__}: {error}",
            where="model.options",
            fix="The class is built as Class(in_width, out_width, **options); give it the options that it takes.",
        ) from error


def _is_own_layer(value: object, module: ModuleType) -> bool:
    return isinstance(value, type) and issubclass(value, Layer) and value.__module__ == module.__name__


def _checked(layer: Layer, *, kind: str, attribute_width: int) -> Layer:
    """Return the layer. Raises LayerError for errors that would otherwise show in the first batch."""
    aggregation = _aggregation_of(layer, kind)
    _check_phases(layer, aggregation, kind)
    if (layer.uses_edge_attributes or aggregation.reads_attributes) and attribute_width == 0:
        raise LayerError(
            f"{kind} needs edge attributes and the graph has none",
            where=_KIND,
            fix="Name the edge columns to use in graph.edge_features.",
        )
    return layer


def _aggregation_of(layer: Layer, kind: str) -> Aggregation:
    """Return the aggregation of a target's messages, of several levels the first."""
    found = getattr(layer, "aggregation", None)
    aggregation = found.instance if isinstance(found, Levels) else found
    if not isinstance(aggregation, Aggregation):
        raise LayerError(
            f"{kind} has no aggregation ({aggregation!r} found)",
            where=_KIND,
            fix="Set aggregation to Sum(), Mean(), Max() or SoftmaxAttention() in the class.",
        )
    return aggregation


def _check_phases(layer: Layer, aggregation: Aggregation, kind: str) -> None:
    """Raise LayerError if a layer defines, or leaves to executions, phases that do not fit together."""
    if layer.uses_messages and (isinstance(aggregation, SoftmaxAttention) or layer.uses_edge_attributes):
        raise LayerError(
            f"{kind} defines message(), which softmax attention and uses_edge_attributes do not support",
            where=_KIND,
            fix="Define coefficient() instead, or read edge.attributes inside message() and aggregate otherwise.",
        )
    commutes = aggregation.linear and layer.uses_coefficients and not layer.uses_edge_attributes
    commutes = commutes and layer.levels.leaf.linear and not layer.uses_instances
    if layer.value_weight is not None and not commutes:
        raise LayerError(
            f"{kind} leaves its value_weight to executions, which apply it before or after the aggregation; here the "
            "results differ",
            where=_KIND,
            fix="Apply the map in transform(). value_weight is for coefficient() with Sum, Mean or softmax attention.",
        )
    if layer.logit_slope is not None and not (layer.uses_coefficients and isinstance(aggregation, SoftmaxAttention)):
        raise LayerError(
            f"{kind} sets logit_slope = {layer.logit_slope}, but no softmax weighs its messages",
            where=_KIND,
            fix="Omit logit_slope: it is for coefficient() with SoftmaxAttention().",
        )
