"""Columns that are the label, and predictions: every target has exactly one, a number, under an id of the tables.

Shapes: N drawn targets, F columns, n predictions of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.findings import Finding
from gnnflow.graph.labels import LABEL_COLUMN, LABEL_KINDS
from gnnflow.graph.splits import SPLITS
from gnnflow.stages.leaks import LEAST_OTHERS, LEAST_ROWS, find_leaks
from gnnflow.stages.table_columns import columns_of_table, edges_table, nodes_table
from gnnflow.storage.columns import as_ids, combine, take_rows, to_numpy
from gnnflow.storage.run_folder import PREDICTIONS
from gnnflow.storage.tables import read_artifact_table

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.stages.audit_findings import AuditedRun

COLUMNS, ALL_SCORED = "label columns", "predictions"
_MOST_ROWS = 5000
_MOST_COLUMNS = 200
_MOST_VALUES = 10_000_000  # rows times encoded columns: 40 MB
_SAME = 1e-4  # the share of a column's variance that its line through the label may leave


@dataclass(frozen=True)
class _Sample:
    """Labelled targets of train: labels [N], encoded columns [N, F], and the user's columns by name."""

    labels: Array
    values: FloatArray
    columns: dict[str, tuple[int, ...]]


def check_columns(run: AuditedRun) -> Finding:
    """Look for columns of the training targets that by themselves tell the label."""
    facts = run.base.facts
    traits, width = LABEL_KINDS[facts.label_kind], _width_of(run)
    if why := _not_told(run, width):
        return Finding(COLUMNS, "not checked", f"{width:,} encoded columns", why)
    sample = _read_sample(run, width)
    names = list(sample.columns)[:_MOST_COLUMNS]
    looked = f"{len(names):,} of {len(sample.columns):,} columns over {len(sample.labels):,} targets of train"
    if why := _too_few(sample.labels, is_class=traits.is_class):
        return Finding(COLUMNS, "not checked", looked, why)
    tell = _leaks if traits.is_class else _same_numbers
    found = [f"{name!r} {text}" for name in names if (text := tell(run, sample, sample.columns[name]))]
    if not found:
        return Finding(COLUMNS, "holds", looked)
    key = "graph.features" if facts.targets == "nodes" else "graph.edge_features"
    fix = f"Where it is known only after the label, take it out of {key} and run again."
    return Finding(COLUMNS, "broken", looked, "; ".join(f"column {each}" for each in found), fix)


def _width_of(run: AuditedRun) -> int:
    """Return the number of encoded columns of a target."""
    facts = run.base.facts
    if facts.targets == "edges":
        return facts.pair_attribute_width
    features = facts.features_of_types[facts.target_type]
    return 0 if features is None else features.width


def _not_told(run: AuditedRun, width: int) -> str:
    """Return why no column is compared with the label; empty where columns are."""
    facts = run.base.facts
    traits = LABEL_KINDS[facts.label_kind]
    if not traits.has_labels:
        return "targets have no labels" if facts.label_kind == "none" else "links have no labels"
    if traits.is_list:
        return "a target has several labels"
    if not facts.splits.get("train"):
        return "no target is in train"
    if not width:
        return "targets have no columns"
    if width * LEAST_ROWS > _MOST_VALUES:
        return f"{width:,} columns are too many to read of {LEAST_ROWS} targets"
    return ""


def _too_few(labels: Array, *, is_class: bool) -> str:
    """Return why labels are too few to tell a rule from chance; empty where they are enough."""
    if len(labels) < LEAST_ROWS:
        return f"fewer than {LEAST_ROWS} targets show nothing"
    if is_class and len(labels) - np.bincount(labels).max() < LEAST_OTHERS:
        return f"fewer than {LEAST_OTHERS} targets are of another class than the most frequent, which show nothing"
    return ""


def _read_sample(run: AuditedRun, width: int) -> _Sample:
    from gnnflow.train.baselines import draw_edges, draw_rows, own_columns

    store, facts = run.base, run.base.facts
    most = min(_MOST_ROWS, _MOST_VALUES // width)
    if facts.targets == "edges":
        edges = draw_edges(store, "train", most=most, seed=run.config.seed)
        labels, values, number = edges.labels, edges.attributes, facts.pair_relation
        table = edges_table(facts, number)
    else:
        drawn = draw_rows(store, "train", most=most, seed=run.config.seed)
        labels, values, number = drawn.labels, own_columns(store, drawn.nodes), facts.target_type
        table = nodes_table(facts, number)
    named = columns_of_table(facts, table, width, number, of_edges=facts.targets == "edges")
    columns = {each.name: tuple(each.parts) for each in named}
    is_list = not facts.encodings.get(table) and all(len(parts) == width for parts in columns.values())
    if is_list:  # or columns without names: by the numbers of their places
        lead = next(iter(columns), table)
        columns = {f"{lead}[{place}]" if width > 1 else lead: (place,) for place in range(width)}
    return _Sample(labels, values, columns)


def _leaks(run: AuditedRun, sample: _Sample, parts: tuple[int, ...]) -> str:
    """Return how a column tells the class, by one of its encoded numbers or by all; empty where it does not."""
    facts = run.base.facts
    names = pa.array(facts.every_class_name, pa.string())
    held: dict[str, Any] = {"label": names.take(pa.array(sample.labels))}
    held |= {str(part): sample.values[:, part] for part in parts}
    if len(parts) > 1:  # equal rows of numbers are one value of the column
        _, value = np.unique(sample.values[:, list(parts)], axis=0, return_inverse=True)
        held["all"] = pa.array(value.ravel().astype(str))
    leaks = find_leaks(pa.table(held), "label", [name for name in held if name != "label"])
    return leaks[0].text if leaks else ""


def _same_numbers(run: AuditedRun, sample: _Sample, parts: tuple[int, ...]) -> str:
    """Return how a column's numbers are the numbers to predict, scaled or not; empty where they are not."""
    del run
    labels = sample.labels.astype(np.float64)
    for part in parts:
        values = sample.values[:, part].astype(np.float64)
        if labels.std() > 0 and values.std() > 0 and np.corrcoef(labels, values)[0, 1] ** 2 >= 1 - _SAME:
            return "is the number to predict, but for its scale"
    return ""


def check_predictions(run: AuditedRun) -> Finding:
    """Compare the ids of predictions with the targets', and look for scores that are not numbers."""
    counted = expected = unknown = missing = repeated = 0
    broken: dict[str, int] = {}
    of_edges = run.config.task.kind == "edge"
    for partition in range(run.base.num_partitions):
        table = read_artifact_table(run.uri, f"{PREDICTIONS}/part-{partition:05d}.parquet")
        counted += table.num_rows
        for places, targets in (_edge_places if of_edges else _node_places)(run, partition, table):
            times = np.bincount(places[places >= 0], minlength=targets)
            expected += targets
            unknown += int(np.count_nonzero(places < 0))
            missing += int(np.count_nonzero(times == 0))
            repeated += int(np.count_nonzero(times > 1))
        for name in table.column_names:
            if number := _count_not_finite(name, table[name]):
                broken[name] = broken.get(name, 0) + number
    looked = f"{counted:,} predictions of {expected:,} targets in {run.base.num_partitions:,} partitions"
    faults = {
        "targets have no prediction": missing,
        "targets have several": repeated,
        "predictions are of no target": unknown,
        **{f"predictions have no finite number in {name}": number for name, number in broken.items()},
    }
    told = "; ".join(f"{number:,} {what}" for what, number in faults.items() if number)
    if not told:
        return Finding(ALL_SCORED, "holds", looked)
    fix = "Delete the run's folder and its artifact of infer, and run again: `gnnflow run CONFIG` makes both."
    return Finding(ALL_SCORED, "broken", looked, told, fix)


def _codes(run: AuditedRun) -> IntArray | None:
    """Return the split codes of scored targets; None where all are scored."""
    asked = run.config.infer.targets
    return None if asked == "all" else np.array([SPLITS.index(split) for split in asked])


def _node_places(run: AuditedRun, partition: int, table: pa.Table) -> Iterator[tuple[IntArray, int]]:
    """Yield for each target type the place of each prediction among its targets, -1 for none, and their number."""
    store, facts, codes = run.base, run.base.facts, _codes(run)
    for kind in facts.target_types:
        nodes = store.nodes(partition, ["id", *([] if codes is None else ["split"])], node_type=kind)
        if codes is not None:
            nodes = take_rows(nodes, np.flatnonzero(np.isin(to_numpy(nodes["split"]), codes)))
        own = table
        if "type" in table.column_names:
            own = table.filter(pc.equal(table["type"], store.schema.types[kind]))
        ids = as_ids(combine(nodes["id"]), facts.id_type_of_targets)
        yield _places(combine(own["id"]), ids), len(ids)


def _places(wanted: pa.Array, ids: pa.Array) -> IntArray:
    """Return the place of each wanted id among distinct ids, -1 where it is none of them."""
    return to_numpy(pc.index_in(wanted.cast(ids.type), value_set=ids).fill_null(-1)).astype(np.int64)


def _edge_places(run: AuditedRun, partition: int, table: pa.Table) -> Iterator[tuple[IntArray, int]]:
    """Yield the place of each prediction among the edges to score, whose order it has, -1 for other ends."""
    store, facts, codes = run.base, run.base.facts, _codes(run)
    pairs = store.pairs(partition, ["src", "dst", "split"])
    if codes is not None:
        pairs = take_rows(pairs.combine_chunks(), np.flatnonzero(np.isin(to_numpy(pairs["split"]), codes)))
    shared = min(table.num_rows, pairs.num_rows)
    is_same = np.ones(shared, bool)
    for end, kind in zip(("src", "dst"), facts.pair_types, strict=True):
        nodes = to_numpy(pairs[end])[:shared].astype(np.int64)
        own = combine(store.take_nodes(nodes, ["id"], node_type=kind)["id"])
        is_same &= to_numpy(pc.equal(combine(table[end].slice(0, shared)).cast(own.type), own))
    places = np.where(is_same, np.arange(shared), -1)
    yield np.concatenate([places, np.full(table.num_rows - shared, -1)]), pairs.num_rows


def _count_not_finite(name: str, column: pa.ChunkedArray) -> int:
    """Return the rows of a column of scores that lack a finite number; 0 for other columns."""
    kind, held = column.type, combine(column)
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    values = held.flatten() if width > 1 or pa.types.is_fixed_size_list(kind) else held
    if name == LABEL_COLUMN or not pa.types.is_floating(values.type):
        return 0
    if held.null_count:
        return int(held.null_count)
    return int(np.count_nonzero(~np.isfinite(to_numpy(values).reshape(-1, width)).all(axis=1)))
