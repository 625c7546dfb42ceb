"""Rows of features, dense and sparse: runs of them, put together again in another order, are the same rows."""

from __future__ import annotations

import pytest
import torch

from gnnflow.layers import FeatureTensors


def dense_of(features: FeatureTensors) -> torch.Tensor:
    if features.dense is not None:
        return features.dense
    rows = torch.zeros(len(features), features.width)
    lengths = features.offsets.diff()
    values = torch.ones(len(features.index)) if features.value is None else features.value
    rows[torch.repeat_interleave(lengths), features.index] = values
    return rows


@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse ones"])
def test_runs_of_rows_joined_in_another_order_are_these_rows(kind):
    if kind == "dense":
        features = FeatureTensors(3, dense=torch.arange(15.0).view(5, 3))
    else:
        index = torch.tensor([0, 2, 1, 0, 1, 2])
        value = None if kind == "sparse ones" else torch.arange(1.0, 7.0)
        features = FeatureTensors(3, offsets=torch.tensor([0, 2, 2, 3, 6, 6]), index=index, value=value)
    assert len(features) == 5
    joined = FeatureTensors.joined([features.rows(2, 5), features.rows(0, 2)])
    assert torch.equal(dense_of(joined), dense_of(features)[[2, 3, 4, 0, 1]])
