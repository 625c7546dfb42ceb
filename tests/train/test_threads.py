"""The number of threads is the config's, whatever the process around it was told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnflow.config import MiniBatchConfig
from gnnflow.train.reproducible import compute_settings


@pytest.mark.parametrize("around", [1, 2, 4])
def test_the_environment_changes_neither_threads_nor_bits(around: int) -> None:
    before = torch.get_num_threads()
    generator = torch.Generator().manual_seed(0)
    # shapes whose products differ between one thread and two
    rows, grad = torch.randn(4096, 64, generator=generator), torch.randn(4096, 64, generator=generator)
    with compute_settings(1):
        wanted = (grad.T @ rows).numpy()
    try:
        torch.set_num_threads(around)
        with compute_settings(MiniBatchConfig().threads):
            assert torch.get_num_threads() == 1
            np.testing.assert_array_equal((grad.T @ rows).numpy(), wanted)
        assert torch.get_num_threads() == around
    finally:
        torch.set_num_threads(before)


def test_null_is_the_default_of_versions_published_earlier() -> None:
    assert MiniBatchConfig.model_validate({"threads": None}).threads == MiniBatchConfig().threads == 1
