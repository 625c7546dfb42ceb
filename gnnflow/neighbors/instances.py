"""Instances: what a selection beyond direct in-neighbours finds, and how a partition's are written.

An instance joins a root to its leaves: one node of a walk, all nodes of a metapath. Each relation of a selection is a
file of instances per partition of the roots, and takes the place of a file of in-edges.

Shapes: E instances, m leaves of each, L leaves of all, A attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gnnflow.graph.arrays import Array, FloatArray, IntArray
from gnnflow.storage.columns import from_matrix, from_ragged


@dataclass(frozen=True)
class Instances:
    """Instances of one relation. Nodes are dense ids.

    roots [E], ascending; those of one root are best first, where there is a best. leaves: [E] where each has one leaf,
    [E, m] where each has m, from the root outward; or all leaves [L] with offsets [E + 1], where they differ in number.
    weight [E] and attributes [E, A] are None where there are none.
    """

    roots: IntArray
    leaves: Array
    weight: FloatArray | None = None
    attributes: FloatArray | None = None
    offsets: IntArray | None = None

    @property
    def num_leaves(self) -> int:
        """How many leaves each instance has; 0 where that differs."""
        if self.offsets is not None:
            return 0
        return 1 if self.leaves.ndim == 1 else int(self.leaves.shape[1])

    @property
    def attribute_width(self) -> int:
        """How many attributes each instance has."""
        return 0 if self.attributes is None else int(self.attributes.shape[1])

    def table(self) -> pa.Table:
        """Return them as rows of a file of in-edges."""
        columns: dict[str, Any] = {"dst": self.roots.astype(np.int64, copy=False)}
        leaves = self.leaves.astype(np.int64, copy=False)
        if self.offsets is not None:
            columns["src"] = from_ragged(self.offsets, leaves)
        else:
            # lists of one node are written as the node
            columns["src"] = leaves.ravel() if self.num_leaves == 1 else from_matrix(leaves)
        if self.weight is not None:
            columns["weight"] = self.weight.astype(np.float32, copy=False)
        if self.attributes is not None:
            columns["attributes"] = from_matrix(self.attributes.astype(np.float32, copy=False))
        return pa.table(columns)


def no_instances(*, leaves: int = 1) -> Instances:
    """Return no instances, of so many leaves each."""
    none = np.zeros(0, np.int64)
    return Instances(none, none if leaves == 1 else np.zeros((0, leaves), np.int64))
