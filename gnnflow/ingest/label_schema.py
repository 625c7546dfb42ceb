"""What a user's table says of labels: their kind by the column's type, and the names of classes from its metadata.

Raises TableError where a table breaks its contract.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from gnnflow.graph.errors import TableError
from gnnflow.graph.labels import LABEL_KINDS, LabelKind
from gnnflow.ingest.fields import field_of, list_width, shown, text_at
from gnnflow.storage.agreed_schema import files_of, holds_lists, holds_numbers, holds_text
from gnnflow.storage.user_tables import schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.storage.user_tables import Chunk

_CLASS_NAMES = b"label_classes"


def label_of(schema: pa.Schema, nodes: Sequence[Chunk], config: GraphConfig) -> tuple[LabelKind, int]:
    """Return the kind and the width of the label column; none and 0 where the table has none, or none is to be read."""
    if config.label_column not in schema.names:
        if config.label is not None and "label" in config.model_fields_set:
            field_of(schema, nodes[0], config.label_column, "graph.label")
        return "none", 0
    found = schema.field(config.label_column).type
    if pa.types.is_floating(found) and config.classes_given is not None:
        return "single", 1
    if holds_text(found) and config.classes is not None:
        return "single", 1
    for kind, is_of_kind in _LABEL_TYPES.items():
        if is_of_kind(found):
            width = list_width(found, nodes, config.label_column) if LABEL_KINDS[kind].is_list else 1
            _check_names(width, nodes[0], config, kind)
            return kind, width
    named = "List the names of classes in graph.classes. " if holds_text(found) else ""
    raise TableError(
        f"column {config.label_column!r} is {found}, not a label{text_at(schema.field(config.label_column))}",
        where=nodes[0].uri,
        fix=f"{named}Write classes as integers from 0, targets as floats, or several labels as lists of 0/1.",
    )


# How the label column of each kind is recognised by its type.
_LABEL_TYPES: dict[LabelKind, Callable[[pa.DataType], bool]] = {
    "single": lambda found: bool(pa.types.is_integer(found) or pa.types.is_boolean(found)),
    "regression": lambda found: bool(pa.types.is_floating(found)),
    "multi": lambda found: (
        holds_lists(found) and holds_numbers(found.value_type) and not pa.types.is_decimal(found.value_type)
    ),
}


def _check_names(width: int, chunk: Chunk, config: GraphConfig, kind: LabelKind) -> None:
    if LABEL_KINDS[kind].is_list and config.classes is not None and len(config.classes) != width:
        raise TableError(
            f"column {config.label_column!r} holds lists of {width}, and graph.classes names {len(config.classes)}",
            where=chunk.uri,
            fix="Name each place of the lists, in their order.",
        )


def class_names_of(nodes: Sequence[Chunk], config: GraphConfig) -> tuple[str, ...]:
    """Return the names of the classes: the config's, or those that the table's metadata states, in all files alike."""
    if config.classes is not None:
        return config.classes
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
            f"is {shown(stated)}, not a JSON list of names",
            where=f"{chunk.uri}, metadata label_classes",
            fix="Write one name per class, in the order of their numbers, or leave the metadata out.",
        )
    return tuple(names)
