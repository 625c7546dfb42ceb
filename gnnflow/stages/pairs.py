"""Scores of pairs of nodes from the embeddings of a run, or of a published model's scoring; no neighbourhood is read.

Memory holds the rows that the pairs name, and one partition's embeddings at a time. A pair that is an edge of the graph
is scored from embeddings that saw this edge, unless it was held out.

Shapes: P pairs, U distinct nodes that they name, W width of an embedding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow import registry
from gnnflow.config.column_names import own_name
from gnnflow.graph.errors import ScoringError, StorageError, TableError
from gnnflow.graph.run_facts import InferFacts
from gnnflow.graph.schema import Relation
from gnnflow.ingest.checks import near_id
from gnnflow.ingest.fields import id_type_of
from gnnflow.registry.versions import CONFIG
from gnnflow.stages.out import out_file
from gnnflow.storage.agreed_schema import agreed_schema
from gnnflow.storage.columns import combine, plain_values, to_matrix, to_numpy
from gnnflow.storage.filesystem import absolute, exists, is_below, join
from gnnflow.storage.manifest import read_facts, read_manifest
from gnnflow.storage.run_folder import prediction_files, read_run
from gnnflow.storage.tables import read_artifact_table, write_table
from gnnflow.storage.user_tables import read_whole, scan
from gnnflow.storage.workspace import MANIFEST, RUN, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gnnflow.graph.arrays import Array, FloatArray, IntArray
    from gnnflow.layers.model import Model
    from gnnflow.storage.user_tables import Chunk
    from gnnflow.storage.writing import FileEntry


def score_pairs(run: str, table: str, *, out: str, workspace: str, embeddings: str | None = None) -> FileEntry:
    """Score the pairs of a table and write them with their scores as Parquet, in the table's order.

    run: a URI or a name in the workspace; or the folder of predictions that `gnnflow score` wrote, or NAME@champion for
    the last one of a published version, whose embeddings saw every edge. embeddings: such a folder, of the run's
    published model; None reads the run's predictions, which saw no held-out edge. table: has the columns
    graph.src and graph.dst of the run's config. out gets these two, `score` (above 0: more likely an edge) and
    `probability`. Raises ScoringError if the run's task has no pairs or another model wrote the embeddings, TableError
    for an id without an embedding, StorageError if there is no such run, or out is the table or a file of the run.
    """
    from gnnflow.infer.pairs import pair_logits

    source = _source_of(run, workspace, embeddings)
    graph, kind = source.config["graph"], source.config.get("task", {}).get("kind", "node")
    if kind != "link":
        raise ScoringError(
            f"the run's task.kind is {kind}, whose model scores no pairs of nodes",
            where=run,
            fix="Give a run whose config has task.kind: link.",
        )
    chunks, out = scan(absolute(table)), out_file(out, name="scored")
    _refuse_taken(out, files={chunk.uri for chunk in chunks}, folders=source.folders)
    target = graph.get("target") or ""
    src, dst = (own_name(graph[name], target, default=name) for name in ("src", "dst"))
    pairs = _read(chunks, table, src, dst)
    ends = [combine(pairs[name]) for name in (src, dst)]
    relation = Relation.parse(target)
    types = ("", "") if relation is None else (relation.source, relation.target)
    ends, vectors, rows = _rows_of(ends, source.folder, types=types, where=table)
    scores = pair_logits(source.load(), vectors, rows)[:, 0]
    probability = 1 / (1 + np.exp(-scores.astype(np.float64)))
    scored = {src: ends[0], dst: ends[1], "score": scores, "probability": probability}
    return write_table(out, pa.table(scored))


@dataclass(frozen=True)
class _Source:
    """Embeddings and the model that made them. folder: of the embeddings; folders: where nothing may be written."""

    config: dict[str, Any]
    folder: str
    folders: tuple[str, ...]
    load: Callable[[], Model]


def _source_of(run: str, workspace: str, embeddings: str | None) -> _Source:
    from gnnflow.layers.saved import load_model

    if embeddings is None and (scored := registry.find_scoring(run, workspace=workspace)) is not None:
        version = registry.read_version(Workspace.of(scored.folder).uri, scored.name, scored.version)
        _check_model(scored.folder, version.digests["train"], where=run)
        load = partial(load_model, version.uri, read=version.read)
        return _Source(json.loads(version.read(CONFIG)), scored.folder, (scored.folder, version.uri), load)
    uri = registry.find_run(run, workspace=workspace)
    record = read_run(uri)
    artifacts = record["artifacts"]
    held = artifacts["infer"] if embeddings is None else scored_by(artifacts["train"], embeddings)
    return _Source(record["config"], held, (uri, held, *artifacts.values()), partial(load_model, artifacts["train"]))


def scored_by(trained: str, embeddings: str) -> str:
    """Return the artifact of these predictions. Raises ScoringError if another model made them, or none is there."""
    artifact, where = absolute(embeddings).rstrip("/").removesuffix("/predictions"), f"--embeddings {embeddings}"
    if not any(exists(join(artifact, name)) for name in (RUN, MANIFEST)):
        raise ScoringError(
            "holds no predictions",
            where=where,
            fix="Give the folder of predictions that `gnnflow score` prints, or leave it out for the run's own.",
        )
    _check_model(artifact, read_manifest(trained).digest, where=where)
    return artifact


def _check_model(folder: str, trained: str, *, where: str) -> None:
    """Raise ScoringError if other weights made embeddings. folder: of a run, or the artifact of a scoring."""
    artifact = read_run(folder)["artifacts"]["infer"] if exists(join(folder, RUN)) else folder
    manifest = read_manifest(artifact)
    is_scored = manifest.stage in {"infer", "score"}
    if not is_scored or read_facts(artifact, manifest, InferFacts).model != trained:
        raise ScoringError(
            "were made by another model than the run's, or do not name their model",
            where=where,
            fix="Give the predictions that `gnnflow score` prints, and the run of the version in service.",
        )


def _refuse_taken(out: str, *, files: set[str], folders: Iterable[str]) -> None:
    """Raise StorageError if the scores would replace the table, or lie in the run."""
    reason = ""
    if any(is_below(out, file) for file in files):
        reason = "is the table of pairs itself"
    elif any(is_below(out, folder) for folder in folders):
        reason = "lies in the run, which cannot be changed"
    if reason:
        raise StorageError(reason, where=f"--out {out}", fix="Name another file.")


def _read(chunks: Sequence[Chunk], table: str, src: str, dst: str) -> pa.Table:
    found = agreed_schema(chunks, columns=(src, dst))
    for name, key in ((src, "graph.src"), (dst, "graph.dst")):
        if name not in found.names:
            raise TableError(
                f"has no column {name!r} ({key} of the run); it has {', '.join(found.names)}",
                where=table,
                fix="Rename the columns that hold the two ends.",
            )
        id_type_of(found, chunks[0], name, key)
    return read_whole(chunks, columns=(src, dst), ids=(src, dst))


def _rows_of(
    ends: list[Any], infer: str, *, types: tuple[str, str], where: str
) -> tuple[list[Any], FloatArray, list[IntArray]]:
    """Return both ends as ids of the run, the embeddings of their nodes [U, W], and each end's rows [P].

    types: of both ends; embeddings of two node types also have a column of types.
    """
    parts = prediction_files(infer)
    asked: list[_Wanted] = []
    for name in parts:
        held = read_artifact_table(infer, name)
        if not asked:
            ends = [_cast_ids(end, held["id"].type, where) for end in ends]
            width = held["embedding"].type.list_size
            asked = _group_ids(ends, types if "type" in held.column_names else ("", ""), width=width)
        for each in asked:
            each.fill(held)
    assert asked, "a scored run has a file of predictions"
    _refuse_unknown(asked, infer, parts, where=where)
    first = np.cumsum([0, *(len(each.ids) for each in asked)])
    # ends of one type share one group of distinct ids; the rows of each end within all embeddings [P]
    of_ends = zip(ends, (0, len(asked) - 1), strict=True)
    rows = [first[place] + to_numpy(pc.index_in(end, value_set=asked[place].ids)) for end, place in of_ends]
    return ends, np.concatenate([each.found for each in asked]), [each.astype(np.int64) for each in rows]


def _refuse_unknown(asked: Sequence[_Wanted], infer: str, parts: Sequence[str], *, where: str) -> None:
    """Raise TableError for ids without an embedding, and suggest a similar id that has one."""
    missing = [(each, int(row)) for each in asked for row in np.flatnonzero(~each.known)]
    if not missing:
        return
    each, row = missing[0]
    fix = (
        "Leave these pairs out, give --embeddings FOLDER of a later `gnnflow score` that has them, or run again with "
        "infer.targets: all on a node table that has them."
    )
    if not pa.types.is_integer(each.ids.type):
        columns = ["id", "type"] if each.type_name else ["id"]
        held = (combine(each.select(read_artifact_table(infer, name, columns))["id"]) for name in parts)
        near = near_id(each.ids.slice(row, 1), held)
        fix = f"{near} Write both alike." if near else fix
    of = f" of type {each.type_name}" if each.type_name else ""
    raise TableError(
        f"id {each.ids[row].as_py()!r}{of} has no embedding in this run ({len(missing)} such ids)",
        where=where,
        fix=fix,
    )


@dataclass(frozen=True)
class _Wanted:
    """The distinct ids of one type in the pairs [U], their embeddings [U, W], and the found ones [U]."""

    type_name: str
    ids: Any
    found: FloatArray
    known: Array

    def select(self, held: pa.Table) -> pa.Table:
        """Return the predictions of this type."""
        return held.filter(pc.equal(held["type"], self.type_name)) if self.type_name else held

    def fill(self, held: pa.Table) -> None:
        """Copy the wanted embeddings out of some predictions."""
        held = self.select(held)
        # the wanted row of each prediction (null if it is not wanted), then the wanted predictions and their rows
        place = pc.index_in(combine(held["id"]), value_set=self.ids)
        mine = np.flatnonzero(to_numpy(pc.is_valid(place)))
        rows = to_numpy(place.take(pa.array(mine)))
        self.found[rows], self.known[rows] = to_matrix(held["embedding"])[mine], True


def _group_ids(ends: list[Any], types: tuple[str, str], *, width: int) -> list[_Wanted]:
    """Return the wanted ids, in one group if both ends are of one type."""
    groups = [(types[0], pa.concat_arrays(ends))]
    if types[0] != types[1]:
        groups = list(zip(types, ends, strict=True))
    wanted = ((name, pc.unique(ids)) for name, ids in groups)
    return [
        _Wanted(name, ids, np.zeros((len(ids), width), np.float32), np.zeros(len(ids), bool)) for name, ids in wanted
    ]


def _cast_ids(end: Any, kind: pa.DataType, where: str) -> Any:
    """Return ids in the run's type.

    Integers may become text. Text never becomes integers, since '07' differs from '7'.
    """
    end = plain_values(end)
    try:
        if pa.types.is_integer(end.type) or not pa.types.is_integer(kind):
            return end.cast(kind)
    except pa.ArrowInvalid:  # beyond int64
        pass
    raise TableError(
        f"ids are {end.type}, but {kind} in the run", where=where, fix="Write them as the node table does."
    )
