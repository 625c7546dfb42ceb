"""The inputs of a model on a typed graph: types and relations, and the features of rows.

Shapes: N nodes, T types, R relations, W width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import FeatureFacts
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.terms import FeatureTensors, TypeRows


@dataclass(frozen=True)
class TypeInputs:
    """One node type: its name, and the width of its features, 0 for none."""

    name: str
    feature_width: int = 0
    sparse: bool = False


@dataclass(frozen=True)
class TypedInputs:
    """The types [T] and relations [R] of a graph that decide a model, in the schema's order."""

    types: tuple[TypeInputs, ...]
    relations: tuple[str, ...]

    @classmethod
    def of(cls, schema: GraphSchema, features: Iterable[FeatureFacts | None]) -> Self:
        """Return the inputs of a schema. features: the storage of each type's features, None without any."""
        types = (
            TypeInputs(name) if facts is None else TypeInputs(name, facts.width, facts.kind == "sparse")
            for name, facts in zip(schema.types, features, strict=True)
        )
        return cls(tuple(types), tuple(map(str, schema.relations)))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the inputs from plain values. Raises TypeError or KeyError for other values."""
        return cls(tuple(TypeInputs(**each) for each in document["types"]), tuple(document["relations"]))

    @cached_property
    def schema(self) -> GraphSchema:
        """The types and relations."""
        return GraphSchema.named((each.name for each in self.types), self.relations)


@dataclass(frozen=True)
class TypedFeatureTensors:
    """Node input features of several types, as `TypedFeatures`: one part per type, None for a type without any.

    types: of the N rows.
    """

    parts: tuple[FeatureTensors | None, ...]
    types: TypeRows

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.types.num_rows

    @property
    def of_targets(self) -> FeatureTensors:
        """The features of the first row's type, the targets' type; no columns if it has none."""
        return self.of_type(np.zeros(1, np.int64))[0]

    def of_type(self, rows: Array) -> tuple[FeatureTensors, IntArray]:
        """Return the features of the type of some rows, all of one type, and the rows' positions in that type.

        The features have no columns if the type has none.
        """
        of_types = [each.cpu() for each in self.types.rows] or [torch.arange(len(self))]
        number = next(number for number, held in enumerate(of_types) if bool((held == int(rows[0])).any()))
        part, held = self.parts[number], of_types[number].numpy()
        places: IntArray = np.searchsorted(held, rows)
        return FeatureTensors(0, dense=torch.zeros(len(held), 0)) if part is None else part, places
