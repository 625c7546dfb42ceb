"""The columns of predictions that the tables knew before: each target's label and split.

Whoever reads predictions can then compare them with what was true, and leave out what the model was trained on, without
a join.

Shapes: n targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.labels import LABEL_COLUMN, LABEL_KINDS, SPLIT_COLUMN, UNLABELLED
from gnnflow.graph.splits import NO_SPLIT, SPLITS
from gnnflow.storage.columns import combine, from_matrix, to_matrix, to_numpy

if TYPE_CHECKING:
    from gnnflow.graph.arrays import BoolArray, IntArray
    from gnnflow.graph.facts import GraphFacts
    from gnnflow.infer.job import InferJob
    from gnnflow.storage.graph_store import GraphStore


def node_columns(index: int, job: InferJob, rows: IntArray) -> dict[str, Any]:
    """Return label and split of a partition's scored nodes; nothing for links, whose splits are of edges.

    rows: local rows of nodes of the target type.
    """
    store = job.neighbors.store
    if job.row_kind == "link":
        return {}
    own = rows - store.book.rows(index, store.facts.target_type).start
    return known_columns(store.nodes(index, _wanted(store.facts), node_type=store.facts.target_type), own, store.facts)


def columns_of_targets(store: GraphStore, targets: IntArray) -> dict[str, Any]:
    """Return label and split of nodes of the target type, given by dense ids [n], in their order."""
    held = store.take_nodes(targets, _wanted(store.facts), node_type=store.facts.target_type)
    return known_columns(held, np.arange(len(targets)), store.facts)


def known_columns(targets: pa.Table, rows: IntArray, facts: GraphFacts) -> dict[str, Any]:
    """Return the columns of some targets. targets: with the store's columns split and, of labelled tables, label.

    `label` is null where a target has none, and the name of its class where the tables' classes have names.
    """
    columns: dict[str, Any] = {}
    if "label" in targets.column_names:
        columns[LABEL_COLUMN] = _labels(targets, rows, facts)
    # codes count from -1, and indices from 0
    names = pa.array([NO_SPLIT, *SPLITS])
    columns[SPLIT_COLUMN] = names.take(pa.array(to_numpy(targets["split"])[rows].astype(np.int64) + 1))
    return columns


def _labels(targets: pa.Table, rows: IntArray, facts: GraphFacts) -> Any:
    label, traits = combine(targets["label"]), LABEL_KINDS[facts.label_kind]
    if traits.is_list:
        label = from_matrix(to_matrix(label, np.int8))
    held = label.take(pa.array(rows, pa.int64(), mask=~_labelled(targets, facts)[rows]))
    if not (traits.is_class and facts.class_names):
        return held
    return pa.array(facts.every_class_name, pa.string()).take(held)


def _labelled(targets: pa.Table, facts: GraphFacts) -> BoolArray:
    """Return which targets have a label [n]; edges have no column of it, and a split only with a label."""
    if "labelled" in targets.column_names:
        return np.asarray(to_numpy(targets["labelled"]), bool)
    traits = LABEL_KINDS[facts.label_kind]
    if traits.is_list:
        return np.asarray(to_numpy(targets["split"]) >= 0)
    label = to_numpy(targets["label"])
    return np.asarray(label != UNLABELLED if traits.is_class else np.isfinite(label))


def _wanted(facts: GraphFacts) -> list[str]:
    """Return the store's columns that `known_columns` reads."""
    return ["split", "labelled", *(["label"] if LABEL_KINDS[facts.label_kind].has_labels else [])]
