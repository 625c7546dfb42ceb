"""What computing in the processor's memory, and what on a card, takes beside rows: counted by `plan.py`."""

from __future__ import annotations

from dataclasses import dataclass

from gnnflow.config.train_section import FIXED_MEMORY


@dataclass(frozen=True)
class Place:
    """What computing in a place takes beside rows. fixed: bytes whatever the graph.

    per_offset: bytes per row of what orders three pieces' edges by target and source. per_edge: bytes of three pieces,
    per_number: and where a layer computes numbers for each edge. reads: whether partitions are read there too. outputs:
    numbers per output of a target while the graph is gone through, at_loss: while the loss is computed, when nothing
    else is there. exact: layers are taken as the execution computes them, and not in any way it could. groups: whether
    several intervals of a relation stay together. makes_terms: whether source terms that are no more than features are
    made as they go by (`streamed/first_terms.py`). sources: intervals' terms that are in memory at once as they go by.
    """

    fixed: int
    per_offset: int
    per_edge: int
    per_number: int
    reads: bool
    outputs: int
    at_loss: int
    exact: bool
    groups: bool
    makes_terms: bool
    sources: int


ON_CPU = Place(
    fixed=FIXED_MEMORY["cpu"],
    per_offset=6 * 8,
    per_edge=3 * (4 + 4 + 4),  # three by target and by source
    per_number=3 * 8,  # what of one is widened for torch
    reads=True,
    outputs=1,  # the logits, or their gradient
    at_loss=3,
    exact=False,
    groups=True,
    makes_terms=True,
    sources=2,
)
ON_CARD = Place(
    fixed=FIXED_MEMORY["cuda"],
    per_offset=2 * (3 * 8 + 4) + 2 * 5 * 8,  # and the tables of targets of many edges, both ways of one piece
    per_edge=3 * (8 + 16) + 3 * 4,  # three by target and by source, one as it is copied
    per_number=0,
    reads=False,
    outputs=3,
    at_loss=5,
    exact=True,
    groups=False,  # not tried on one
    makes_terms=False,
    sources=3,
)
