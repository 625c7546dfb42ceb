"""The kind of a table's labels and the names of its classes, from its schema, its metadata and the config."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.ingest.classes import holds_names
from gnnflow.ingest.fields import field_of, first_text, list_width, quoted
from gnnflow.storage.user_tables import files_of, holds_lists, holds_numbers, holds_text, plain, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.ingest.classes import FoundClasses
    from gnnflow.storage.user_tables import Chunk

_CLASS_NAMES = b"label_classes"


def label_of(
    schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig, classes: FoundClasses | None
) -> tuple[LabelKind, int]:
    """Return the kind and width of the label column; none and 0 where none is read."""
    if config.label_column not in schema.names:
        if config.label is not None and "label" in config.model_fields_set:
            fix = "Set graph.label to one of them, or to null to score without labels, or write the column."
            field_of(schema, nodes[0], config.label_column, "graph.label", fix=fix)
        return "none", 0
    found = plain(schema.field(config.label_column).type)
    is_counted = classes is not None or holds_names(found, config)
    if is_counted or (pa.types.is_floating(found) and config.classes_given is not None):
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            width = list_width(found, nodes, config.label_column) if LABEL_KINDS[kind].is_list else 1
            _check_names(width, nodes[0], config, kind)
            return kind, width
    if pa.types.is_null(found):
        raise no_labels(config, nodes[0].uri)
    raise TableError(
        f"column {config.label_column!r} is {found}, not a label{first_text(schema.field(config.label_column))}",
        where=nodes[0].uri,
        fix="Write classes as text or as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


def no_labels(config: GraphConfig, uri: str) -> TableError:
    """Return the error of a label column without a value."""
    fix = "Write the labels, name another column in graph.label, or set it to null to score without training."
    return TableError(f"column {config.label_column!r} is empty in every row: no row has a label", where=uri, fix=fix)


# the column types of each kind of label
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: (
        holds_lists(found) and holds_numbers(found.value_type) and not pa.types.is_decimal(found.value_type)
    ),
}


def _check_names(width: int, chunk: Chunk, config: GraphConfig, kind: LabelKind) -> None:
    if not LABEL_KINDS[kind].is_list:
        return
    if isinstance(config.classes, str) or config.unlabelled is not None:
        key = f"classes: {config.classes}" if isinstance(config.classes, str) else "unlabelled"
        raise TableError(
            f"column {config.label_column!r} holds lists, and graph.{key} is of labels that are single values",
            where=chunk.uri,
            fix="Leave the key out. A null is no label.",
        )
    if config.classes is not None and len(config.classes) != width:
        raise TableError(
            f"column {config.label_column!r} holds lists of {width}, and graph.classes names {len(config.classes)}",
            where=chunk.uri,
            fix="Name each place of the lists, in their order.",
        )


def are_names(found: pa.Schema, config: GraphConfig, classes: FoundClasses | None) -> bool:
    """Return whether the label column holds names of classes."""
    return bool(classes.names) if classes else holds_text(found.field(config.label_column).type)


def class_names_of(nodes: Sequence[Chunk], config: GraphConfig, classes: FoundClasses | None) -> tuple[str, ...]:
    """Return the names of the classes: listed, found, or from the metadata, which is the same in all files."""
    if isinstance(config.classes, tuple):
        return config.classes
    if classes is not None and not classes.are_numbers:
        return classes.names
    names: tuple[str, ...] = ()
    for chunk in files_of(nodes):
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
            f"is {quoted(stated)}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)
