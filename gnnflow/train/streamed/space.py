"""Whether a disk, or the machine's memory, has the space that the files of a graph need."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from gnnflow.graph.errors import TrainingError


def check_disk(disk_bytes: int, folder: str | None, *, ranks: int = 1) -> None:
    """Raise TrainingError where a folder, or the machine's memory for None, has not the space that a plan asks for.

    ranks: that write to the folder's disk.
    """
    if folder is None:
        _check_memory(disk_bytes)
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
