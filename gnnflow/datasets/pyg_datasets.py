"""The public data sets of PyG, by class name: PyG downloads and reads them, we write tables.

PyG reads each data set's raw files as their authors published them, some of which are pickles: import the data sets of
sources you trust. Data sets of many graphs that come in splits (PPI) are joined into one graph with a `split` column.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnnflow.datasets.options import Options
from gnnflow.datasets.pyg import from_pyg, from_pyg_graphs, from_pyg_hetero
from gnnflow.datasets.tables import GraphTables, TypedGraphTables
from gnnflow.graph.errors import ConfigError, TableError
from gnnflow.graph.libraries import load_library

_SPLITS = {"train": "train", "valid": "val", "test": "test"}  # our name: PyG's
_OURS = {"self", "root", "transform", "pre_transform", "pre_filter", "force_reload", "kwargs"}
_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}


def load_pyg(name: str, options: Options, _: Callable[[str], None]) -> GraphTables | TypedGraphTables:
    """Return the tables of `CLASS[/ARGUMENT...]`, a class of torch_geometric.datasets and its arguments in order.

    Options: root (the local folder PyG downloads to; a cache folder by default), mask_column (which of several splits),
    and the class's own keyword arguments. Raises ConfigError for an unknown class or argument, TableError where the
    download fails or nodes have no labels of their own.
    """
    module = load_library("torch_geometric.datasets", extra="pyg")
    kind, *given = name.split("/")
    dataset = _dataset_class(module, kind)
    parameters = inspect.signature(dataset.__init__).parameters
    arguments = _arguments(f"pyg:{name}", given, options, parameters)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = options.take("root", str(cache / "gnnflow" / "pyg" / name.replace("/", "-")))
    mask_column = options.integer("mask_column", 0)
    options.finish()
    _check_complete(f"pyg:{name}", parameters, arguments)
    if "root" in parameters:
        arguments["root"] = root
    if "split" not in arguments and "split" in parameters and parameters["split"].default == "train":
        # a class that holds one split at a time, as PPI: several graphs per split
        parts = {ours: {**arguments, "split": pyg} for ours, pyg in _SPLITS.items()}
        return from_pyg_graphs({split: _built(f"pyg:{name}", dataset, part) for split, part in parts.items()})
    return _single(f"pyg:{name}", _built(f"pyg:{name}", dataset, arguments), mask_column)


def _dataset_class(module: Any, kind: str) -> Any:
    base = load_library("torch_geometric.data", extra="pyg").Dataset
    found = getattr(module, kind, None)
    if inspect.isclass(found) and issubclass(found, base):
        return found
    known = [name for name in dir(module) if inspect.isclass(getattr(module, name))]
    near = difflib.get_close_matches(kind, known, 3, 0.5)
    raise ConfigError(
        f"torch_geometric.datasets has no class {kind!r}",
        where=f"pyg:{kind}",
        fix=f"Did you mean {', '.join(near)}?" if near else "Use a class of torch_geometric.datasets.",
    )


def _arguments(
    where: str, given: list[str], options: Options, parameters: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    own = [key for key in parameters if key not in _OURS]
    if len(given) > len(own):
        raise ConfigError(
            f"{len(given)} arguments given, the class takes {len(own)}",
            where=where,
            fix=f"Its arguments are {', '.join(own)}." if own else "Leave them out.",
        )
    arguments = dict(zip(own, given, strict=False)) | options.rest(dict.fromkeys(own))
    return {key: _value(text, parameters[key].annotation) for key, text in arguments.items()}


def _value(text: str, annotation: Any) -> Any:
    if annotation is str:
        return text
    if text.lower() in _VALUES:
        return _VALUES[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_complete(where: str, parameters: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    missing = [
        key
        for key, parameter in parameters.items()
        if key not in _OURS and parameter.default is inspect.Parameter.empty and key not in arguments
    ]
    if missing:
        example = "/".join([where, *(key.upper() for key in missing)])
        raise ConfigError(f"needs {', '.join(missing)}", where=where, fix=f"Write {example}.")


def _built(where: str, dataset: Any, arguments: Mapping[str, Any]) -> Any:
    try:
        return dataset(**arguments)
    except OSError as error:  # what a failed download raises: URLError, timeouts, refused connections, a full disk
        folder = f" or put its raw files into {arguments['root']}" if "root" in arguments else ""
        raise TableError(
            f"PyG could not get the data set ({error})",
            where=where,
            fix=f"Check the connection and proxy{folder}, then run again.",
        ) from error
    except (ImportError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"PyG refused it ({type(error).__name__}: {error})",
            where=where,
            fix="Check its arguments in the PyG documentation of the class.",
        ) from error


def _single(where: str, dataset: Any, mask_column: int) -> GraphTables | TypedGraphTables:
    if len(dataset) != 1:
        raise TableError(
            f"holds {len(dataset)} graphs",
            where=where,
            fix="Choose a data set of one graph, or of train/val/test splits.",
        )
    graph = dataset[0]
    load = from_pyg_hetero if hasattr(graph, "edge_types") else from_pyg
    tables: GraphTables | TypedGraphTables = load(graph, mask_column=mask_column)
    return tables
