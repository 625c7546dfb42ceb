"""The written reference is the one the models give."""

from __future__ import annotations

from gnnflow.config import Config
from gnnflow.config.__main__ import config_reference
from gnnflow.config.base import tagged_members
from tests.conftest import REPOSITORY


def test_the_reference_is_up_to_date():
    assert (REPOSITORY / "docs" / "config.md").read_text() == config_reference(), "run `make docs`"


def test_the_reference_names_every_key():
    reference = config_reference()
    for section in ("graph", "flat", "infer", "guards", "publish"):
        for key in Config.model_fields[section].annotation.model_fields:
            assert f"`{section}.{key}" in reference
    for section in ("model", "train"):
        for kind, member in tagged_members(Config.model_fields[section]).items():
            assert f"### `{section}: {{{member.tag}: {kind}}}`" in reference
            for key in set(member.model_fields) - {member.tag}:
                assert f"`{section}.{key}" in reference
    assert reference.count("`model.hidden`") == 1
    for kind in ("none", "uniform", "weighted", "top_k"):
        assert f"`neighbors.sampling: {{kind: {kind}}}`" in reference
    assert "| `train.lr` | number > 0 | `0.01` | Learning rate. |" in reference
    assert "| `model.attention_dropout` | number >= 0, < 1 or null | `null` |" in reference
