"""Where a model's documents lie, and which names and numbers are allowed."""

from __future__ import annotations

import re

from gnnflow.graph.errors import RegistryError
from gnnflow.storage.filesystem import join, list_names
from gnnflow.storage.workspace import Workspace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(text: str) -> bool:
    """Return whether a model may have this name."""
    return _NAME.fullmatch(text) is not None


def model_folder(workspace: str, name: str) -> str:
    """Return the folder of a model. Raises RegistryError for a name that is not allowed."""
    if not is_name(name):
        raise RegistryError(
            f"{name!r} is not a model name",
            where="registry",
            fix="Use up to 100 letters, digits, dots, dashes and underscores, a letter or digit first.",
        )
    return join(Workspace.at(workspace).uri, "registry", name)


def numbered(uri: str, *, suffix: str = "") -> list[int]:
    """Return the numbers that name something directly below a folder, ascending."""
    names = [name.removesuffix(suffix) for name in list_names(uri) if name.endswith(suffix)]
    return sorted(int(name) for name in names if name.isdecimal())
