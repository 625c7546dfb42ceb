"""The checks of tasks: keys and neighbours for nodes, links and labels of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnflow.config.base import problem
from gnnflow.config.messages import show
from gnnflow.config.neighbors_section import DirectNeighbors
from gnnflow.config.train_keys import BASELINES
from gnnflow.graph.labels import AUTO, LABEL_KINDS, selection_metrics

if TYPE_CHECKING:
    from gnnflow.config.sections import Sections

_METRICS_OF_LABELS = {name for kind, traits in LABEL_KINDS.items() if kind != "link" for name in traits.metrics}


def check_link_keys(config: Sections) -> None:
    """Raise where links are predicted with keys of nodes."""
    if config.task.kind != "link":
        return
    if config.train.metric not in (AUTO, *selection_metrics("link")):
        raise problem(
            f"{config.train.metric} is not defined for links",
            key="train.metric",
            fix=f"Set it to {' or '.join(selection_metrics('link'))}.",
        )
    _require(
        config, "infer.embeddings", config.infer.embeddings, needed=False, why="predictions are embeddings already"
    )
    why = "splits belong to edges, and embeddings to nodes"
    _require(config, "infer.targets", config.infer.targets, needed="all", why=why)
    _require(config, "train.class_weight", config.train.class_weight, needed="none", why="an edge has no class")


def check_baselines(config: Sections) -> None:
    """Raise where a baseline does not fit the task."""
    asked, fitting = config.train.baselines, BASELINES[config.task.kind]
    if isinstance(asked, str) or set(asked) <= set(fitting):
        return
    other = next(each for each in asked if each not in fitting)
    raise problem(
        f"{other} is not a baseline of task.kind {config.task.kind}",
        key="train.baselines",
        fix=f"Choose from {', '.join(fitting)}." if fitting else "Leave it out.",
    )


def check_edge_keys(config: Sections) -> None:
    """Raise where labels of edges are predicted with keys of nodes or links."""
    if config.task.kind != "edge":
        return
    if config.train.metric in LABEL_KINDS["link"].metrics and config.train.metric not in _METRICS_OF_LABELS:
        raise problem(
            f"{config.train.metric} is not defined for labels of edges",
            key="train.metric",
            fix="Set it to a metric of classes or numbers.",
        )
    _require(config, "infer.embeddings", config.infer.embeddings, needed=False, why="predictions belong to edges")


def check_inputs(config: Sections) -> None:
    """Raise where the column of labels or of splits is a feature too."""
    graph, kind = config.graph, config.task.kind
    if kind == "link":  # its labels are its edges
        return
    target = graph.schema.types[graph.target_type]
    key, of, columns = "features", target, graph.features_of(target)
    if kind == "edge":
        key, of, columns = "edge_features", str(graph.target_edges), graph.edge_features_of(graph.target_edges)
    own = graph.of_targets(edges=kind == "edge")
    for role in ("label", "split"):
        if getattr(own, role) in columns:
            raise problem(
                f"{getattr(own, role)!r} is the column of graph.{role}, and task.kind is {kind}",
                key=f"graph.{key}.{of}" if isinstance(getattr(graph, key), dict) else f"graph.{key}",
                fix="Take it out of the list: a label would be its own input.",
                meant={"item": getattr(own, role)},
            )


def check_pair_targets(config: Sections) -> None:
    """Raise where edges are scored and flat.targets asks for neighbourhoods of all nodes."""
    if config.task.kind != "node":
        why = "only the ends of edges have neighbourhoods"
        _require(config, "flat.targets", config.flat.targets, needed="labelled", why=why)


def check_pair_neighbors(config: Sections) -> None:
    """Raise where edges are scored and the neighbours do not come from single edges."""
    if config.task.kind != "node" and not isinstance(config.neighbors, DirectNeighbors):
        raise problem(
            f"{config.neighbors.kind} is not allowed where task.kind is {config.task.kind}: a scored edge is left out "
            "of the neighbours of its ends, which needs direct neighbours",
            key="neighbors.kind",
            fix="Set it to direct.",
        )


def check_target(config: Sections) -> None:
    """Raise where graph.target names a relation for nodes, or no relation for edges."""
    graph, kind = config.graph, config.task.kind
    target = graph.schema.types[graph.target_type]
    if kind == "node" and graph.target_relation is None and not graph.node_tables[target]:
        key, fix = f"graph.nodes.{target}", "Name the table with its labels, or another type in graph.target."
        raise problem("is null, and the nodes of graph.target are labelled in their table", key=key, fix=fix)
    if kind == "node" and graph.target_relation is not None:
        raise problem(
            f"{graph.target!r} is a relation, and where task.kind is node the target is a type of nodes",
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


def _require(config: Sections, key: str, value: object, *, needed: object, why: str) -> None:
    if value != needed:
        reason = f"{show(value)} is not allowed where task.kind is {config.task.kind}: {why}"
        raise problem(reason, key=key, fix="Leave it out.")
