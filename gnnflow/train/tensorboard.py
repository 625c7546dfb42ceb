"""Learning curves as TensorBoard's event files, one folder per fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gnnflow.storage.filesystem import join
from gnnflow.train.curves import FitRow

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes scalars below a folder or URL. A fit that goes on after a kill hides what it wrote before."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._open, self._folder = SummaryWriter, folder
        self._writers: dict[str, SummaryWriter] = {}

    def write(self, rows: Sequence[FitRow]) -> None:
        """Write every figure of every row and bring them to the disk."""
        for fit, row in rows:
            if fit not in self._writers:
                self._writers[fit] = self._open(join(self._folder, fit), purge_step=0)
            for name, value in row.items():
                if name != "epoch":
                    self._writers[fit].add_scalar(name, value, int(row["epoch"]))
        for writer in self._writers.values():
            writer.flush()

    def close(self, *, finished: bool) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()
