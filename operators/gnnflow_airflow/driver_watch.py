"""Tells a task's log when the Dask worker that runs its stage is lost, and where the stage goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@dataclass
class DriverWatch:
    """The worker of a submission's driver, empty while none is known."""

    say: Callable[[str], None]
    worker: str = ""
    is_lost: bool = False

    def look(self, workers: Collection[str]) -> None:
        """Take the workers that the cluster has now."""
        if self.worker and self.worker not in workers:
            self.say(
                f"the Dask worker {self.worker}, which ran this stage, is lost; another one takes the stage over, from "
                "its last finished task or checkpoint. Nothing to do; if it repeats, the worker's own log tells why it "
                "ended, most often short memory"
            )
            self.worker, self.is_lost = "", True

    def found(self, worker: str | None) -> None:
        """Take the worker that has the driver now, if any has it."""
        if worker and self.is_lost:
            self.say(f"the stage goes on on the Dask worker {worker}, from its last finished task or checkpoint")
            self.is_lost = False
        self.worker = worker or ""
