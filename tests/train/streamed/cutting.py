"""A stored graph that is cut finely, whatever its budget would allow: on one rank, or on each of several."""

from __future__ import annotations

from functools import partial
from unittest import mock

from gnnflow.train.globalbatch import open_task_source
from gnnflow.train.streamed import source
from gnnflow.train.streamed.plan import Plan


def cut_to(disk_bytes, intervals=5):
    def planned(*_, budget, copies=False):
        return Plan(intervals, 30, budget, disk_bytes, budget, copies and intervals > 1)

    return planned


def _opened(job, *, edges, exchange=None, intervals, copies):
    with (
        mock.patch.object(source, "plan", cut_to(0, intervals)),
        mock.patch.object(source, "keeps_copies", return_value=copies),
    ):
        return open_task_source(job, edges=edges, exchange=exchange)


def open_cut(*, intervals, copies):
    """Return what opens a rank's part of a job, in so many intervals and pieces of a few edges."""
    return partial(_opened, intervals=intervals, copies=copies)
