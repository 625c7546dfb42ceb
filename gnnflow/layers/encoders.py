"""Linear maps of input features, dense or sparse, to the width that a model's layers read.

Shapes: N nodes, F features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gnnflow.kernels import Csr, weighted_sum
from gnnflow.layers.terms import FeatureTensors
from gnnflow.layers.typed import TypeInputs


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
