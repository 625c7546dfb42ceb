"""Linear maps of input features, dense, sparse or by type, to the width that a model's layers read.

Shapes: N nodes, F features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.kernels import Csr, weighted_sum
from gnnflow.layers.terms import FeatureTensors, NodeContext
from gnnflow.layers.typed import TypedFeatureTensors, TypedInputs, TypeInputs


class LinearEncoder(nn.Module):
    """Dense rows [N, F] to [N, width]."""

    def __init__(self, feature_width: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(feature_width, width)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: FeatureTensors) -> Tensor:
        """Return the mapped rows."""
        assert features.dense is not None
        rows: Tensor = self.linear(features.dense)
        return rows


class BagEncoder(nn.Module):
    """Sparse rows to [N, width]: the same linear map, reading only the columns a row holds.

    by_rows: the gradient of `weight` in training is a sparse tensor of the rows that were read, for tables that are
    kept elsewhere; else it is dense.
    """

    def __init__(self, feature_width: int, width: int) -> None:
        super().__init__()
        self.by_rows = False
        self.weight = nn.Parameter(torch.empty(feature_width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, features: FeatureTensors) -> Tensor:
        """Return sum over the row's entries of value x weight[index], plus the bias."""
        assert features.offsets is not None
        assert features.index is not None
        value = None if features.value is None else features.value[:, None]
        index, weight = self._compact(features) if self.by_rows and self.training else (features.index, self.weight)
        rows = Csr(features.offsets, index, len(weight))
        return weighted_sum(rows, value, weight[:, None])[:, 0] + self.bias

    def _compact(self, features: FeatureTensors) -> tuple[Tensor, Tensor]:
        """Return the features' index into the rows that they read, and these rows of `weight`."""
        assert features.index is not None
        read = self.rows_read(features)
        # the place of each read row among the read rows [F]; other places are never used
        places = features.index.new_empty(len(self.weight))
        places[read] = torch.arange(len(read), dtype=places.dtype, device=places.device)
        return places[features.index], functional.embedding(read, self.weight, sparse=True)

    def rows_read(self, features: FeatureTensors) -> Tensor:
        """Return the rows of `weight` that these features read, each once, ascending."""
        assert features.index is not None
        read = np.zeros(len(self.weight), bool)
        read[features.index.cpu().numpy()] = True
        return torch.from_numpy(np.flatnonzero(read)).to(features.index.device)


def encoder_of(each: TypeInputs, width: int) -> nn.Module:
    """Return the encoder of a node type's features."""
    return BagEncoder(each.feature_width, width) if each.sparse else LinearEncoder(each.feature_width, width)


class DegreeEncoder(nn.Module):
    """Rows of a type without features [N, W]: a learned row of the type, plus a map of the logarithms of degrees.

    into and out_of: the relations into the type and out of it. Only their degrees are read. from_zero: the map starts
    as zero. Otherwise products of two such rows grow with their degrees, and the first steps of training on products
    push all rows to zero.
    """

    def __init__(self, width: int, *, into: tuple[int, ...], out_of: tuple[int, ...], from_zero: bool = False) -> None:
        super().__init__()
        self.into, self.out_of = list(into), list(out_of)
        self.row = nn.Parameter(torch.empty(width))
        self.linear = nn.Linear(len(into) + len(out_of), width, bias=False) if into or out_of else None
        nn.init.normal_(self.row, std=width**-0.5)
        if self.linear is not None:
            (nn.init.zeros_ if from_zero else nn.init.xavier_uniform_)(self.linear.weight)

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
    """An encoder per type, all to the same width. degrees_from_zero: as of `DegreeEncoder`."""

    def __init__(self, typed: TypedInputs, width: int, *, degrees_from_zero: bool = False) -> None:
        super().__init__()
        schema = typed.schema
        self.types = nn.ModuleList(
            encoder_of(each, width)
            if each.feature_width
            else DegreeEncoder(
                width,
                into=schema.relations_into(number),
                out_of=tuple(relation for relation, of in enumerate(schema.source_types) if of == number),
                from_zero=degrees_from_zero,
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
