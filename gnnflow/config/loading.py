"""Text -> `Config`: YAML, then overrides, then the environment, then validation.

Overrides come before the environment, so that a key set on the command line no longer needs its variable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gnnflow.config.environment import apply_overrides, expand
from gnnflow.config.messages import explain, show
from gnnflow.config.root import Config
from gnnflow.config.yaml_text import read_yaml
from gnnflow.graph.errors import ConfigError


def load_config(
    text: str,
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    source: str = "",
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the validated configuration of a YAML text.

    `overrides` are `key.path=value`; `workspace` replaces the key of that name; `source` names the text in
    errors; `environment` replaces the process's own. Raises ConfigError naming the YAML path, the value and
    what is allowed.
    """
    raw = read_yaml(text, source=source or "config")
    if not isinstance(raw, dict):
        found = "it is empty" if raw is None else f"it is {show(raw)}"
        raise ConfigError(
            f"a config is a mapping of keys and {found}", where=source, fix="Start with `name:` and `graph:`."
        )
    return config_from_dict(raw, overrides=overrides, workspace=workspace, source=source, environment=environment)


def config_from_dict(
    raw: Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    workspace: str | None = None,
    source: str = "",
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Return the validated configuration of plain values, as `load_config` does of a text."""
    values = apply_overrides(dict(raw), overrides)
    if workspace is not None:
        values = {**values, "workspace": workspace}
    values = expand(values, os.environ if environment is None else environment)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise explain(error, values, model=Config, source=source) from None
