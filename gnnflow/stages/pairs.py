"""Pairs of nodes scored with the embeddings of a completed run whose task is link: no neighbourhood is read again.

Memory holds the rows that the pairs name, and one partition's embeddings at a time. A pair that is an edge of the graph
is scored from embeddings that know this edge, unless it was held out.

Shapes: P pairs, U distinct nodes that they name, W width of an embedding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.errors import ScoringError, TableError
from gnnflow.storage.columns import combine, to_matrix, to_numpy
from gnnflow.storage.filesystem import absolute
from gnnflow.storage.manifest import read_manifest
from gnnflow.storage.run_folder import read_run
from gnnflow.storage.tables import read_artifact_table, write_table
from gnnflow.storage.user_tables import read_whole, scan

if TYPE_CHECKING:
    from gnnflow.graph.arrays import FloatArray, IntArray
    from gnnflow.storage.filesystem import FileEntry

_SLICE = 1 << 16  # pairs scored at a time


def score_pairs(run: str, table: str, *, out: str) -> FileEntry:
    """Score the pairs of a table and write them with their scores as Parquet, in the table's order.

    run: the folder of a completed run. table: with the columns that the run's config calls graph.src and graph.dst. out
    gets these two, `score` (above 0: rather an edge) and `probability`. Raises ScoringError where the run's task has no
    pairs, TableError for an id that has no embedding.
    """
    record = read_run(run)
    graph, artifacts = record["config"]["graph"], record["artifacts"]
    if record["config"].get("task", {}).get("kind", "node") != "link":
        raise ScoringError(
            "the run's model scores nodes, not pairs", where=run, fix="Give a run whose config has task.kind: link."
        )
    pairs = _read(table, graph["src"], graph["dst"])
    ends = [combine(pairs[graph[name]]) for name in ("src", "dst")]
    embeddings, rows = _rows_of(ends, artifacts["infer"], where=table)
    scores = _scores(artifacts["train"], embeddings, rows)
    probability = 1 / (1 + np.exp(-scores.astype(np.float64)))
    scored = {graph["src"]: ends[0], graph["dst"]: ends[1], "score": scores, "probability": probability}
    return write_table(absolute(out), pa.table(scored))


def _read(table: str, src: str, dst: str) -> pa.Table:
    pairs = read_whole(scan(absolute(table)), ids=(src, dst))
    for name, key in ((src, "graph.src"), (dst, "graph.dst")):
        if name not in pairs.column_names:
            raise TableError(
                f"has no column {name!r} ({key} of the run); it has {', '.join(pairs.column_names)}",
                where=table,
                fix="Rename the columns that hold the two ends.",
            )
    return pairs


def _rows_of(ends: list[Any], infer: str, *, where: str) -> tuple[FloatArray, list[IntArray]]:
    """Return the embeddings of the nodes that pairs name [U, W], and each end's rows among them [P]."""
    parts = [entry.name for entry in read_manifest(infer).files if entry.name.startswith("predictions/")]
    wanted = None
    for name in parts:
        held = read_artifact_table(infer, name, ["id", "embedding"])
        ids, matrix = combine(held["id"]), to_matrix(held["embedding"])
        if wanted is None:
            # every id that a pair names, once, as the run's ids are typed [U]
            ends = [_as(end, ids.type, where) for end in ends]
            wanted = pc.unique(pa.concat_arrays(ends))
            found = np.zeros((len(wanted), matrix.shape[1]), np.float32)
            known = np.zeros(len(wanted), bool)
        place = pc.index_in(ids, value_set=wanted)
        mine = np.flatnonzero(to_numpy(pc.is_valid(place)))
        rows = to_numpy(place.take(pa.array(mine)))
        found[rows], known[rows] = matrix[mine], True
    assert wanted is not None, "a scored run has a file of predictions"
    if not known.all():
        missing = wanted[int(np.flatnonzero(~known)[0])]
        raise TableError(
            f"id {missing} has no embedding in this run ({int((~known).sum())} such ids)",
            where=where,
            fix="Leave these pairs out, or run again with infer.targets: all on a node table that has them.",
        )
    return found, [to_numpy(pc.index_in(end, value_set=wanted)).astype(np.int64) for end in ends]


def _as(end: Any, kind: pa.DataType, where: str) -> Any:
    try:
        return end.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"ids are {end.type}, those of the run {kind}", where=where, fix="Write them as the node table does."
        ) from error


def _scores(folder: str, embeddings: FloatArray, rows: list[IntArray]) -> FloatArray:
    import torch

    from gnnflow.kernels.threads import compute_threads
    from gnnflow.layers.saved import load_model

    model = load_model(folder)
    held, scores = torch.from_numpy(embeddings), np.empty(len(rows[0]), np.float32)
    with compute_threads(1), torch.no_grad():
        for start in range(0, len(scores), _SLICE):
            source, target = (held[torch.from_numpy(each[start : start + _SLICE])] for each in rows)
            scores[start : start + _SLICE] = model.score(source, target)[:, 0].numpy()
    return scores
