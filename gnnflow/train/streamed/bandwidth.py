"""Speeds of each rank's disk and of its link to the next rank, which decide who reads source intervals.

A card reads its machine's memory, where files lie there, and sends from card to card if it can.

All ranks measure at once: what they share, such as a disk of one host, is then measured as each one's part of it. The
tree of NGra's devices (a disk, the ranks below it, links between them) comes down to two numbers per rank.

Shapes: p ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from gnnflow.executions.row_exchange import Exchange, told_by_all
from gnnflow.graph.arrays import IntArray
from gnnflow.train.streamed.card import Card
from gnnflow.train.streamed.files import Scratch, bytes_of

_BYTES = 8 << 20
_TURNS = 3  # of which the first, which makes connections, is not counted


@dataclass(frozen=True)
class Bandwidths:
    """Bytes per second [p]: of each rank's disk, and of its link to the next rank, while all are used."""

    reads: IntArray
    links: IntArray


def measured(scratch: Scratch, exchange: Exchange, card: Card | None = None) -> Bandwidths:
    """Measure, on all ranks together; all return the same numbers. card: where the bytes lie; None: here."""
    run = torch.zeros(_BYTES // 4, device=None if card is None else card.device)
    file = scratch.file()
    file.append(bytes_of(run.cpu()))
    if card is not None:
        file.lock()

    def read() -> None:
        file.drop_cache()
        if card is None:
            file.read(bytes_of(run), 0)
        else:
            card.fetched(file.lent(0, _BYTES))

    def pass_on() -> None:
        sent, received = [0] * exchange.size, [0] * exchange.size
        sent[(exchange.rank + 1) % exchange.size] = received[exchange.rank - 1] = len(run)
        exchange.begin(run, sent=sent, received=received).wait()[:1].cpu()  # and a card has to be done with it

    links = _per_second(pass_on)
    reads = _per_second(read)  # behind the links, after which all ranks are there
    file.close()
    told = told_by_all(exchange, np.array([reads, links]))
    return Bandwidths(told[:, 0], told[:, 1])


def _per_second(once: Callable[[], None]) -> int:
    took = []
    for _ in range(_TURNS):
        begin = time.perf_counter()
        once()
        took.append(time.perf_counter() - begin)
    return int(_BYTES / np.median(took[1:]))


def keeps_copies(found: Bandwidths, nodes: IntArray) -> bool:
    """Return whether ranks are faster if each reads all source intervals from copies on its disk.

    nodes: of each rank [p]. Else only the owner reads an interval, and it goes round. Either takes as long as its
    slowest disk or link.
    """
    # numbers on each rank's link [p]: all intervals but the next rank's, which end before it
    on_link = nodes.sum() - np.roll(nodes, -1)
    round_the_ring = max((nodes / found.reads).max(), (on_link / found.links).max())
    return bool((nodes.sum() / found.reads).max() < round_the_ring)
