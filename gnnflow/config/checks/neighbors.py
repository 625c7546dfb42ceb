"""The checks of neighbours: hops and layers, fan-outs and relations, and columns of edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from gnnflow.config.base import problem, together
from gnnflow.config.messages import closest, nearest
from gnnflow.config.model_section import GATEConfig, JoinedKeys, PGNNConfig
from gnnflow.config.neighbors_section import (
    DirectNeighbors,
    MetapathNeighbors,
    NoSampling,
    RingNeighbors,
    WalkNeighbors,
    relation_of,
)

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections


def check_hops(config: Sections) -> None:
    """Raise where neighbourhoods have fewer hops than the model has layers."""
    if config.num_hops < config.model.layers:
        raise problem(
            f"{config.flat.hops} is not allowed: must be at least {config.model.layers}, as model.layers",
            key="flat.hops",
            fix="Leave it out, or raise it: neighbourhoods of more hops serve models of fewer layers too.",
        )


def check_target_neighbors(config: Sections) -> None:
    """Raise where nodes of the scored type have no neighbours to aggregate."""
    graph, relations = config.graph, config.aggregated_relations
    if config.task.kind != "node" or relations is None or graph.target_relation is not None:
        return
    target = graph.schema.types[graph.target_type]
    if all(each.target != target for each in relations):
        direct = isinstance(config.neighbors, DirectNeighbors)
        turned = any(each.source == target for each in relations)
        fix = "Set graph.reverse_edges: true." if turned else f"Give graph.edges a table of edges of {target}."
        raise problem(
            f"no relation leads to {target}, which would be scored by its own features alone: they are "
            f"{', '.join(map(str, relations))}",
            key="graph.target" if direct else "neighbors.kind",
            fix=fix if direct else f"Choose neighbours that nodes of type {target} have.",
            meant={"reverse_edges": True} if direct and turned else None,
        )


def check_across(config: Sections) -> None:
    """Raise where a config joins relations and the model sees one."""
    model, relations = config.model, config.aggregated_relations
    has_several = config.graph.schema.num_types > 1 or relations is None or len(relations) > 1
    if has_several or not isinstance(model, JoinedKeys):
        return
    if model.across != type(model).model_fields["across"].default:
        direct = isinstance(config.neighbors, DirectNeighbors)
        one = "the graph has one" if direct else f"neighbors.kind {config.neighbors.kind} gives one"
        raise problem(
            f"{model.across!r} joins a node's rows of several relations, and {one}",
            key="model.across",
            fix="Leave it out, or give graph.edges as {source__relation__target: path}.",
        )


def check_fanouts(config: Sections) -> None:
    """Raise where the number of fan-outs is not the number of hops."""
    sampling, place = config.neighbors.sampling, "neighbors.sampling.fanout"
    if isinstance(sampling, NoSampling):
        return
    hops = max(config.num_hops, config.model.layers)  # fewer are refused, and raised to these
    found = [*_fanout_names(config, sampling.fanout)] if isinstance(sampling.fanout, dict) else []
    held = {place: sampling.fanout} if isinstance(sampling.fanout, tuple) else sampling.fanout
    found += [
        problem(
            f"{list(fanout)} is not allowed: must have {hops} numbers, one per hop",
            key=name if name == place else f"{place}.{name}",
            fix="Give one number per hop, targets first, or change model.layers or flat.hops.",
        )
        for name, fanout in held.items()
        if len(fanout) != hops
    ]
    if found:
        raise together(found)


def _fanout_names(config: Sections, fanouts: Mapping[str, object]) -> Iterator[PydanticCustomError]:
    """Yield a problem for each relation that a map of fan-outs lacks or should not have."""
    place = "neighbors.sampling.fanout"
    if isinstance(config.graph.edges, str):
        yield problem("a map of relations, and graph.edges is one table", key=place, fix="Give one list.")
        return
    known = [str(relation) for relation in config.graph.schema.relations]
    missing = [name for name in known if name not in fanouts]
    for name in fanouts:
        if name not in known:
            near = closest(name, missing)
            missing = [each for each in missing if each != near]
            yield problem(
                f"{name!r} is not a relation of the graph",
                key=f"{place}.{name}",
                fix=f"{nearest(name, [near])} They are {', '.join(known)}.".strip(),
                meant={"name": near} if near else None,
            )
    if missing:
        yield problem(
            f"has no list for {', '.join(missing)}", key=place, fix="Name every relation, or give one list for all."
        )


def check_metapaths(config: Sections) -> None:
    """Raise where a metapath takes a step that follows no relation, or is listed twice."""
    if not isinstance(config.neighbors, MetapathNeighbors):
        return
    schema, key = config.graph.schema, "neighbors.paths"
    joined = {(relation.target, relation.source) for relation in schema.relations}
    for path in config.neighbors.paths:
        if unknown := [name for name in path if name not in schema.types]:
            fix = f"They are {', '.join(schema.types)}."
            raise problem(f"{unknown[0]!r} is not a node type of the graph", key=key, fix=fix)
        if apart := [pair for pair in pairwise(path) if pair not in joined]:
            target, source = apart[0]
            raise problem(
                f"{list(path)} steps from {target} to {source}, and no relation leads from {source} to {target}",
                key=key,
                fix="Paths follow edges backwards, from target to source. "
                f"{'Name' if config.graph.reverse_edges else 'Set graph.reverse_edges: true, or name'} types that a "
                "relation joins.",
            )
    if len(set(config.neighbors.paths)) < len(config.neighbors.paths):
        raise problem("a path is listed twice", key=key, fix="List each once.")
    names = Counter(relation_of(path) for path in config.neighbors.paths)
    if twice := [str(each) for each, count in names.items() if count > 1]:
        fix = "Leave one out, or name the types without a `-`."
        raise problem(f"two paths give the relation {twice[0]}", key=key, fix=fix)


def check_edge_columns(config: Sections) -> None:
    """Raise where a layer reads edge columns that the chosen neighbours do not have."""
    model, neighbors = config.model, config.neighbors
    selected = isinstance(neighbors, (WalkNeighbors, RingNeighbors, MetapathNeighbors))
    if isinstance(model, GATEConfig) and selected:
        raise problem(
            f"{model.kind} reads edge attributes, and neighbours of kind {neighbors.kind} have none",
            key="model.kind",
            fix="Choose gat, or set neighbors.kind to direct.",
        )
    graph, direct = config.graph, isinstance(neighbors, DirectNeighbors)
    if isinstance(model, GATEConfig) and direct and not any(map(graph.edge_features_of, graph.edge_tables)):
        raise problem(
            f"{model.kind} reads edge attributes, and graph.edge_features names none",
            key="model.kind",
            fix="Name the edge columns to use in graph.edge_features, or choose gat.",
        )
    sets = model.anchor_sets if isinstance(model, PGNNConfig) else None
    if sets is not None and (selected or direct):
        raise problem(
            f"{sets} is not allowed where neighbors.kind is {neighbors.kind}: only anchors have sets",
            key="model.anchor_sets",
            fix="Leave it out, or set neighbors.kind to anchors.",
        )
