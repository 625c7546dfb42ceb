"""Tells a task's log when the Dask worker that runs its stage is lost, and where the stage goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

BEGAN = "began"
"""The kind of the first event of a driver, each time that it begins."""


@dataclass
class DriverWatch:
    """The worker of a submission's driver, empty while none is known."""

    say: Callable[[str], None]
    worker: str = ""
    begun: int = 0

    def hear(self, events: Sequence[Any]) -> None:
        """Take all events of the submission."""
        places = [str(event["worker"]) for event in events if event["kind"] == BEGAN]
        if len(places) == self.begun:
            return
        if self.begun:
            self.say(f"the stage goes on on the Dask worker {places[-1]}, from its last finished task or checkpoint")
        self.worker, self.begun = places[-1], len(places)

    def look(self, workers: Collection[str]) -> None:
        """Take the workers that the cluster has now."""
        if self.worker and self.worker not in workers:
            self.say(
                f"the Dask worker {self.worker}, which ran this stage, is lost; another one takes the stage over, from "
                "its last finished task or checkpoint. Nothing to do; if it repeats, the worker's own log tells why it "
                "ended, most often short memory"
            )
            self.worker = ""
