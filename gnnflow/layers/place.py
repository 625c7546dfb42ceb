"""Where a layer stands in its model: what it is built from beside its section of the config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A layer's place: rows of in_width come in; attribute_width is 0 without edge attributes.

    width is the width asked of the layer, for attention layers that of one head: the hidden width, or the number of
    outputs where the layer gives the scores. is_last: no layer follows. leaves: how many nodes an in-edge comes from, 0
    where that differs from edge to edge.
    """

    in_width: int
    width: int
    is_last: bool = False
    attribute_width: int = 0
    leaves: int = 1
