"""The place of a layer in its model, which decides its widths."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A layer's place: the input rows have in_width; attribute_width is 0 without edge attributes.

    width: the requested output width (of one head in attention layers): the hidden width, or the number of outputs if
    the layer gives the scores. is_last: no layer follows. leaves: the number of source nodes of an in-edge, 0 if it
    varies. scores_pairs: pairs of nodes are scored, not nodes.
    """

    in_width: int
    width: int
    is_last: bool = False
    attribute_width: int = 0
    leaves: int = 1
    scores_pairs: bool = False
