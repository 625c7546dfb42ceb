"""What the user's tables hold, read from their schemas before any row is: the one place that interprets column types.

Raises TableError with the file and column where a table breaks its contract.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.storage.tables import read_chunk, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.labels import LabelKind
    from gnnflow.storage.tables import Chunk

IdType = Literal["int64", "string"]
_FEATURE_DIM = b"feature_dim"
_CLASS_NAMES = b"label_classes"


@dataclass(frozen=True)
class ColumnPart:
    """One column of a dense matrix: a list of `width` numbers, or a scalar (width 1)."""

    name: str
    width: int
    is_list: bool


@dataclass(frozen=True)
class SourceSchema:
    """How to read the node and edge tables.

    Dense features are the concatenation of `features`; sparse ones are the columns `<sparse>_index`/`<sparse>_value`.
    class_names are those the node table's metadata states, by class number; there may be fewer or more than classes.
    """

    id_type: IdType
    features: tuple[ColumnPart, ...]
    sparse: str | None
    sparse_has_value: bool
    feature_width: int
    label_kind: LabelKind
    label_width: int
    has_split: bool
    has_weight: bool
    attributes: tuple[ColumnPart, ...]
    class_names: tuple[str, ...] = ()

    @property
    def attribute_width(self) -> int:
        """Width of the edge attributes; 0 where there are none."""
        return sum(part.width for part in self.attributes)

    @property
    def has_labels(self) -> bool:
        """Whether the node table has a label column."""
        return LABEL_KINDS[self.label_kind].has_labels


def read_schema(nodes: Sequence[Chunk], edges: Sequence[Chunk], config: GraphConfig) -> SourceSchema:
    """Return how to read these tables. Reads schemas, and first rows where a list's width is only in the rows."""
    for chunks, uri, key in ((nodes, config.nodes, "graph.nodes"), (edges, config.edges, "graph.edges")):
        if all(chunk.num_rows == 0 for chunk in chunks):
            raise TableError("the table has no rows", where=str(uri), fix=f"Check {key}.")
    node_schema, edge_schema = _agreed(nodes), _agreed(edges)
    id_type = _id_type(node_schema, nodes[0], config.id, "graph.id")
    for role, column in (("graph.src", config.src), ("graph.dst", config.dst)):
        _same_type(id_type, _id_type(edge_schema, edges[0], column, role), edges[0], column, config.id)
    sparse = _sparse_stem(node_schema, config)
    features = () if sparse else tuple(_part(node_schema, nodes, name, "graph.features") for name in config.features)
    label_kind, label_width = _label(node_schema, nodes, config)
    attributes = tuple(_part(edge_schema, edges, name, "graph.edge_features") for name in config.edge_features)
    return SourceSchema(
        id_type=id_type,
        features=features,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in node_schema.names,
        feature_width=_sparse_width(node_schema, nodes, sparse, config) if sparse else sum(p.width for p in features),
        label_kind=label_kind,
        label_width=label_width,
        has_split=_split_is_text(node_schema, nodes[0], config.split),
        has_weight=_weight_is_number(edge_schema, edges[0], config.weight),
        attributes=attributes,
        class_names=_class_names(nodes) if LABEL_KINDS[label_kind].has_classes else (),
    )


def _agreed(chunks: Sequence[Chunk]) -> pa.Schema:
    first = schema_of(chunks[0])
    for chunk in {chunk.uri: chunk for chunk in chunks}.values():
        other = schema_of(chunk)
        if other.names != first.names:
            raise TableError(
                f"has columns {other.names}, the first file has {first.names}",
                where=chunk.uri,
                fix="Write all files of a table with the same columns.",
            )
    return first


def _field(schema: pa.Schema, chunk: Chunk, name: str, role: str) -> pa.Field:
    if name not in schema.names:
        raise TableError(
            f"has no column {name!r} ({role}); it has {', '.join(schema.names)}",
            where=chunk.uri,
            fix=f"Set {role} to one of them, or write the column.",
        )
    return schema.field(name)


def _plain(found: pa.DataType) -> pa.DataType:
    return found.value_type if pa.types.is_dictionary(found) else found


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def _is_number(found: pa.DataType) -> bool:
    return bool(pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_boolean(found))


def _is_list(found: pa.DataType) -> bool:
    return bool(pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found))


def _id_type(schema: pa.Schema, chunk: Chunk, name: str, role: str) -> IdType:
    found = _plain(_field(schema, chunk, name, role).type)
    if pa.types.is_integer(found):
        return "int64"
    if _is_text(found):
        return "string"
    raise TableError(f"column {name!r} is {found}, not an id", where=chunk.uri, fix="Write ids as int64 or string.")


def _same_type(nodes: IdType, edges: IdType, chunk: Chunk, column: str, id_column: str) -> None:
    if nodes != edges:
        raise TableError(
            f"column {column!r} holds {edges} ids, the node table's {id_column!r} holds {nodes}",
            where=chunk.uri,
            fix="Write both tables with the same id type.",
        )


def _sparse_stem(schema: pa.Schema, config: GraphConfig) -> str | None:
    stems = [name for name in config.features if name not in schema.names and f"{name}_index" in schema.names]
    if stems and len(config.features) > 1:
        raise TableError(
            f"graph.features mixes the sparse column {stems[0]!r} with others",
            where=str(config.nodes),
            fix="Use one sparse feature, or dense columns only.",
        )
    if stems and config.normalize == "standard":
        raise TableError(
            "normalize: standard would make sparse features dense",
            where=str(config.nodes),
            fix="Use normalize: row or none for x_index/x_value.",
        )
    return stems[0] if stems else None


def _sparse_width(schema: pa.Schema, nodes: Sequence[Chunk], stem: str, config: GraphConfig) -> int:
    if config.feature_dim is not None:
        return config.feature_dim
    stated = (schema.metadata or {}).get(_FEATURE_DIM)
    if stated is not None:
        return int(stated)
    largest = [pc.max(pc.list_flatten(read_chunk(chunk, [f"{stem}_index"]).column(0))).as_py() for chunk in nodes]
    return 1 + max((value for value in largest if value is not None), default=0)


def _part(schema: pa.Schema, chunks: Sequence[Chunk], name: str, role: str) -> ColumnPart:
    found = _field(schema, chunks[0], name, role).type
    if _is_number(found):
        return ColumnPart(name, 1, is_list=False)
    if not _is_list(found) or not _is_number(found.value_type):
        raise TableError(
            f"column {name!r} is {found}, not numbers", where=chunks[0].uri, fix="Write numbers or lists of numbers."
        )
    return ColumnPart(name, _list_width(found, chunks, name), is_list=True)


def _list_width(found: pa.DataType, chunks: Sequence[Chunk], name: str) -> int:
    if pa.types.is_fixed_size_list(found):
        return int(found.list_size)
    for chunk in chunks:
        widths = pc.drop_null(pc.list_value_length(read_chunk(chunk, [name]).column(0)))
        if len(widths):
            return int(widths[0].as_py())
    raise TableError(f"column {name!r} is empty in every row", where=chunks[0].uri, fix="Write at least one value.")


def _label(schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig) -> tuple[LabelKind, int]:
    if config.label not in schema.names:
        if "label" in config.model_fields_set:
            _field(schema, nodes[0], config.label, "graph.label")
        return "none", 0
    found = schema.field(config.label).type
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            return kind, _list_width(found, nodes, config.label) if LABEL_KINDS[kind].is_list else 1
    raise TableError(
        f"column {config.label!r} is {found}, not a label",
        where=nodes[0].uri,
        fix="Write classes as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


# How the label column of each kind is recognised by its type.
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: _is_list(found) and _is_number(found.value_type),
}


def _class_names(nodes: Sequence[Chunk]) -> tuple[str, ...]:
    """Return the names of the classes that the node table's metadata states; all files that state any must agree."""
    names: tuple[str, ...] = ()
    for chunk in {chunk.uri: chunk for chunk in nodes}.values():
        stated = (schema_of(chunk).metadata or {}).get(_CLASS_NAMES)
        if stated is None:
            continue
        found = _read_class_names(stated, chunk)
        if names and found != names:
            raise TableError(
                f"states other class names than the files before it: {', '.join(found[:5])} ...",
                where=f"{chunk.uri}, metadata label_classes",
                fix="Number classes the same way in all files of a table.",
            )
        names = found
    return names


def _read_class_names(stated: bytes, chunk: Chunk) -> tuple[str, ...]:
    try:
        names = json.loads(stated)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TableError(
            f"is {stated[:60]!r}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)


def _split_is_text(schema: pa.Schema, chunk: Chunk, name: str) -> bool:
    if name not in schema.names:
        return False
    found = _plain(schema.field(name).type)
    if not _is_text(found) and not pa.types.is_null(found):
        raise TableError(f"column {name!r} is {found}", where=chunk.uri, fix="Write train, valid, test or null.")
    return True


def _weight_is_number(schema: pa.Schema, chunk: Chunk, name: str) -> bool:
    if name not in schema.names:
        return False
    found: Any = schema.field(name).type
    if not _is_number(found):
        raise TableError(f"column {name!r} is {found}, not a weight", where=chunk.uri, fix="Write weights as numbers.")
    return True
