"""Files of numbers without a header, as public data sets publish them, in one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from gnnflow.graph.arrays import Array
from gnnflow.graph.errors import TableError
from gnnflow.storage.filesystem import open_input


def read_columns(path: str) -> pa.Table:
    """Return the columns of a CSV file without a header. Raises TableError where it does not parse."""
    with open_input(path) as stream:
        text: Any = pa.CompressedInputStream(stream, "gzip") if path.lower().endswith(".gz") else stream
        try:
            return pa_csv.read_csv(text, read_options=pa_csv.ReadOptions(autogenerate_column_names=True))
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, ValueError) and "Empty CSV" in str(error):
                return pa.table({})
            raise TableError(
                "cannot be read as CSV of numbers without a header", where=path, fix="Get the file again."
            ) from error


def read_matrix(path: str) -> Array:
    """Return a file's numbers [rows, columns]. Raises TableError for text."""
    table = read_columns(path)
    for name in table.column_names:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise TableError(f"column {name} holds {kind}, not numbers", where=path, fix="Get the file again.")
    # an empty field is a missing number
    columns = [column.to_numpy(zero_copy_only=False) for column in table.columns]
    return np.stack(columns, axis=1) if columns else np.zeros((0, 1), np.int64)
