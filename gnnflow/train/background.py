"""Writes checkpoints in a thread: training waits for a copy in memory, not for a disk or network.

At most one write is under way and at most one checkpoint waits; a newer one takes the place of one that waits. So
memory holds two copies of what is written at most, and a store slower than the checkpoints come is given the newest.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from types import TracebackType
from typing import Self

from gnnflow.train.checkpoint import Checkpoint, copied, write_checkpoint


class CheckpointWriter:
    """Writes checkpoints to one URI in a thread. Leaving the `with` block waits until the newest is whole.

    A write that fails is raised in the loop: by the next `put` or `check`, or at the end of the block. If the block
    itself fails, its error is raised, since it came first.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._change = threading.Condition()
        self._waiting: Checkpoint | None = None
        self._closing = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="gnnflow-checkpoints", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for what is under way and what waits, and end the thread."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join()
        if error is None:
            self.check()

    def put(self, checkpoint: Checkpoint) -> None:
        """Copy a checkpoint's model and updater, have it written, and return. `best` is taken as it is: a copy already.

        Raises what an earlier write raised.
        """
        self.check()
        taken = replace(checkpoint, model=copied(checkpoint.model), updater=copied(checkpoint.updater))
        with self._change:
            self._waiting = taken
            self._change.notify()

    def check(self) -> None:
        """Raise what an earlier write raised."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (checkpoint := self._next()) is not None:
            try:
                write_checkpoint(self._uri, checkpoint)
            except Exception as error:  # noqa: BLE001 - whatever it is, the loop raises it
                self._failure = error
                return

    def _next(self) -> Checkpoint | None:
        """Wait for a checkpoint and return it, or None at the end."""
        with self._change:
            self._change.wait_for(lambda: self._waiting is not None or self._closing)
            taken, self._waiting = self._waiting, None
            return taken
