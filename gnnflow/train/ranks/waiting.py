"""Waits for other ranks before all are joined, each of which ends when the training is no longer wanted.

A store's own wait, its connection and gloo's cannot be interrupted, and last for minutes where the other rank is gone.
A rank that sat in one would keep its worker from the next attempt.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from gnnflow.train.ranks.operations import Place, Position, RankLostError
from gnnflow.train.ranks.patience import Patience

Result = TypeVar("Result")

_ASK_SECONDS = 0.02
_LOOK_SECONDS = 0.2
_KNOCK_SECONDS = 1.0
_ARRIVED = "arrived"


def call_apart(function: Callable[[], Result], position: Position) -> Result:
    """Return the result of a function that waits for another rank and cannot be interrupted, called in a thread.

    Raises RankStoppedError where the training is no longer wanted. The thread then goes on until the function's own
    limit, and holds nothing that the next attempt needs.
    """
    result: Future[Result] = Future()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            result.set_exception(error)

    thread = threading.Thread(target=call, name="gnnflow-joins", daemon=True)
    thread.start()
    while not futures.wait([result], timeout=_LOOK_SECONDS).done:
        position.check()
    thread.join()
    return result.result()


def wait_for_port(host: str, port: int, position: Position, *, patience: Patience) -> None:
    """Wait until a port can be reached.

    Raises ConnectionRefusedError at once where nobody listens there, another OSError where it cannot be reached in
    time, and RankStoppedError where the training is no longer wanted.
    """
    while True:
        position.check()
        try:
            socket.create_connection((host, port), timeout=_KNOCK_SECONDS).close()
        except ConnectionRefusedError:
            raise
        except OSError:
            if patience.is_over():
                raise
            time.sleep(_ASK_SECONDS)
        else:
            return


@contextmanager
def reaching(place: Place) -> Iterator[None]:
    """Raise RankLostError for what torch and sockets raise where another rank is gone."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise RankLostError(f"rank {place.rank} cannot reach the others ({error})", where="train.workers") from error


def missing_ranks(store: Any, rank: int, size: int, position: Position, *, seconds: float) -> list[int]:
    """Tell the others that this rank is there, wait for them, and return those that have not come in time."""
    store.set(f"{_ARRIVED}/{rank}", b"1")
    names = [f"{_ARRIVED}/{each}" for each in range(size)]
    if wait_for_values(store, names, position, seconds=seconds):
        return []
    return [each for each, name in enumerate(names) if not store.check([name])]


def wait_for_values(store: Any, names: Sequence[str], position: Position, *, seconds: float) -> bool:
    """Wait until a store has values of some names, and return whether it has them in time.

    Raises RankStoppedError where the training is no longer wanted.
    """
    patience = Patience(seconds)
    while not store.check(names):  # asked again and again: the store's own wait cannot be stopped
        position.check()
        if patience.is_over():
            return False
        time.sleep(_ASK_SECONDS)
    return True


@dataclass(frozen=True)
class Notes:
    """A store whose reader waits for what another rank writes, and can be told to stop."""

    store: Any
    position: Position
    seconds: float

    def set(self, name: str, value: bytes) -> None:
        """Write a value."""
        self.store.set(name, value)

    def get(self, name: str) -> bytes:
        """Return a value when it is there. Raises TimeoutError where it is not in time."""
        if not wait_for_values(self.store, [name], self.position, seconds=self.seconds):
            raise TimeoutError(f"the other rank did not write {name}")
        value: bytes = self.store.get(name)
        return value
