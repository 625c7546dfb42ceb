"""What targets are: which keys and which neighbours go with nodes, links and labels of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.messages import show
from gnnflow.config.neighbors_section import DirectNeighbors
from gnnflow.graph.labels import LABEL_KINDS, metrics_to_choose

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections

_METRICS_OF_LABELS = {name for kind, traits in LABEL_KINDS.items() if kind != "link" for name in traits.metrics}


def links_have_their_own_keys(config: Sections) -> None:
    """Raise where links are predicted with keys of nodes."""
    if config.task.kind != "link":
        return
    if config.train.metric not in metrics_to_choose("link"):
        raise problem(
            f"{config.train.metric} is not defined for links",
            key="train.metric",
            fix=f"Set it to {' or '.join(metrics_to_choose('link'))}.",
        )
    _needs(config, "infer.embeddings", config.infer.embeddings, needed=False, why="predictions are embeddings already")
    why = "splits are those of edges, and embeddings those of nodes"
    _needs(config, "infer.targets", config.infer.targets, needed="all", why=why)
    _needs(config, "train.class_weight", config.train.class_weight, needed="none", why="an edge has no class")


def labels_of_edges_have_their_own_keys(config: Sections) -> None:
    """Raise where labels of edges are predicted with keys of nodes or links."""
    if config.task.kind != "edge":
        return
    if config.train.metric in LABEL_KINDS["link"].metrics and config.train.metric not in _METRICS_OF_LABELS:
        raise problem(
            f"{config.train.metric} is not defined for labels of edges",
            key="train.metric",
            fix="Set it to a metric of classes or numbers.",
        )
    _needs(config, "infer.embeddings", config.infer.embeddings, needed=False, why="predictions are those of edges")


def inputs_are_no_labels(config: Sections) -> None:
    """Raise where the table that labels are read from has them, or splits, among its features."""
    graph, kind = config.graph, config.task.kind
    if kind == "link":  # its labels are its edges
        return
    target = graph.schema.types[graph.target_type]
    key, of, columns = "features", target, graph.features_of(target)
    if kind == "edge":
        key, of, columns = "edge_features", str(graph.target_edges), graph.edge_features_of(graph.target_edges)
    for role in ("label", "split"):
        if getattr(graph, role) in columns:
            raise problem(
                f"{getattr(graph, role)!r} is the column of graph.{role}, and task.kind is {kind}",
                key=f"graph.{key}.{of}" if isinstance(getattr(graph, key), dict) else f"graph.{key}",
                fix="Take it out of the list: a label would be its own input.",
            )


def neighborhoods_are_those_of_edges(config: Sections) -> None:
    """Raise where edges are scored and neighbourhoods of all nodes are asked for."""
    if config.task.kind != "node":
        why = "neighbourhoods are those of the ends of edges"
        _needs(config, "flat.targets", config.flat.targets, needed="labelled", why=why)


def pairs_have_direct_neighbors(config: Sections) -> None:
    """Raise where edges are scored and neighbours do not say which edges they came by."""
    if config.task.kind != "node" and not isinstance(config.neighbors, DirectNeighbors):
        raise problem(
            f"{config.neighbors.kind} is not allowed where task.kind is {config.task.kind}: an edge that is scored is "
            "left out of the neighbours of its ends, and other neighbours do not say which edges they came by",
            key="neighbors.kind",
            fix="Set it to direct.",
        )


def target_is_of_the_task(config: Sections) -> None:
    """Raise where graph.target names a relation for nodes, or no relation for edges."""
    graph, kind = config.graph, config.task.kind
    if kind == "node" and graph.target_relation is not None:
        raise problem(
            f"{graph.target!r} is a relation, and where task.kind is node a type of nodes is labelled and scored",
            key="graph.target",
            fix=f"Name one of {', '.join(graph.schema.types)}, or set task.kind to link or edge.",
        )
    if kind != "node" and graph.schema.is_typed and graph.target_relation is None:
        found = "required but missing" if graph.target is None else f"{graph.target!r} is a type of nodes"
        raise problem(
            f"{found}, where task.kind is {kind} and the graph has several types or relations",
            key="graph.target",
            fix=f"Name the relation whose edges are scored: one of {', '.join(map(str, graph.edge_tables))}.",
        )


def _needs(config: Sections, key: str, value: object, *, needed: object, why: str) -> None:
    if value != needed:
        reason = f"{show(value)} is not allowed where task.kind is {config.task.kind}: {why}"
        raise problem(reason, key=key, fix="Leave it out.")
