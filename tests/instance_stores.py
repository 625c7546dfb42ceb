"""Hand-made selections beside a random graph store: relations of instances with leaves, written by their format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gnnflow.graph.arrays import offsets_of
from gnnflow.graph.facts import RelationFacts
from gnnflow.graph.schema import GraphSchema
from gnnflow.storage.columns import from_matrix, from_ragged
from gnnflow.storage.graph_store import GraphStore, degrees_file, edges_file
from tests.typed_stores import KNOWN, PAYMENTS, random_tables, write_store

if TYPE_CHECKING:
    from pathlib import Path

Kind = Literal["typed", "untyped", "varying"]
KINDS: tuple[Kind, ...] = ("typed", "untyped", "varying")
VARYING, MOST = 0, 4
"""Leaves of a relation whose instances have from none to `MOST`."""


@dataclass(frozen=True)
class Wanted:
    """A relation to make: how many leaves its instances have, and its columns."""

    name: str
    leaves: int
    has_weight: bool = False
    attribute_width: int = 0


@dataclass(frozen=True)
class Instance:
    """What a root aggregates once, in the root's order."""

    leaves: tuple[int, ...]
    weight: float
    attributes: tuple[float, ...]


@dataclass(frozen=True)
class Selection:
    """The store with the selection, and the same instances by (relation, root), dense ids throughout."""

    store: GraphStore
    instances: dict[tuple[int, int], list[Instance]]


WANTED: dict[Kind, tuple[Wanted, ...]] = {
    "typed": (
        Wanted("account__account-device-account__account", 2, has_weight=True),
        Wanted("account__visits__account", 1, has_weight=True, attribute_width=1),
        Wanted("device__any__account", VARYING),
        Wanted("account__long__merchant", 3, attribute_width=2),
    ),
    "untyped": (Wanted("account__account-account-account__account", 2, has_weight=True, attribute_width=1),),
    "varying": (Wanted("account__any__account", VARYING, attribute_width=1),),
}


def instance_store(folder: Path, kind: Kind, seed: int, *, partitions: int) -> Selection:
    """Return a random graph with a selection of random instances; roots without any and roots that are leaves occur."""
    base = write_store(
        folder / "store", random_tables(PAYMENTS if kind == "typed" else KNOWN, seed), partitions=partitions
    )
    wanted = sorted(WANTED[kind], key=lambda each: each.name)
    schema = GraphSchema.named(base.schema.types, (each.name for each in wanted))
    rng, types = np.random.default_rng(seed), base.book.type_of(np.arange(base.facts.num_nodes))
    instances = {
        (number, int(root)): [_instance(each, int(root), base, rng) for _ in range(rng.integers(0, 4))]
        for number, (each, target) in enumerate(zip(wanted, schema.target_types, strict=True))
        for root in np.flatnonzero(types == target)
    }
    (folder / "selection").mkdir()
    facts = []
    for number, each in enumerate(wanted):
        rows = [(root, found) for (relation, root), of in instances.items() if relation == number for found in of]
        _write_edges(folder / "selection", base, schema, each, rows)
        degrees = [len(of) for (relation, _), of in instances.items() if relation == number]
        facts.append(
            RelationFacts(
                each.name, len(rows), each.attribute_width, each.has_weight, (), max(degrees), leaves=each.leaves
            )
        )
    _write_degrees(folder / "selection", base, schema, instances)
    return Selection(base.selected(str(folder / "selection"), facts), instances)


def _instance(wanted: Wanted, root: int, base: GraphStore, rng: np.random.Generator) -> Instance:
    count = wanted.leaves or int(rng.integers(0, MOST + 1))
    leaves = rng.integers(0, base.facts.num_nodes, count)
    leaves[rng.random(count) < 0.1] = root
    weight = float(np.float32(rng.random())) if wanted.has_weight else 1.0
    attributes = rng.random(wanted.attribute_width).astype(np.float32)
    return Instance(tuple(leaves.tolist()), weight, tuple(attributes.tolist()))


def _write_edges(
    folder: Path, base: GraphStore, schema: GraphSchema, wanted: Wanted, rows: list[tuple[int, Instance]]
) -> None:
    number = [str(each) for each in schema.relations].index(wanted.name)
    for partition in range(base.num_partitions):
        start = base.book.start(partition)
        own = [row for row in rows if start <= row[0] < start + base.book.size(partition)]
        leaves = np.array([leaf for _, each in own for leaf in each.leaves], np.int64)
        columns: dict[str, Any] = {"dst": np.array([root for root, _ in own], np.int64), "src": leaves}
        if wanted.leaves > 1:
            columns["src"] = from_matrix(leaves.reshape(-1, wanted.leaves))
        elif wanted.leaves == VARYING:
            columns["src"] = from_ragged(offsets_of(np.array([len(each.leaves) for _, each in own], np.int64)), leaves)
        if wanted.has_weight:
            columns["weight"] = np.array([each.weight for _, each in own], np.float32)
        if wanted.attribute_width:
            attributes = np.array([each.attributes for _, each in own], np.float32)
            columns["attributes"] = from_matrix(attributes.reshape(-1, wanted.attribute_width))
        pq.write_table(pa.table(columns), folder / edges_file(partition, schema, relation=number))


def _write_degrees(
    folder: Path, base: GraphStore, schema: GraphSchema, instances: dict[tuple[int, int], list[Instance]]
) -> None:
    shape = (base.facts.num_nodes, schema.num_relations)
    in_degree, out_degree, in_weight = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for (relation, root), of in instances.items():
        in_degree[root, relation] = len(of)
        in_weight[root, relation] = sum(each.weight for each in of)
        for each in of:
            out_degree[list(set(each.leaves)), relation] += 1
    for partition in range(base.num_partitions):
        for node_type in range(schema.num_types):
            rows = base.book.rows(partition, node_type)
            own = base.book.start(partition) + np.arange(rows.start, rows.stop)
            columns = {"in_degree": in_degree[own], "out_degree": out_degree[own], "in_weight": in_weight[own]}
            table = {name: from_matrix(each) if schema.is_typed else each[:, 0] for name, each in columns.items()}
            pq.write_table(pa.table(table), folder / degrees_file(partition, schema, node_type=node_type))
