"""Sparse node features in a user's table: which column holds them, and how wide they are.

Raises TableError where a table breaks its contract.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import TableError
from gnnflow.ingest.fields import check_list_of, shown
from gnnflow.storage.agreed_schema import files_of, holds_numbers
from gnnflow.storage.user_tables import read_chunk, schema_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import GraphConfig
    from gnnflow.ingest.text import SourceTable
    from gnnflow.storage.user_tables import Chunk

_FEATURE_DIM = b"feature_dim"
_WIDTH = re.compile(rb"[0-9]{1,10}")
_MAX_WIDTH = 2**31 - 1
_MAX_FOUND_WIDTH = 1 << 24  # wider only where someone says so: a model has a row of weights per feature


def sparse_stem(schema: pa.Schema, table: SourceTable, features: Sequence[str], config: GraphConfig) -> str | None:
    """Return the name of the sparse features, whose columns end in _index and _value; None where features are dense."""
    stems = [name for name in features if name not in schema.names and f"{name}_index" in schema.names]
    if stems and len(features) > 1:
        raise TableError(
            f"graph.features mixes the sparse column {stems[0]!r} with others",
            where=table.uri,
            fix="Use one sparse feature, or dense columns only.",
        )
    if stems and config.normalize == "standard":
        raise TableError(
            "normalize: standard would make sparse features dense",
            where=table.uri,
            fix="Use normalize: row or none for x_index/x_value.",
        )
    if not stems:
        return None
    check_list_of(schema, table.chunks[0], f"{stems[0]}_index", pa.types.is_integer, "integers")
    if f"{stems[0]}_value" in schema.names:
        check_list_of(schema, table.chunks[0], f"{stems[0]}_value", holds_numbers, "numbers")
    return stems[0]


def sparse_width(table: SourceTable, stem: str, config: GraphConfig) -> int:
    """Return how many columns sparse features have: as configured, as the files state, or by the largest index."""
    if config.feature_dim is not None:
        return config.feature_dim
    stated = {width for chunk in files_of(table.chunks) if (width := _stated_width(chunk)) is not None}
    if len(stated) > 1:
        raise TableError(
            f"files state different widths: {', '.join(map(str, sorted(stated)))}",
            where=f"{table.uri}, metadata feature_dim",
            fix="Write one, or set graph.feature_dim.",
        )
    if stated:
        return stated.pop()
    width = 1
    for chunk in table.chunks:
        largest = pc.max(pc.list_flatten(read_chunk(chunk, [f"{stem}_index"]).column(0))).as_py()
        if largest is not None and largest >= _MAX_FOUND_WIDTH:
            raise TableError(
                f"column {stem + '_index'!r}: the largest index is {largest:,}",
                where=chunk.place,
                fix="Number features from 0 without gaps, or set graph.feature_dim (up to 2147483647).",
            )
        width = max(width, 1 + (largest or 0))
    return width


def _stated_width(chunk: Chunk) -> int | None:
    stated = (schema_of(chunk).metadata or {}).get(_FEATURE_DIM)
    if stated is None:
        return None
    if not _WIDTH.fullmatch(stated) or not 0 < int(stated) <= _MAX_WIDTH:
        raise TableError(
            f"is {shown(stated)}, not a width from 1 to {_MAX_WIDTH}",
            where=f"{chunk.uri}, metadata feature_dim",
            fix="Write the number of feature columns, or set graph.feature_dim.",
        )
    return int(stated)
