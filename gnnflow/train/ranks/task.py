"""Runs one rank on a Dask worker, from its arrival to its end.

It tells the stage's process where it is twice a second (less often where there are hundreds of ranks), as events under
the name of the attempt: that is how a stuck rank is known from those that wait for it. The same thread sees whether
the task was cancelled, because the stage's process is gone or gave up, and the rank ends at its next step or operation.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from gnnflow.graph.errors import GnnflowError
from gnnflow.kernels.device import find_device
from gnnflow.progress import Silent
from gnnflow.train.job import TrainJob
from gnnflow.train.ranks.group import RankGroup, find_store, join_group, late, open_store
from gnnflow.train.ranks.operations import Place, Position, RankStoppedError
from gnnflow.train.ranks.patience import Patience
from gnnflow.train.ranks.rank import AllReduceRank, ServedRank
from gnnflow.train.source import OpenSource
from gnnflow.train.trainer import TrainResult, train

BEAT_SECONDS = 0.5
_BEATS = 400  # of all ranks together per second, at most: the scheduler passes each on
_LEFT = ("cancelled", "released", "forgotten")
_one_rank = threading.Lock()  # a card's generator, and what others' layers draw from, belong to the whole process


@dataclass(frozen=True)
class RankOrder:
    """The settings that one rank receives.

    topic: the name its events go under; store: rank 0's host and port, None to rank 0; servers: actors that hold the
    weights, none where gradients are averaged.
    """

    job: TrainJob
    place: Place
    topic: str
    store: tuple[str, int] | None = None
    servers: tuple[Any, ...] = ()
    open_source: OpenSource | None = None


def run_rank(order: RankOrder) -> TrainResult | None:
    """Train as one rank and return the result on rank 0.

    Raises RankLostError where other ranks are gone, RankLateError where they do not come, and RankStoppedError where
    the training is no longer wanted.
    """
    _take_process(order)
    failed: BaseException | None = None
    try:
        with _beats(order) as beat:
            return _train(order, beat)
    except BaseException as error:  # noqa: BLE001 - raised again below
        failed = _without_frames(error)
    finally:
        _one_rank.release()
    raise failed


def _take_process(order: RankOrder) -> None:
    """Wait until no other rank computes in this process. Raises RankLateError where that takes too long."""
    from distributed import get_worker

    worker = get_worker()
    key, patience = str(worker.get_current_task()), Patience(order.place.start_seconds)
    while not _one_rank.acquire(timeout=BEAT_SECONDS):
        if _is_dropped(worker, key):
            raise RankStoppedError
        if patience.is_over():
            raise late([order.place.rank], order.place.start_seconds, ": its worker's process computes another rank")


def _is_dropped(worker: Any, key: str) -> bool:
    """Return whether a task that still runs is no longer wanted."""
    state = worker.state.tasks.get(key)
    return state is None or state.state in _LEFT


def _train(order: RankOrder, beat: Beat) -> TrainResult | None:
    host = urlsplit(beat.worker.address).hostname or "127.0.0.1"
    store = _store(order, beat, host)
    group = join_group(store, order.place, host=host, position=beat.position)
    card = _card(group, host)
    group.meet_on(find_device(order.job.train.device, where="train.device", number=card))
    beat.position.at("opening its shards")
    rank = ServedRank(group, card, order.servers) if order.servers else AllReduceRank(group, card)
    result = train(
        order.job,
        progress=beat if order.place.rank == 0 else Silent(),
        open_source=order.open_source,
        rank=rank,
    )
    group.agree("history", len(result.history))  # nobody leaves while another still needs it
    return replace(result, metrics=result.metrics | rank.figures()) if order.place.rank == 0 else None


def _card(group: RankGroup, host: str) -> int:
    """Return how many ranks of lower number are on this host: they take its cards in turn."""
    hosts = [bytes(each) for (each,) in group.gather([np.frombuffer(host.encode(), np.uint8)])]
    return hosts[: group.rank].count(host.encode())


def _without_frames(error: BaseException) -> BaseException:
    """Return an error that holds no frame: Dask keeps errors, and frames would keep the rank's connections open."""
    if not isinstance(error, GnnflowError | RankStoppedError):
        error.add_note("".join(traceback.format_exception(error)))
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _store(order: RankOrder, beat: Beat, host: str) -> Any:
    if order.store is not None:
        return find_store(*order.store, start_seconds=order.place.start_seconds, position=beat.position)
    store = open_store(host, start_seconds=order.place.start_seconds)
    beat.tell("store", host=host, port=store.port)
    return store


@dataclass
class Beat(Silent):
    """Tells the stage's process where this rank is, and rank 0's progress."""

    worker: Any
    key: str
    topic: str
    rank: int
    every: float
    position: Position = field(default_factory=Position)
    next_at: float = 0.0

    def tell(self, kind: str, **fields: Any) -> None:
        """Send an event."""
        self.worker.log_event(self.topic, {"kind": kind, "rank": self.rank, **fields})

    def step(self, name: str, done: int, total: int, fields: Mapping[str, float]) -> None:
        """Pass a step's figures on."""
        self.tell("step", name=name, done=done, total=total, fields=dict(fields))

    def message(self, text: str) -> None:
        """Pass a line on."""
        self.tell("message", text=text)

    def once(self) -> None:
        """Send the rank's position, and check whether its task was cancelled."""
        at = self.position
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + self.every
            self.tell("beat", epoch=at.epoch, step=at.step, moves=at.moves, doing=at.doing, waiting=at.waiting)
        at.stop = at.stop or _is_dropped(self.worker, self.key)


@contextmanager
def _beats(order: RankOrder) -> Iterator[Beat]:
    """Send beats until the block ends, then tell that the rank has left."""
    from distributed import get_worker

    worker = get_worker()
    beat = Beat(worker, str(worker.get_current_task()), order.topic, order.place.rank, every=order.place.size / _BEATS)
    over = threading.Event()

    def send_beats() -> None:
        while not over.wait(BEAT_SECONDS):
            beat.once()

    thread = threading.Thread(target=send_beats, name=f"gnnflow-rank-{order.place.rank}", daemon=True)
    beat.once()
    thread.start()
    try:
        yield beat
    finally:
        over.set()
        beat.position.stop = True  # what still waits for others in another thread ends
        thread.join()
        beat.position.stop = True  # again, since a beat that was under way may have set what it read before
        beat.tell("left")
