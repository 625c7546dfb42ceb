"""The Elliptic data set of bitcoin transactions, as it is downloaded: features without a header, classes, edges."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.datasets.matrices import read_columns
from gnnflow.datasets.options import Options, Tell
from gnnflow.datasets.tables import GraphTables
from gnnflow.graph.errors import TableError
from gnnflow.graph.splits import SPLITS
from gnnflow.storage.columns import from_matrix
from gnnflow.storage.filesystem import join, list_names

_PARTS = ("features", "classes", "edgelist")
_CLASSES = ("licit", "illicit")
_ILLICIT, _LICIT, _UNKNOWN = "1", "2", "unknown"
_TRAIN, _VALID = 0.6, 0.7  # shares of the time steps: of 49, 1 to 29 train and 30 to 34 validate
_FIRST_FEATURE = 2


def load_elliptic(path: str, options: Options, tell: Tell) -> GraphTables:
    """Return the tables of a folder with the files `*features.csv`, `*classes.csv` and `*edgelist.csv`.

    Nodes have the columns `x` (all features but the time step), `time_step`, `label` (null where the class is unknown)
    and `split` by the time step: the first 60 % train, up to 70 % validate, later ones test. Raises TableError for a
    missing file and for a class of another name.
    """
    options.finish()
    files = {part: _file(path, part) for part in _PARTS}
    features = read_columns(files["features"])
    classes = _without_header(files["classes"])
    edges = _without_header(files["edgelist"])
    ids, steps = features.column(0).combine_chunks(), features.column(1).to_numpy()
    found = classes.column(1).take(pc.index_in(ids, classes.column(0).cast(ids.type).combine_chunks()))
    label = _labels(found.cast(pa.string()), files["classes"])
    last = int(steps.max())
    bounds = [round(share * last) for share in (_TRAIN, _VALID)]
    split = pa.array(SPLITS).take(pa.array(np.searchsorted(bounds, steps, side="left")))
    x = np.stack([column.to_numpy() for column in features.columns[_FIRST_FEATURE:]], axis=1).astype(np.float32)
    nodes = pa.table(
        {
            "id": ids,
            "x": from_matrix(x),
            "time_step": pa.array(steps),
            "label": label,
            "split": pc.if_else(pc.is_valid(label), split, None),
        },
        metadata={"label_classes": json.dumps(_CLASSES)},
    )
    tell(
        f"{path}: {len(ids)} transactions, {pc.sum(pc.equal(label, 1)).as_py()} illicit, {label.null_count} of unknown "
        f"class (unlabelled); steps 1 to {bounds[0]} train, to {bounds[1]} valid, to {last} test"
    )
    return GraphTables(nodes, pa.table({"src": edges.column(0).cast(ids.type), "dst": edges.column(1).cast(ids.type)}))


def _file(path: str, part: str) -> str:
    found = [name for name in list_names(path) if name.removesuffix(".gz").endswith(f"{part}.csv")]
    if len(found) != 1:
        raise TableError(
            f"has {len(found)} files *{part}.csv, not one", where=path, fix="Name the folder with the data set's files."
        )
    return join(path, found[0])


def _without_header(path: str) -> pa.Table:
    """Return the two columns of a file below its header."""
    table = read_columns(path).slice(1)
    if table.num_columns != len(_CLASSES):
        raise TableError(f"has {table.num_columns} columns, not two", where=path, fix="Get the file again.")
    return table.combine_chunks()


def _labels(found: pa.ChunkedArray, path: str) -> pa.Array:
    """Return 1 for illicit, 0 for licit, null for unknown."""
    known = pc.fill_null(found, _UNKNOWN)
    other = known.filter(pc.invert(pc.is_in(known, value_set=pa.array([_ILLICIT, _LICIT, _UNKNOWN]))))
    if len(other):
        raise TableError(f"holds the class {other[0].as_py()!r}", where=path, fix="Classes are 1, 2 and unknown.")
    label = pc.if_else(pc.equal(known, _UNKNOWN), None, pc.equal(known, _ILLICIT).cast(pa.int64()))
    return pc.cast(label, pa.int64()).combine_chunks()
