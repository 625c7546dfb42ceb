"""Advice about the tables, their columns and the graph that they make."""

from __future__ import annotations

from itertools import chain

from gnnflow.graph.errors import listed
from gnnflow.report.formats import count_text, percent_text, sentence
from gnnflow.report.hint import Hint
from gnnflow.report.inputs import ReportInputs

MOST_ISOLATED = 0.2  # share of nodes without in-edges
MOST_READ = 10_000  # in-edges of a node, where nothing is sampled


def _set_aside(inputs: ReportInputs) -> Hint | None:
    lost = [f"{name}: {rows.text}" for name, rows in inputs.tables.items() if rows.rows_quarantined]
    if not lost:
        return None
    where = "The reasons are listed under The graph."
    return Hint("warning", "Rows were set aside", f"{'; '.join(lost)} were not used. {where}")


def _missing_split(inputs: ReportInputs) -> Hint | None:
    splits = inputs.graph.split_counts
    empty = [name for name in ("valid", "test") if splits and not splits.get(name)]
    if not empty:
        return None
    names = " and no ".join(empty)
    why = "the best epoch is not known" if "valid" in empty else "the score on unseen nodes is unknown"
    advice = "Mark some targets in graph.split, or draw them: task.split"
    if inputs.setting("task.split.kind") not in {None, "auto", "column"}:
        advice = "Raise " + " and ".join(f"task.split.{name}" for name in empty)
    return Hint("warning", f"No {names} split", f"Without it {why}. {advice}.")


def _unlearnable(inputs: ReportInputs) -> Hint | None:
    found = inputs.unlearnable
    if found is None or not found.text:
        return None
    return Hint(
        "problem",
        f"A {found.noun} cannot be learned",
        f"{sentence(found.text)}. Metrics still count it, and its targets in valid or test are wrong with any model. "
        "Mark some of its targets as train, or draw the split: task.split.",
    )


def _large(inputs: ReportInputs) -> Hint | None:
    if not inputs.large:
        return None
    columns = listed([*chain.from_iterable(inputs.large.values())])
    keys = " and ".join(f"{key}: standard" for key in inputs.large)
    return Hint(
        "warning",
        "Large numbers are not scaled",
        f"Layers learn best from numbers near 1, and these columns are above 10: {columns}. Set {keys}.",
    )


def _unread(inputs: ReportInputs) -> Hint | None:
    if not inputs.unread:
        return None
    columns, kind = ", ".join(inputs.unread), inputs.setting("neighbors.kind")
    direct = "" if kind in {None, "direct"} else f" with neighbors.kind: direct, since kind {kind} has no attributes"
    return Hint(
        "idea",
        "The model does not read the edge attributes",
        f"graph.edge_features names {columns}, and only the layer gat_e reads them. Try model.kind: gat_e{direct}.",
    )


def _hubs(inputs: ReportInputs) -> Hint | None:
    graph = inputs.graph
    if not graph.reads_all or graph.max_in_degree <= MOST_READ:
        return None
    other = ", under train.strategy: mini-batch," if inputs.setting("train.strategy") == "cluster-batch" else ""
    return Hint(
        "idea",
        f"A node has {count_text(graph.max_in_degree)} in-edges, and all are read",
        "Such neighbourhoods dominate size and time. A fan-out (neighbors.sampling) limits "
        f"them{other}, and training and inference keep the same neighbours.",
    )


def _isolated(inputs: ReportInputs) -> Hint | None:
    alone = sum(nodes for low, _, nodes in inputs.graph.in_degree_histogram if low == 0)
    share = alone / max(inputs.graph.num_nodes, 1)
    if share <= MOST_ISOLATED:
        return None
    advice = " If edges mean the same both ways, set graph.reverse_edges: true."
    if inputs.setting("graph.reverse_edges"):
        advice = " No edge has their ids at either end."
    return Hint(
        "idea",
        f"{percent_text(share)} of the nodes have no in-edges",
        f"They are predicted from their own features alone.{advice}",
    )


TABLE_RULES = (
    _set_aside,
    _missing_split,
    _unlearnable,
    _large,
    _unread,
    _hubs,
    _isolated,
)
