"""From what a DAG says (a URI, overrides, a workspace) to a validated config, and back to a file other tasks read."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gnnflow.config import Config


def read_config(uri: str, *, overrides: Sequence[str] = (), workspace: str | None = None) -> Config:
    """Return the config at a path or URL. Raises ConfigError or StorageError, both made for people."""
    from gnnflow.config import load_config
    from gnnflow.storage.filesystem import read_bytes

    return load_config(read_bytes(uri).decode(), overrides=overrides, workspace=workspace or None, source=uri)


def read_raw(uri: str) -> Any:
    """Return the values of a YAML file, unchecked. Raises ConfigError where it is not YAML."""
    from gnnflow.config.yaml_text import read_yaml
    from gnnflow.storage.filesystem import read_bytes

    return read_yaml(read_bytes(uri).decode(), source=uri)


def list_experiments(folder: str) -> list[str]:
    """Return the YAML files directly in a folder (path or URL), sorted; none where there is no such folder."""
    from gnnflow.storage.filesystem import join, list_names

    return [join(folder, name) for name in list_names(folder) if name.endswith((".yaml", ".yml"))]


def keep_config(config: Config) -> str:
    """Write a config into its workspace and return its URI: tasks pass this on instead of the values."""
    from gnnflow.storage.filesystem import absolute, join, write_atomic

    # `${` would be read as a variable when the file is loaded; `$${` stands for itself.
    content = json.dumps(config.model_dump(mode="json"), indent=1, sort_keys=True).replace("${", "$${").encode()
    name = f"{config.name}-{hashlib.sha256(content).hexdigest()[:16]}.yaml"
    uri = join(absolute(config.workspace), "configs", name)
    write_atomic(uri, content)
    return uri
