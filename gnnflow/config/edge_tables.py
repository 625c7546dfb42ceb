"""Edge tables that a relation reads in its own way: a foreign key of a node table, or some rows of a shared table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from gnnflow.config.base import Column, Section, Uri, problem, together
from gnnflow.config.messages import closest, nearest


def label_text(value: Any) -> Any:
    """Return a number as the text that values of a column are compared by."""
    if isinstance(value, bool):
        raise problem("is not allowed: must be text or a number", fix="Write the text in quotes.")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, int | float) else value


ColumnValue = Annotated[str, Field(max_length=1024), BeforeValidator(label_text)]
"""A value of a column, as text; a number compares by value."""


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


class EdgeTableConfig(Section):
    """An edge table whose columns or rows a relation names itself. A row without one of the ends is no edge."""

    table: Uri = Field(description="Path or URL, or the node type whose table it is.")
    src: Column | None = Field(None, description="Column of sources; null is graph.src.")
    dst: Column | None = Field(None, description="Column of destinations; null is graph.dst.")
    where: dict[Column, Annotated[tuple[ColumnValue, ...], BeforeValidator(_as_list)]] | None = Field(
        None, description="Values by column: rows with one of each are edges of the relation; null takes all rows."
    )


def _check_keys(value: Any) -> Any:
    """Refuse other keys with a message that lists the keys of an edge table."""
    if not isinstance(value, Mapping):
        return value
    known = [*EdgeTableConfig.model_fields]
    here = f"Keys here: {', '.join(known)}."
    near = {str(key): closest(str(key), known) for key in value if key not in known}
    meant = {key: {"name": name} if name and name not in value else {} for key, name in near.items()}
    found = [
        problem("unknown key", key=key, fix=f"{nearest(key, known)} {here}".strip(), meant=meant[key]) for key in near
    ]
    if "table" not in value and {"name": "table"} not in meant.values():
        found.append(problem("required but missing", key="table", fix=here))
    if found:
        raise together(found)
    return value


EdgeTableValue = Annotated[Uri | EdgeTableConfig, BeforeValidator(_check_keys)]
EdgeTables = Annotated[dict[str, EdgeTableValue], Field(min_length=1)]
