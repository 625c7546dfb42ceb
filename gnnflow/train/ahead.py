"""Steps made ready before they are asked for: the one thread of training that reads ahead.

AGL (section 3.3) trains in two stages: a reader decodes shards and builds the pruned blocks of the next `prefetch`
batches while the trainer runs the model. Threads, not processes, because Dask workers may not have children. One thread
keeps the order of the steps.

Measured on two cores shared with other work (8,192 targets, two layers, fan-outs 15 and 10, one compute thread):
building batches takes 14 to 24 % of an epoch's processor time, which bounds what overlap can save, and prefetching adds
none. From local files an epoch took as long with it as without, 0.18 s. Where each of 8 shards took 0.1 s to arrive, as
from object storage, an epoch fell from 1.00 s to 0.88 s with prefetch 2 and 0.83 s with 8, of which 0.8 s is waiting:
reading ahead hides the computing behind the waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Place = TypeVar("Place")
Ready = TypeVar("Ready")


def read_ahead(
    make: Callable[[Place], Ready], places: Iterable[Place], *, ahead: int, is_held: Callable[[Place], bool]
) -> Generator[Ready, None, None]:
    """Yield what `make` gives for each place, in order, with up to `ahead` more under way in a thread.

    is_held: tells places that take no time, so that the thread, which would cost more than it saves, is not asked. An
    error in the thread is raised where its place is asked for. The thread ends with the iteration.
    """
    waiting: deque[Ready | Future[Ready]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="gnnflow-reader") as thread:
        try:
            for place in places:
                waiting.append(thread.submit(make, place) if ahead and not is_held(place) else make(place))
                if len(waiting) > ahead:
                    yield _ready(waiting.popleft())
            while waiting:
                yield _ready(waiting.popleft())
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def _ready(step: Ready | Future[Ready]) -> Ready:
    return step.result() if isinstance(step, Future) else step
