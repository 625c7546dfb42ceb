"""The import of a user's own code, which a config names as `package.module:Name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from gnnflow.config.deployment import Deployment
from gnnflow.graph.errors import ConfigError, GnnflowError, LayerError

_IMPORTED: dict[str, tuple[object, str]] = {}
"""The spec and the source's hash of each imported module by name; another import or a reload replaces the spec."""


def own_function(name: str, *, where: str, raises: type[GnnflowError]) -> Callable[..., object]:
    """Return a user's own function `package.module:function`, which the key `where` of a config names.

    Raises an error of the kind `raises` where it does not exist, ConfigError where its module is not allowed here.
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
    """Return a hash of the source of `package.module:name`, "" where it is not found: then running it fails.

    Raises ConfigError where it is not allowed here, or the file has changed since this process imported it.
    """
    Deployment.here().check_module(name)  # finding a module imports its parent packages
    module_name = name.partition(":")[0]
    digest = _digest_of(module_name)
    if (module := sys.modules.get(module_name)) is not None:
        _check_unchanged(module_name, module, digest)
    return digest


def _digest_of(module_name: str) -> str:
    """Return a hash of a module's source, "" where no source is found."""
    if module_name == "__main__":  # a script has no spec, and a notebook no file either
        script = getattr(sys.modules["__main__"], "__file__", None)
        return hashlib.sha256(Path(script).read_bytes()).hexdigest() if script and Path(script).is_file() else ""
    try:
        spec = importlib.util.find_spec(module_name)
        if spec is None or spec.origin is None:
            return ""
        read = getattr(spec.loader, "get_data", None)  # out of a zip file too
        return hashlib.sha256(read(spec.origin)).hexdigest() if read else ""
    except (ImportError, ValueError, OSError):
        return ""


def _check_unchanged(module_name: str, module: ModuleType, digest: str, *, where: str = "") -> None:
    """Raise ConfigError where a module's file has changed since this process first saw it imported."""
    spec = module.__spec__
    held, before = _IMPORTED.setdefault(module_name, (spec, digest))
    if held is not spec:
        _IMPORTED[module_name] = (spec, digest)
    elif before != digest:
        raise ConfigError(
            f"the file of module {module_name!r} has changed since this process imported it, so the old code would run",
            where=where,
            fix="Start the process again, and the Dask workers too.",
        )


def own_module(name: str, *, where: str) -> ModuleType:
    """Return the module of a user's own `package.module:Name`, which the key `where` of a config names.

    Raises ConfigError, before anything is imported, where it is not allowed here, and where its file has changed since
    this process imported it; LayerError where it cannot be imported, or no file holds its source.
    """
    Deployment.here().check_module(name, where=where)
    module_name = name.partition(":")[0]
    module = _imported(module_name, where)
    if not (digest := _digest_of(module_name)):
        raise LayerError(
            f"no file holds the source of module {module_name!r}, so its changes could not be noticed",
            where=where,
            fix="Write it to a file on PYTHONPATH, wherever the stages run.",
        )
    _check_unchanged(module_name, module, digest, where=where)
    return module


def _imported(module_name: str, where: str) -> ModuleType:
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
