"""A user's own code that a config names: every import of a module named `package.module:Name` goes through here."""

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
"""By its name the spec of a module that was imported, which another import or a reload replaces, and its hash then."""


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

    Raises ConfigError where this place does not allow it, or the file has changed since this process imported it.
    """
    Deployment.here().check_module(name)  # looking for a module imports the packages it lies in
    module_name = name.partition(":")[0]
    digest = _digest_of(module_name)
    if (module := sys.modules.get(module_name)) is not None:
        _check_unchanged(module_name, module, digest)
    return digest


def _digest_of(module_name: str) -> str:
    """Return a hash of a module's source, "" where that cannot be found."""
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
    """Raise ConfigError where a module's file is not what it was when this process first saw it imported."""
    spec = module.__spec__
    held, before = _IMPORTED.setdefault(module_name, (spec, digest))
    if held is not spec:
        _IMPORTED[module_name] = (spec, digest)
    elif before != digest:
        raise ConfigError(
            f"the file of module {module_name!r} has changed since this process imported it, and would run as it was",
            where=where,
            fix="Start the process again; of Dask, its workers too.",
        )


def own_module(name: str, *, where: str) -> ModuleType:
    """Return the module of a user's own `package.module:Name`, which `where` in a config asks for.

    Raises ConfigError, before anything is imported, where this place does not allow it, and where its file has changed
    since this process imported it; LayerError where it cannot be imported, or no file holds its source.
    """
    Deployment.here().check_module(name, where=where)
    module_name = name.partition(":")[0]
    module = _imported(module_name, where)
    if not (digest := _digest_of(module_name)):
        raise LayerError(
            f"no file holds the source of module {module_name!r}, so that nothing would tell when it changes",
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
