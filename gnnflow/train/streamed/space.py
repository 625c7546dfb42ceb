"""What space the files of a graph need, and whether a disk, or the machine's memory, has it."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from gnnflow.graph.errors import TrainingError
from gnnflow.train.streamed.cut import Cut
from gnnflow.train.streamed.widths import DEGREES, NUMBER, TypeWidths


def bytes_of_files(layers: list[list[TypeWidths]], cut: Cut, *, copies: bool) -> int:
    """Return the bytes of all files. Chunks are written twice: as they come, and by target and by source."""
    size, schema, intervals = cut.size, cut.schema, cut.of_types
    # where layers compute the rows alone that reach a target, each may have edges of its own
    orders = len(layers) if size.may_prune else 1
    columns = 2 + size.edge_columns + orders * (3 + size.edge_columns)
    columns += 4 * size.leaves * size.has_leaves  # and which rows a piece picks
    own, rows, others = size.num_edges * columns * NUMBER, 0, 0
    by_type = zip(size.by_type.nodes, size.by_type.features, size.by_type.entries_of_node, strict=True)
    for node_type, (nodes, features, entries) in enumerate(by_type):
        sparse = 2 * entries + (entries > 0)  # of an entry its column and value, and of a row how many it has
        of = [layer[node_type] for layer in layers]
        kept = sum(each.made + each.states + each.rows for each in of)
        passing = [each.made + each.summed + 2 * each.out + each.h for each in of]
        # room of a layer serves another, but not that of another relation's ends
        rows += nodes * (kept + (max(passing) if size.typed is None else sum(passing))) * NUMBER
        # where the edges of its chunks begin, by target and by source
        ends = zip(schema.source_types, schema.target_types, strict=True)
        met = sum(
            intervals[source] * (target == node_type) + intervals[target] * (source == node_type)
            for source, target in ends
        )
        own += nodes * (features + sparse + DEGREES * schema.num_relations + orders * met * size.ranks) * NUMBER
        others += (size.ranks - 1) * nodes * sum(each.source for each in of) * NUMBER
    # before there are rows, edges are merged from one file into another
    own += max(rows, size.num_edges * (2 + size.edge_columns) * NUMBER)
    return own + others * copies


def check_disk(disk_bytes: int, folder: str | None, *, ranks: int = 1) -> None:
    """Raise TrainingError where a folder, or the machine's memory for None, has not the space that a plan asks for.

    ranks: that write to the folder's disk, or to that memory.
    """
    if folder is None:
        _check_memory(disk_bytes * ranks)
        return
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise TrainingError(
            f"{error.strerror} ({folder})", where="train.scratch", fix="Name a folder of a local disk."
        ) from error
    if free < disk_bytes * ranks:
        who = "training" if ranks == 1 else f"training on {ranks} ranks"
        raise TrainingError(
            f"{who} under train.memory writes {mib(disk_bytes * ranks)} to {folder}, which has "
            f"{free // 1024**2}MiB free",
            where="train.scratch",
            fix="Free space there, or set train.scratch to a folder of a larger local disk.",
        )


def _check_memory(disk_bytes: int) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    if free < disk_bytes:
        raise TrainingError(
            f"training under train.memory keeps {mib(disk_bytes)} in the memory of the machine, which has "
            f"{free // 1024**2}MiB free",
            where="train.scratch",
            fix="Set train.scratch to a folder of a local disk with the space.",
        )


def mib(size: int) -> str:
    """Return bytes that are needed, rounded up."""
    return f"{math.ceil(size / 1024**2)}MiB"
