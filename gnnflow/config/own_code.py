"""A user's own code that a config names: every import of a module named `package.module:Name` goes through here."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import GnnflowError, LayerError


def own_function(name: str, *, where: str, raises: type[GnnflowError]) -> Callable[..., object]:
    """Return a user's own function, written `package.module:function`, which `where` in a config asks for.

    Raises an error of the kind `raises` where it is not there, ConfigError where this place does not allow its module.
    """
    try:
        module = own_module(name, where=where)
    except LayerError as error:
        raise raises(error.problem, where=where, fix=error.fix) from error
    found = getattr(module, name.partition(":")[2], None)
    if _is_function(found):
        return found
    own = [
        each
        for each, value in vars(module).items()
        if _is_function(value) and getattr(value, "__module__", "") == module.__name__
    ]
    raise raises(
        f"module {module.__name__!r} has no function {name.partition(':')[2]!r}",
        where=where,
        fix=f"Its functions are: {', '.join(own) or 'none'}.",
    )


def _is_function(value: object) -> TypeGuard[Callable[..., object]]:
    return callable(value) and not isinstance(value, type)


def source_digest(name: str) -> str:
    """Return a hash of the module that `package.module:name` is in. One that cannot be found is refused where it runs.

    Raises ConfigError where this place does not allow it.
    """
    Deployment.here().check_module(name)  # looking for a module imports the packages it lies in
    try:
        spec = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):
        return ""
    origin = Path(spec.origin) if spec and spec.origin else None
    return hashlib.sha256(origin.read_bytes()).hexdigest() if origin and origin.is_file() else ""


def own_module(name: str, *, where: str) -> ModuleType:
    """Return the module of a user's own `package.module:Name`, which `where` in a config asks for.

    Raises ConfigError, before anything is imported, where this place does not allow it; LayerError where it cannot be
    imported.
    """
    Deployment.here().check_module(name, where=where)
    module_name = name.partition(":")[0]
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise LayerError(
                f"module {module_name!r} imports {missing!r}, which is not installed",
                where=where,
                fix=f"Install {missing!r} wherever the stages run.",
            ) from error
        fix = "Install its package or add its folder to PYTHONPATH, wherever the stages run."
        if missing == "torch_geometric":
            fix = "Install it wherever the stages run: pip install 'gnnflow[pyg]'."
        raise LayerError(f"there is no module {module_name!r}", where=where, fix=fix) from error
    except (Exception, SystemExit) as error:
        raise LayerError(
            f"importing module {module_name!r} failed: {type(error).__name__}: {error}",
            where=where,
            fix="Import it in a Python shell to see where.",
        ) from error
