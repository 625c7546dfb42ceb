"""Starts the parameter servers of one attempt as Dask actors, and ends them with it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from typing import TYPE_CHECKING, Any

from gnnflow.mapreduce.submitting import submit
from gnnflow.train.ranks.group import RankLateError
from gnnflow.train.ranks.operations import RankLostError
from gnnflow.train.ranks.patience import Patience
from gnnflow.train.ranks.servers import Server

if TYPE_CHECKING:
    from distributed import Client, Future

    from gnnflow.train.job import TrainJob

_CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.05


class Hosting:
    """The parameter servers of one attempt; none where `train.updater` asks for none."""

    def __init__(
        self,
        job: TrainJob,
        client: Client,
        topic: str,
        *,
        ranks: Sequence[str],
        others: Sequence[str],
        access: str = "",
    ) -> None:
        asked = job.train.updater.servers if job.train.updater.kind == "parameter_server" else 0
        self._job = job
        self._client = client
        self._topic = topic
        self._access = access
        self._num_ranks = len(ranks)
        # On workers without a rank while there are some.
        self._workers = [place for place, _ in zip(cycle([*others, *reversed(ranks)]), range(asked), strict=False)]
        self._futures: list[Future[Any]] = []
        self.actors: tuple[Any, ...] = ()

    def start(self) -> None:
        """Start them. Raises RankLateError where one does not begin in time, RankLostError where its worker is gone."""
        for number, worker in enumerate(self._workers):
            key = f"{self._topic}-server-{number}"
            future = submit(
                self._client,
                Server,
                self._job.train,
                self._num_ranks,
                key=key,
                workers=[worker],
                access=self._access,
                actor=True,
            )
            self._futures.append(future)
            self.actors += (self._begun(number, future),)

    def _begun(self, number: int, future: Future[Any]) -> Any:
        """Return a server when it has begun."""
        patience = Patience(self._job.train.start_seconds)
        while not future.done():
            self.check(self._client.nthreads())  # one whose worker died never begins
            if patience.is_over():
                raise RankLateError(
                    f"parameter server {number} did not begin within {patience.seconds:g} s on its worker "
                    f"{self._workers[number]}",
                    where="train.start_seconds",
                    fix="See what that worker does, or raise the limit where workers take longer to begin.",
                )
            time.sleep(_LOOK_SECONDS)
        try:
            return future.result()
        except RuntimeError:  # Dask's, where the worker died just now
            self.check(self._client.nthreads())
            raise

    def check(self, there: Mapping[str, Any]) -> None:
        """Raise RankLostError where a server's worker is gone."""
        for number, worker in enumerate(self._workers):
            if worker not in there:
                raise RankLostError(
                    f"parameter server {number} was lost: its worker {worker} died", where="train.updater"
                )

    def end(self) -> None:
        """Release what waits for them, and them."""
        for actor, future in zip(self.actors, self._futures, strict=False):
            if future.status == "finished":
                with suppress(OSError, RuntimeError, KeyError):
                    actor.close().result(timeout=_CLOSE_SECONDS)
        self._client.cancel(self._futures, force=True)
