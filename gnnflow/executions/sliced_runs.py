"""A slice's layer computed a run of targets at a time, so that what a run gives is sent while the next is computed.

A target's row is the same as in `gathered_slice`, but for the last bits of matrix products, which may depend on how
many rows they have.

Shapes: T targets, n of a run, S sources, W width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gnnflow.executions.sliced import Gathered, gathered_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gnnflow.executions.sliced import TermArrays
    from gnnflow.graph.arrays import FloatArray
    from gnnflow.layers import Model


def gathered_runs(
    model: Model, index: int, *, own: TermArrays, gathered: Gathered, runs: Sequence[slice]
) -> Iterator[FloatArray]:
    """Yield layer `index`'s rows of each run of the T targets [n, W]. own and gathered: as for `gathered_slice`."""
    if len(runs) == 1:
        yield gathered_slice(model, index, own=own, gathered=gathered)
        return
    room = max(run.stop - run.start for run in runs)
    # the S sources' terms, with room before them for the terms of a run's own targets
    source = {name: np.concatenate([rows[:room], rows]) for name, rows in gathered.source.items()}
    for run in runs:
        targets = {name: rows[run] for name, rows in own.items()}
        yield gathered_slice(model, index, own=targets, gathered=_of_run(gathered, run, source, room))


def _of_run(gathered: Gathered, run: slice, source: dict[str, FloatArray], room: int) -> Gathered:
    """Return what was gathered of a run of targets. source: see `gathered_runs`; its room is written to."""
    if gathered.block is None:
        of_targets = {name: rows[run] for name, rows in gathered.source.items()}
        states = [{name: rows[run] for name, rows in state.items()} for state in gathered.states]
        return replace(gathered, source=of_targets, states=states)
    before = slice(room - (run.stop - run.start), room)
    for name, rows in source.items():
        rows[before] = gathered.source[name][run]
    return replace(
        gathered, source={name: rows[before.start :] for name, rows in source.items()}, block=gathered.block.run(run)
    )
