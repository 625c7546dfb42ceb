"""Computes a slice's layer run by run of its targets: one run's rows are sent while the next is computed.

A target's row is the same as in `gathered_slice`, but for the last bits of matrix products, which may depend on how
many rows they have.

Shapes: T targets, n of a run, S sources, W width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gnnflow.executions.sliced.slices import Gathered, gathered_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.executions.plan import TermArrays
    from gnnflow.graph.arrays import FloatArray
    from gnnflow.layers import Model


def gathered_runs(
    model: Model, index: int, *, own: TermArrays, gathered: Gathered, runs: Sequence[slice]
) -> Iterator[FloatArray]:
    """Yield layer `index`'s rows of each run of the T targets [n, W].

    own and gathered: as for `gathered_slice`; a block's sources have `room_for(runs)` before them.
    """
    if len(runs) == 1:
        yield gathered_slice(model, index, own=own, gathered=gathered)
        return
    for run in runs:
        targets = {name: rows[run] for name, rows in own.items()}
        yield gathered_slice(model, index, own=targets, gathered=_of_run(gathered, run))


def room_for(runs: Sequence[slice]) -> int:
    """Return how much room a block's sources need before them: none for one run, else the longest run's length."""
    return max(run.stop - run.start for run in runs) if len(runs) > 1 else 0


def _of_run(gathered: Gathered, run: slice) -> Gathered:
    """Return the gathered edges of a run of targets, whose own source terms are copied to before all sources."""
    if gathered.block is None:
        of_targets = {name: rows[run] for name, rows in gathered.source.items()}
        states = [{name: rows[run] for name, rows in state.items()} for state in gathered.states]
        return replace(gathered, source=of_targets, states=states)
    # the run's own source terms lie right before all sources [n + S, ...]
    begin = gathered.room - (run.stop - run.start)
    source = {}
    for name, rows in gathered.source.items():
        rows[begin : gathered.room] = rows[gathered.room :][run]
        source[name] = rows[begin:]
    return replace(gathered, source=source, block=gathered.block.run(run), room=0)
