"""What the generated networks of payments draw alike: ids, shares that add up, and which accounts are labelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gnnflow.graph.splits import SPLITS

if TYPE_CHECKING:
    from gnnflow.graph.arrays import Array, IntArray

_LABELLED_SHARE = 0.8
_SPLIT_SHARE = (0.6, 0.2, 0.2)


def numbered_ids(prefix: str, count: int, *, width: int) -> pa.Array:
    """Return the ids `prefix-0000000` and on, of `width` digits."""
    numbers = pc.utf8_lpad(pa.array(np.arange(count)).cast(pa.string()), width, "0")
    return pc.binary_join_element_wise(prefix, numbers, "-")


def cumulative(share: Array) -> Array:
    """Return the cumulative shares, the last one 1: `searchsorted` of uniform numbers draws by share."""
    total: Array = np.cumsum(share)
    total /= total[-1]
    return total


def labelled_columns(classes: IntArray, *, others: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Return the columns label and split: four fifths of the accounts, 60/20/20; then nulls for the `others`."""
    rows = len(classes) + others
    labelled = np.zeros(rows, bool)
    labelled[: len(classes)] = rng.random(len(classes)) < _LABELLED_SHARE
    label = np.zeros(rows, np.int64)
    label[: len(classes)] = classes
    part = np.searchsorted(np.cumsum(_SPLIT_SHARE)[:-1], rng.random(rows), side="right")
    return {
        "label": pa.array(label, mask=~labelled),
        "split": pa.array(SPLITS).take(pa.array(part, mask=~labelled)),
    }
