"""What the user's tables hold, read from their schemas before any row is: the one place that interprets column types.

Raises TableError with the file and column where a table breaks its contract.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS
from gnnflow.storage.user_tables import read_chunk, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.graph.labels import LabelKind
    from gnnflow.ingest.targets import EdgeTargets
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

IdType = Literal["int64", "string"]
_FEATURE_DIM = b"feature_dim"
_CLASS_NAMES = b"label_classes"
_WIDTH = re.compile(rb"[0-9]{1,10}")
_MAX_WIDTH = 2**31 - 1
_MAX_FOUND_WIDTH = 1 << 24  # wider only where someone says so: a model has a row of weights per feature


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
    class_names are those the labels' table's metadata states, by class number; there may be fewer or more than classes.
    targets: where these are edges; label_kind and class_names are then of edges, and no label of a node is read.
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
    targets: EdgeTargets | None = None

    @property
    def attribute_width(self) -> int:
        """Width of the edge attributes; 0 where there are none."""
        return sum(part.width for part in self.attributes)

    @property
    def has_labels(self) -> bool:
        """Whether the node table has a label column."""
        return self.targets is None and LABEL_KINDS[self.label_kind].has_labels

    @property
    def has_edge_labels(self) -> bool:
        """Whether the edge table has a label column."""
        return self.targets is not None and LABEL_KINDS[self.label_kind].has_labels

    @property
    def has_edge_split(self) -> bool:
        """Whether a column of the edge table says which split an edge is in."""
        return self.targets is not None and self.targets.by_column

    @property
    def has_time(self) -> bool:
        """Whether edges have times."""
        return self.targets is not None and self.targets.have_times


def read_schema(
    nodes: SourceTable, edges: SourceTable, config: GraphConfig, *, targets: EdgeTargets | None = None
) -> SourceSchema:
    """Return how to read these tables. Reads schemas, and first rows where a list's width is only in the rows.

    targets: where these are edges.
    """
    for table, uri, key in ((nodes, config.nodes, "graph.nodes"), (edges, config.edges, "graph.edges")):
        if all(chunk.num_rows == 0 for chunk in table.chunks):
            raise TableError("the table has no rows", where=str(uri), fix=f"Check {key}.")
    node_schema, edge_schema = agreed_schema(nodes), agreed_schema(edges)
    schema = _schema(node_schema, edge_schema, nodes.chunks, edges.chunks, config)
    if targets is None:
        kind, width = _label(node_schema, nodes.chunks, config)
        has_split = _split_is_text(node_schema, nodes.chunks[0], config.split)
        schema = replace(schema, label_kind=kind, label_width=width, has_split=has_split)
    else:
        schema = _of_edges(schema, edge_schema, edges.chunks, config, targets)
    labelled = nodes if targets is None else edges
    has_names = LABEL_KINDS[schema.label_kind].has_classes
    return replace(schema, class_names=_class_names(labelled.chunks)) if has_names else schema


def _of_edges(
    schema: SourceSchema, found: pa.Schema, edges: Sequence[Chunk], config: GraphConfig, targets: EdgeTargets
) -> SourceSchema:
    """Return the schema with what the edge table says of targets; raise TableError for what it does not say."""
    if targets.by_column:
        _field(found, edges[0], config.split, "graph.split, where task.split.kind is column")
        _split_is_text(found, edges[0], config.split)
    if targets.have_times:
        _check_time(_field(found, edges[0], config.timestamp, "graph.timestamp"), edges[0])
    if not targets.have_labels:
        return replace(schema, targets=targets, label_kind="link")
    _field(found, edges[0], config.label, "graph.label, where task.kind is edge")
    kind, width = _label(found, edges, config)
    return replace(schema, targets=targets, label_kind=kind, label_width=width)


def _check_time(field: pa.Field, chunk: Chunk) -> None:
    if not any(is_one(field.type) for is_one in (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date)):
        raise TableError(
            f"column {field.name!r} is {field.type}, not a time{_text_at(field)}",
            where=chunk.uri,
            fix="Write times as integers, dates or timestamps.",
        )


def _schema(
    node_schema: pa.Schema, edge_schema: pa.Schema, nodes: Sequence[Chunk], edges: Sequence[Chunk], config: GraphConfig
) -> SourceSchema:
    """Return how ids, features, weights and attributes are read."""
    id_type = _id_type(node_schema, nodes[0], config.id, "graph.id")
    for role, column in (("graph.src", config.src), ("graph.dst", config.dst)):
        _same_type(id_type, _id_type(edge_schema, edges[0], column, role), edges[0], column, config.id)
    sparse = _sparse_stem(node_schema, nodes[0], config)
    features = () if sparse else tuple(_part(node_schema, nodes, name, "graph.features") for name in config.features)
    attributes = tuple(_part(edge_schema, edges, name, "graph.edge_features") for name in config.edge_features)
    return SourceSchema(
        id_type=id_type,
        features=features,
        sparse=sparse,
        sparse_has_value=sparse is not None and f"{sparse}_value" in node_schema.names,
        feature_width=_sparse_width(nodes, sparse, config) if sparse else sum(p.width for p in features),
        label_kind="none",
        label_width=0,
        has_split=False,
        has_weight=_weight_is_number(edge_schema, edges[0], config.weight),
        attributes=attributes,
    )


def agreed_schema(table: SourceTable) -> pa.Schema:
    """Return the schema of a table's files, each column with the first type that is one.

    Raises TableError for files with other columns, for a column that is read and that a file has twice, and for one
    whose type means something else in another file.
    """
    files = _files(table.chunks)
    first = schema_of(files[0])
    types: dict[str, tuple[pa.Field, Chunk]] = {}
    for chunk in files:
        schema = schema_of(chunk)
        read = [name for name in dict.fromkeys(schema.names) if name in table.columns]
        for name in read:
            _once(schema, name, chunk)
        if sorted(schema.names) != sorted(first.names):
            raise TableError(
                f"has columns {schema.names}, the first file has {first.names}",
                where=chunk.uri,
                fix="Write all files of a table with the same columns.",
            )
        for name in read:
            _same_meaning(types, schema.field(name), chunk, is_number=name in table.numbers)
    fields = [types[field.name][0] if field.name in types else field for field in first]
    return pa.schema(fields, metadata=first.metadata)


def _once(schema: pa.Schema, name: str, chunk: Chunk) -> None:
    if schema.names.count(name) > 1:
        also = ", one of them from its folder's name" if name in dict(chunk.keys) else ""
        raise TableError(
            f"has {schema.names.count(name)} columns called {name!r}{also}", where=chunk.uri, fix="Keep or rename one."
        )


def _same_meaning(types: dict[str, tuple[pa.Field, Chunk]], field: pa.Field, chunk: Chunk, *, is_number: bool) -> None:
    """Note the first type of a column that is one; raise TableError where a later file's means something else."""
    before, file = types.setdefault(field.name, (field, chunk))
    if pa.types.is_null(before.type):
        types[field.name] = (field, chunk)
    elif not pa.types.is_null(field.type) and _meaning(field.type, is_number) != _meaning(before.type, is_number):
        raise TableError(
            f"column {field.name!r} is {field.type}, in {file.uri} it is {before.type}",
            where=chunk.uri,
            fix="Write the column with one type in all files.",
        )


def _meaning(found: pa.DataType, is_number: bool) -> str:  # noqa: FBT001
    found = _plain(found)
    if _is_list(found):
        return f"list of {_meaning(found.value_type, is_number)}"
    if _is_text(found):
        return "text"
    if is_number and _is_number(found):
        return "number"
    for name, is_one in (("integer", pa.types.is_integer), ("float", pa.types.is_floating)):
        if is_one(found):
            return name
    return str(found)


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


def _sparse_stem(schema: pa.Schema, chunk: Chunk, config: GraphConfig) -> str | None:
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
    if not stems:
        return None
    _list_of(schema, chunk, f"{stems[0]}_index", pa.types.is_integer, "integers")
    if f"{stems[0]}_value" in schema.names:
        _list_of(schema, chunk, f"{stems[0]}_value", _is_number, "numbers")
    return stems[0]


def _list_of(schema: pa.Schema, chunk: Chunk, name: str, is_kind: Callable[[pa.DataType], bool], kind: str) -> None:
    found = schema.field(name).type
    if not _is_list(found) or not is_kind(found.value_type):
        raise TableError(f"column {name!r} is {found}", where=chunk.uri, fix=f"Write lists of {kind}.")


def _sparse_width(nodes: Sequence[Chunk], stem: str, config: GraphConfig) -> int:
    if config.feature_dim is not None:
        return config.feature_dim
    stated = {width for chunk in _files(nodes) if (width := _stated_width(chunk)) is not None}
    if len(stated) > 1:
        raise TableError(
            f"files state different widths: {', '.join(map(str, sorted(stated)))}",
            where=f"{config.nodes}, metadata feature_dim",
            fix="Write one, or set graph.feature_dim.",
        )
    if stated:
        return stated.pop()
    width = 1
    for chunk in nodes:
        largest = pc.max(pc.list_flatten(read_chunk(chunk, [f"{stem}_index"]).column(0))).as_py()
        if largest is not None and largest >= _MAX_FOUND_WIDTH:
            raise TableError(
                f"column {stem + '_index'!r}: the largest index is {largest:,}",
                where=chunk.place,
                fix="Number features from 0 without gaps, or set graph.feature_dim (up to 2147483647).",
            )
        width = max(width, 1 + (largest or 0))
    return width


def _files(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return one chunk of each file."""
    return list({chunk.uri: chunk for chunk in chunks}.values())


def _stated_width(chunk: Chunk) -> int | None:
    stated = (schema_of(chunk).metadata or {}).get(_FEATURE_DIM)
    if stated is None:
        return None
    if not _WIDTH.fullmatch(stated) or not 0 < int(stated) <= _MAX_WIDTH:
        raise TableError(
            f"is {_shown(stated)}, not a width from 1 to {_MAX_WIDTH}",
            where=f"{chunk.uri}, metadata feature_dim",
            fix="Write the number of feature columns, or set graph.feature_dim.",
        )
    return int(stated)


def _shown(stated: bytes) -> str:
    return repr(stated[:60].decode(errors="replace"))


def _part(schema: pa.Schema, chunks: Sequence[Chunk], name: str, role: str) -> ColumnPart:
    found = _field(schema, chunks[0], name, role).type
    if _is_number(found):
        return ColumnPart(name, 1, is_list=False)
    if not _is_list(found) or not _is_number(found.value_type):
        raise TableError(
            f"column {name!r} is {found}, not numbers{_text_at(schema.field(name))}",
            where=chunks[0].uri,
            fix="Write numbers or lists of numbers.",
        )
    return ColumnPart(name, _list_width(found, chunks, name), is_list=True)


def _text_at(field: pa.Field) -> str:
    """Return where a column of text stops being numbers, if that was seen."""
    place = (field.metadata or {}).get(b"text")
    return f" (the first text is in {place.decode()})" if place else ""


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
    if pa.types.is_floating(found) and config.num_classes is not None:
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            return kind, _list_width(found, nodes, config.label) if LABEL_KINDS[kind].is_list else 1
    raise TableError(
        f"column {config.label!r} is {found}, not a label{_text_at(schema.field(config.label))}",
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
    for chunk in _files(nodes):
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
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TableError(
            f"is {_shown(stated)}, not a JSON list of names",
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
        raise TableError(
            f"column {name!r} is {found}, not a weight{_text_at(schema.field(name))}",
            where=chunk.uri,
            fix="Write weights as numbers.",
        )
    return True
