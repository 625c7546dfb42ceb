"""A stored graph that is cut finely, whatever its budget would allow: on one rank, or on each of several."""

from __future__ import annotations

import errno
import os
from functools import partial
from unittest import mock

from gnnflow.executions.streamed import GroupSizes
from gnnflow.progress import Silent
from gnnflow.train.streamed import open_streamed, source
from gnnflow.train.streamed.budget import Plan
from gnnflow.train.streamed.files import LocalDisk, Scratch
from gnnflow.train.trainer import train

TOGETHER = GroupSizes(targets=2, sources=3)


def cut_to(disk_bytes, intervals=5, max_rows=20, together=TOGETHER):
    """Return what plans intervals (of each type), pieces of 30 edges, and so many rows that leaves of a piece name.

    together: how many intervals of each relation stay together.
    """

    def planned(model, *_, budget, copies=False, place=None):
        groups = ((together,) * model.inputs.schema.num_relations,) * model.num_layers
        copies = copies and intervals > 1
        return Plan(intervals, 30, budget, disk_bytes, budget, copies, max_rows=max_rows, together=groups)

    return planned


class Full(LocalDisk):
    """Has space for so many writes."""

    def __init__(self, after):
        self.left = after

    def write(self, file, held, at):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, held, at)


class Counting(LocalDisk):
    """Counts the bytes that are written."""

    def __init__(self):
        self.written = 0

    def write(self, file, held, at):
        self.written += len(held)
        super().write(file, held, at)


def trained_counted(job):
    """Return weights, losses and written bytes of a run that is cut finely."""
    disk = Counting()
    with (
        mock.patch.object(source, "Scratch", lambda folder: Scratch(folder, disk)),
        mock.patch.object(source, "plan", cut_to(0)),
    ):
        result = train(job, progress=Silent())
    return result.weights, [row["train_loss"] for row in result.history], disk.written


def _opened(job, *, edges, exchange=None, intervals, copies, full, together):
    rank, after = full
    disk = Full(after) if exchange is not None and exchange.rank == rank else LocalDisk()
    with (
        mock.patch.object(source, "Scratch", lambda folder: Scratch(folder, disk)),
        mock.patch.object(source, "plan", cut_to(0, intervals, together=together)),
        mock.patch.object(source, "keeps_copies", return_value=copies),
    ):
        return open_streamed(job, edges=edges, exchange=exchange)


def open_cut(*, intervals, copies=False, full=(-1, 0), together=TOGETHER):
    """Return what opens a rank's part of a job, in so many intervals and pieces of a few edges.

    full: a rank whose disk is full after so many writes.
    """
    return partial(_opened, intervals=intervals, copies=copies, full=full, together=together)
