"""The inputs of a model on a typed graph: types and relations, features of rows, and an encoder per type.

Shapes: N nodes, T types, R relations, W width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from gnnflow.graph.arrays import Array, IntArray
from gnnflow.graph.facts import FeatureFacts
from gnnflow.graph.schema import GraphSchema
from gnnflow.layers.terms import FeatureTensors, NodeContext, TypeRows


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


class DegreeEncoder(nn.Module):
    """Rows of a type without features [N, W]: a learned row of the type, plus a map of the logarithms of degrees.

    into and out_of: the relations into the type and out of it. Only their degrees are read.
    """

    def __init__(self, width: int, *, into: tuple[int, ...], out_of: tuple[int, ...]) -> None:
        super().__init__()
        self.into, self.out_of = list(into), list(out_of)
        self.row = nn.Parameter(torch.empty(width))
        self.linear = nn.Linear(len(into) + len(out_of), width, bias=False) if into or out_of else None
        nn.init.normal_(self.row, std=width**-0.5)
        if self.linear is not None:
            nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, nodes: NodeContext) -> Tensor:
        """Return the rows of these nodes."""
        if self.linear is None:
            return self.row.expand(len(nodes.in_degree), -1)
        # a column per relation, also with one relation, where degrees are [N]
        in_degree, out_degree = (
            each[:, None] if each.dim() == 1 else each for each in (nodes.in_degree, nodes.out_degree)
        )
        degrees = torch.cat([in_degree[:, self.into], out_degree[:, self.out_of]], 1)
        rows: Tensor = self.row + self.linear(torch.log1p(degrees))
        return rows


class TypeEncoder(nn.Module):
    """An encoder per type, all to the same width.

    build: makes the encoder of a type that has features.
    """

    def __init__(self, typed: TypedInputs, width: int, *, build: Callable[[TypeInputs, int], nn.Module]) -> None:
        super().__init__()
        schema = typed.schema
        self.types = nn.ModuleList(
            build(each, width)
            if each.feature_width
            else DegreeEncoder(
                width,
                into=schema.relations_into(number),
                out_of=tuple(relation for relation, of in enumerate(schema.source_types) if of == number),
            )
            for number, each in enumerate(typed.types)
        )

    def forward(self, features: TypedFeatureTensors, nodes: NodeContext) -> Tensor:
        """Return the rows of all types [N, W], in the rows' order. nodes: of the same rows."""
        held: list[FeatureTensors | NodeContext] = [
            nodes.of_type(features.types, number) if part is None else part
            for number, part in enumerate(features.parts)
        ]
        return features.types.joined([encoder(each) for encoder, each in zip(self.types, held, strict=True)])

    def of_type(self, node_type: int, features: FeatureTensors, nodes: NodeContext) -> Tensor:
        """Return the rows of nodes of one type [N, W]. features: ignored for a type without any."""
        encoder = self.types[node_type]
        rows: Tensor = encoder(nodes if isinstance(encoder, DegreeEncoder) else features)
        return rows
