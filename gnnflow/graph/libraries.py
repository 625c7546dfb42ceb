"""The import of optional libraries; the error of a missing one names the extra to install."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

from gnnflow.graph.errors import ConfigError


def load_library(module: str, *, extra: str) -> ModuleType:
    """Return a module. Raises ConfigError naming the extra where it is not installed."""
    try:
        with warnings.catch_warnings():
            # Deprecations inside a foreign package concern its authors, not our users.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{module} cannot be imported ({error})", where="import", fix=f"Install it: pip install 'gnnflow[{extra}]'."
        ) from error
