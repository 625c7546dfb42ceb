"""Finds the workers of a shared Dask cluster that can run gnnflow's tasks, as workers come and go.

Others start and stop such workers, for other work too. One that lacks something is left alone: it gets no task, and
ends no run that other workers can do.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import gnnflow
from gnnflow.config import AddressCluster, OwnCluster
from gnnflow.graph.errors import ClusterError, GnnflowError, listed
from gnnflow.mapreduce.preflight import find_other_code, find_problems, refuse_unfit_scheduler
from gnnflow.mapreduce.submitting import PREFIX
from gnnflow.progress import never
from gnnflow.storage.access import Access, release
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.writing import remove_file, write_atomic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from distributed import Client

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0, 300.0  # until an unfit worker is asked again: while too few are fit, and otherwise
_KEEP_SECONDS = 5.0
_RELEASE_SECONDS = 10.0
_LISTED = 20
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MARKER = re.compile(r"\.seen-([0-9]+)-[0-9a-f]{32}")
_KEPT_SECONDS = 7 * 24 * 3600  # longer than a stage runs, whose new workers read it


@dataclass(frozen=True)
class _Told:
    """Problems of a worker's process, none if it is fit, and when it told them."""

    process: str
    problems: tuple[str, ...]
    at: float


class FitWorkers:
    """The fit workers of a cluster. Each process is asked once, an unfit one again after some time.

    asked: how many there must be, what they offer, and how long they are waited for. marker: a file of the workspace,
    which a fit worker can read; empty where that is not asked. say: hears of unfit workers and of fit ones that left,
    once each. access: to the storage, which processes of fit workers hold until `release`; one that opens nothing by
    default. Tasks that name it begin nowhere else. code: hashes of the user's own code, whose source is the same on a
    fit worker, so that no two do tasks of one fingerprint by different code.
    """

    def __init__(
        self,
        client: Client,
        asked: AddressCluster | OwnCluster,
        *,
        marker: str,
        say: Callable[[str], None],
        access: Access | None = None,
        code: Mapping[str, str] = _NOTHING,
    ) -> None:
        self._code = code
        self.client = client
        self.asked = asked
        self._marker = marker
        self.access = access or Access(f"{PREFIX}{uuid.uuid4().hex}")
        self._say = say
        self._told: dict[str, _Told] = {}
        self._holders: set[str] = set()
        self._is_scheduler_fit = False

    async def look(self, count: int = 1, *, quietly: bool = False) -> dict[str, int]:
        """Return the fit workers that are there, with their threads. count: with fewer, unfit ones are asked sooner.

        Raises ClusterError where the scheduler is unfit or does not answer.
        """
        if not self._is_scheduler_fit:
            await refuse_unfit_scheduler(self.client)
            self._is_scheduler_fit = True
        found_there: Any = await self.client.run_on_scheduler(_processes)
        processes: dict[str, str] = {each: process for each, (process, _) in found_there.items()}
        there: dict[str, int] = {each: threads for each, (_, threads) in found_there.items()}
        left = {each: told for each, told in self._told.items() if processes.get(each) != told.process}
        if (gone := sorted(each for each, told in left.items() if not told.problems)) and not quietly:
            many = "worker has" if len(gone) == 1 else "workers have"
            self._say(f"{len(gone)} Dask {many} left ({listed(gone)}): what they had not finished runs again on others")
        self._told = {each: told for each, told in self._told.items() if each not in left}
        short, long = _AGAIN_SECONDS
        seconds, now = short if len(self._fit(there)) < count else long, time.monotonic()
        due = [each for each in sorted(there) if each not in self._told or self._is_due(each, now - seconds)]
        if due:
            self._holders.update(due)
            found = await find_problems(
                self.client, due, self.access, resource=self.asked.resource, marker=self._marker
            )
            if self._code:
                found |= await self._other_code([each for each in due if not found[each]])
            new = [each for each in due if found[each] and found[each] != self._problems(each)]
            now = time.monotonic()
            self._told.update({each: _Told(processes[each], problems, now) for each, problems in found.items()})
            if new and not quietly:
                self._say(f"these workers get no task:{self.unfit_lines(new)}")
        return self._fit(there)

    async def _other_code(self, workers: list[str]) -> dict[str, tuple[str, ...]]:
        """Return the workers with another source of the user's own code than ours, with what is wrong."""
        other = await find_other_code(self.client, workers, self._code)
        return {worker: (text,) for worker, text in other.items()}

    async def wait(self, count: int | None = None, *, stopped: Callable[[], bool] = never) -> dict[str, int]:
        """Return the fit workers once there are as many as asked; none where the cluster has no workers, or if stopped.

        Raises ClusterError with a list of the unfit ones where too few are fit for too long.
        """
        count, waited = count or self.asked.workers, 0.0
        while len(fit := await self.look(count)) < count and self._told and not stopped():
            if waited >= self.asked.start_seconds:
                raise self._too_few(len(fit), count)
            if not waited:
                self._say(
                    f"{len(fit)} of {len(self._told)} workers can run gnnflow's tasks; waits at most "
                    f"{self.asked.start_seconds:g} s for {count}"
                )
            await asyncio.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS  # by its looks, since a clock counts the time in which this process was paused
        return fit

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Look at once and every few seconds in the block, so that new processes hold the access soon.

        It says nothing: the work itself looks for others, and tells of them.
        """

        async def look_on() -> None:
            while True:
                with suppress(OSError, ClusterError):  # whoever waits for the work hears of a lost scheduler
                    await self.look(quietly=True)
                await asyncio.sleep(_KEEP_SECONDS)

        looking = asyncio.create_task(look_on())
        try:
            yield
        finally:
            looking.cancel()

    async def release(self) -> None:
        """Take the access back from all workers that may hold it and are still there."""
        # one that was found unfit may have admitted itself when nobody waited for its answer any more
        holders = {each for each in self._holders if self.access.opens or not self._problems(each)}
        if not holders or self.client.status != "running":
            return
        scheduler: Any = self.client.scheduler
        with suppress(OSError):  # a TimeoutError too
            there: dict[str, int] = await asyncio.wait_for(scheduler.ncores(), timeout=_RELEASE_SECONDS)
            asked: Any = self.client.run(
                release, self.access.name, workers=sorted(holders & there.keys()), on_error="ignore"
            )
            await asyncio.wait_for(asked, timeout=_RELEASE_SECONDS)

    def unfit_lines(self, workers: list[str] | None = None) -> str:
        """Return a line for each unfit worker with what is wrong, or for some of them."""
        unfit = [each for each in (self._told if workers is None else workers) if self._told[each].problems]
        lines = [f"\n  {each}: {'; '.join(self._told[each].problems)}" for each in sorted(unfit)]
        more = f"\n  and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
        return "".join(lines[:_LISTED]) + more

    def unfit_text(self) -> str:
        """Return the unfit workers as the end of a message; nothing where there are none."""
        return f" These are not fit and get no task:{lines}" if (lines := self.unfit_lines()) else ""

    def _fit(self, there: dict[str, int]) -> dict[str, int]:
        return {each: there[each] for each, told in self._told.items() if not told.problems}

    def _is_due(self, worker: str, before: float) -> bool:
        told = self._told[worker]
        return bool(told.problems) and told.at <= before

    def _problems(self, worker: str) -> tuple[str, ...]:
        return self._told[worker].problems if worker in self._told else ()

    def _too_few(self, fit: int, count: int) -> ClusterError:
        scheduler: Any = self.client.scheduler
        return ClusterError(
            f"{fit} of {len(self._told)} workers can run gnnflow's tasks after {self.asked.start_seconds:g} s, and "
            f"{count} {'is' if count == 1 else 'are'} asked for",
            where=f"Dask cluster {scheduler.address}",
            fix=f"Start workers with gnnflow {gnnflow.__version__} and its dependencies, as here, that see the "
            f"workspace.{self.unfit_text()}",
        )


def _processes(dask_scheduler: Any = None) -> dict[str, tuple[str, int]]:
    """On the scheduler: return each worker's process and threads. An address outlives a process, an id does not."""
    return {address: (each.server_id, each.nthreads) for address, each in dask_scheduler.workers.items()}


def asked_of(content: Mapping[str, Any], address: str, also: Mapping[str, Any] = _NOTHING) -> AddressCluster:
    """Return what a config asks of the running cluster at an address; the defaults if it names no cluster.

    also: keys of the section that a connection sets.
    """
    section = content.get("cluster", {})
    kept = section if section.get("kind") == "address" else {}
    return AddressCluster.model_validate({**kept, **also, "address": address})


@contextmanager
def marked(workspace: str) -> Iterator[str]:
    """Yield a new file of a workspace: a worker that can read it sees this workspace."""
    uri = mark(workspace)
    try:
        yield uri
    finally:
        unmark(uri)


def mark(workspace: str) -> str:
    """Write a new file to a workspace and return its place; delete files that killed runs left long ago."""
    now = int(time.time())
    for name in list_names(workspace):
        if (found := _MARKER.fullmatch(name)) and now - int(found[1]) > _KEPT_SECONDS:
            unmark(join(workspace, name))
    uri = join(workspace, f".seen-{now}-{uuid.uuid4().hex}")
    write_atomic(uri, b"gnnflow", durable=False)
    return uri


def unmark(uri: str) -> None:
    """Delete such a file. It is small, so one that cannot be deleted fails nothing."""
    with suppress(OSError, GnnflowError):
        remove_file(uri)
