"""The registry where a file of it is gone, or another one lies among its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gnnflow import registry
from gnnflow.graph.errors import RegistryError, StorageError
from gnnflow.storage.filesystem import join
from gnnflow.storage.writing import write_atomic
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


@pytest.mark.parametrize("stray", [".DS_Store", "~$notes.txt", ".~lock/aliases/00000001.json"])
def test_what_is_no_model_name_is_no_model(tmp_path: Path, stray: str) -> None:
    workspace = str(tmp_path)
    registry.register(workspace, completed_run(workspace, 1))
    write_atomic(join(workspace, "registry", stray), b"x")
    assert registry.list_models(workspace) == ("tiny",)
    with pytest.raises(RegistryError, match=r"no model 'tny'.*Models: tiny\."):
        registry.find_version(workspace, "tny", "1")
