"""Pieces of an exchange fetched in the background, while a task computes on those that it has.

What arrives first changes nothing: pieces are handed out in the order they were asked for.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from gnnflow.mapreduce.exchange import Inbox

_AT_ONCE = 4
"""How many pieces are fetched at the same time."""


@contextmanager
def fetching(inbox: Inbox, wanted: Sequence[tuple[str, int]], *, ahead: int) -> Iterator[Iterator[pa.Table]]:
    """Begin to fetch the pieces that tasks sent here, and give an iterator over them in the order asked for.

    wanted: a channel and the number of the task that sent, per piece. ahead: how many pieces are fetched, or wait
    fetched, while one is computed on; with 0 a piece is fetched when it is taken. An error of reading a piece is raised
    where it is taken. Leaving the block drops what was not taken.
    """
    if not ahead:
        yield (inbox.read(channel, tasks=(task,)) for channel, task in wanted)
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="gnnflow-fetch") as threads:
        coming = iter(wanted)
        fetched: deque[Future[pa.Table]] = deque()

        def begin() -> None:
            for channel, task in coming:
                fetched.append(threads.submit(inbox.read, channel, tasks=(task,)))
                return

        def taken() -> Iterator[pa.Table]:
            while fetched:
                piece = fetched.popleft().result()
                begin()
                yield piece

        for _ in range(ahead):
            begin()
        try:
            yield taken()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
