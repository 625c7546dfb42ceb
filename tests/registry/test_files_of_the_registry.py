"""The registry where a file of it is gone, or another one lies among its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gnnflow import registry
from gnnflow.graph.errors import StorageError
from tests.registry.test_registry import completed_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_rollback_to_a_version_that_is_gone_moves_nothing(tmp_path: Path) -> None:
    workspace = str(tmp_path)
    for number in (1, 2, 3):
        registry.register(workspace, completed_run(workspace, number))
        registry.promote(workspace, "tiny", number)
    before = registry.read_aliases(workspace, "tiny")
    (tmp_path / "registry/tiny/2/version.json").unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"2/version\.json: is missing"):
            registry.rollback(workspace, "tiny")
        assert registry.read_aliases(workspace, "tiny") == before
