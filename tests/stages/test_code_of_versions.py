"""A published model is scored by the code it was trained with, or not at all."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
import types
import zipfile
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from gnnflow import registry
from gnnflow.graph.errors import ConfigError, LayerError, RegistryError
from gnnflow.layers.kinds import load_layer_class
from gnnflow.stages import pipeline, publish, score
from gnnflow.stages.base import StageContext
from tests.conftest import REPOSITORY
from tests.contracts.own_layers import Gated
from tests.small_graphs import graph_config, write_graph

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "from tests.contracts.own_layers import Gated\n\n\nclass Mine(Gated):\n    pass\n"
LOSS = "from torch.nn.functional import cross_entropy\n\n\ndef mine(x, y, w):\n    return cross_entropy(x, y, w)\n"


SCRIPT = """
import sys
from pathlib import Path
from gnnflow.layers.kinds import load_layer_class
from gnnflow.stages import pipeline
from tests.contracts.own_layers import Gated
from tests.small_graphs import graph_config

class Mine(Gated):
    pass

keys = {"model": {"kind": "__main__:Mine", "head": "linear", "hidden": 4}, "train": {"epochs": 1, "threads": 1}}
print(pipeline.run_quietly(graph_config(Path(sys.argv[1]), **keys)).reused)
"""


def published(
    folder: Path, incomparable: str = "promote", *, lr: float = 0.01
) -> tuple[StageContext, publish.PublishResult]:
    config = graph_config(
        folder,
        model={"kind": "layer_of_then:Mine", "head": "linear", "hidden": 4},
        train={"epochs": 2, "batch_size": 16, "threads": 1, "lr": lr, "loss": {"kind": "loss_of_then:mine"}},
        publish={"incomparable": incomparable},
    )
    context = StageContext.of(config)
    pipeline.run(context)
    return context, publish.run(context)


def change(file: Path, text: str) -> None:
    """Give a module another source, as another process finds it."""
    file.write_text(text)
    sys.modules.pop(file.stem, None)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_graph(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("layer_of_then", "loss_of_then"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "loss_of_then.py").write_text(LOSS)
    path = tmp_path / "layer_of_then.py"
    path.write_text(LAYER)
    return path


def test_a_model_whose_code_changed_scores_nothing(tmp_path: Path, module: Path) -> None:
    context, _ = published(tmp_path)
    write_graph(tmp_path, num_nodes=80, seed=1)
    later = StageContext.of(context.config)
    change(module, f"{LAYER}\n# changed\n")
    refused = r"version 1 cannot score this graph: the source of layer_of_then:Mine differs from the one"
    with pytest.raises(RegistryError, match=refused):
        score.run(StageContext.of(context.config))
    change(module, LAYER)
    found = score.run(later)
    assert found.rows == 80
    change(module, f"{LAYER}\n# changed\n")
    with pytest.raises(RegistryError, match=refused):  # what was scored before is not the answer either
        score.run(StageContext.of(context.config))


def test_a_loss_that_changed_since_scores_nothing_otherwise(tmp_path: Path, module: Path) -> None:
    context, _ = published(tmp_path)
    before = score.run(context)
    change(tmp_path / "loss_of_then.py", f"{LOSS}\n# changed\n")
    after = score.run(StageContext.of(context.config))
    first, second = (pq.read_table(found.predictions) for found in (before, after))
    assert first.equals(second)
    assert set(registry.read_version(context.config.workspace, "small", 1).code) == {"layer_of_then:Mine"}


@pytest.mark.table(2)
@pytest.mark.parametrize(("incomparable", "in_service"), [("keep", 1), ("promote", 2)])
def test_a_champion_with_other_code_is_compared_with_nothing(
    tmp_path: Path, module: Path, incomparable: str, in_service: int
) -> None:
    published(tmp_path)
    change(module, f"{LAYER}\n# changed\n")
    _, result = published(tmp_path, incomparable)
    assert result.in_service == in_service
    assert "the source of layer_of_then:Mine differs from the one that the model was trained with" in result.reason


@pytest.mark.slow
def test_a_champion_whose_module_is_not_allowed_is_compared_with_nothing(
    tmp_path: Path, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tmp_path)
    monkeypatch.setenv("GNNFLOW_MODULES", "another")
    config = graph_config(tmp_path, train={"epochs": 1, "threads": 1}, publish={"incomparable": "promote"})
    pipeline.run_quietly(config)
    result = publish.run(StageContext.of(config))
    assert result.in_service == 2
    assert "module 'layer_of_then' may not be imported here" in result.reason


def test_code_that_changed_since_it_was_imported_is_not_run(tmp_path: Path, module: Path) -> None:
    """Under the fingerprint of the new code there would be what the old one computes."""
    context, _ = published(tmp_path)
    module.write_text(f"{LAYER}\n# changed\n")
    changed = "the file of module 'layer_of_then' has changed since this process imported it"
    with pytest.raises(ConfigError, match=changed):
        StageContext.of(context.config)
    with pytest.raises(ConfigError, match=changed):  # as a worker finds it that imported it for an earlier run
        load_layer_class("layer_of_then:Mine")
    importlib.reload(sys.modules["layer_of_then"])
    assert pipeline.run(StageContext.of(context.config)).uri != context.run.uri


def test_a_module_in_a_zip_file_has_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.writestr("loss_of_then.py", LOSS)
        archive.writestr("layer_of_then.py", LAYER)
    monkeypatch.syspath_prepend(str(tmp_path / "own.zip"))
    for name in ("layer_of_then", "loss_of_then"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    context, _ = published(tmp_path)
    source = hashlib.sha256(LAYER.encode()).hexdigest()
    assert context.run.code_of("infer") == {"layer_of_then:Mine": source}


def test_code_without_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graph(tmp_path)
    nowhere = types.ModuleType("layer_of_then")
    vars(nowhere)["Mine"] = Gated
    monkeypatch.setitem(sys.modules, "layer_of_then", nowhere)
    config = graph_config(tmp_path, model={"kind": "layer_of_then:Mine", "head": "linear"})
    with pytest.raises(LayerError, match="no file holds the source of module 'layer_of_then'"):
        pipeline.run_quietly(config)


@pytest.mark.slow
def test_a_script_s_own_layer_is_known_by_the_script(tmp_path: Path) -> None:
    write_graph(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    environment, found = {**os.environ, "PYTHONPATH": str(REPOSITORY)}, []
    for text in (SCRIPT, SCRIPT, f"{SCRIPT}\n# changed\n"):
        (tmp_path / "script.py").write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found.append(done.stdout.split()[0])
    assert found == ["False", "True", "False"]
