"""Checks the installed packages of a Dask cluster's processes before any gnnflow code is sent there.

A worker that cannot unpickle a task closes its connection to the scheduler, and all work on it is lost. So the first
question, for the Python version, is Dask's, which sends no code, and the second is a function that is sent by value and
names no gnnflow module. Only a cluster whose processes have all passed both gets a task.
"""

from __future__ import annotations

import asyncio
import json
import types
from typing import TYPE_CHECKING, Any

import gnnflow
from gnnflow.graph.errors import ClusterError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distributed import Client

_ANSWER_SECONDS = 60.0  # a worker may be busy with something that keeps its event loop waiting
_NAMED = 3  # places named for each problem

_VERSIONED = ("gnnflow", "dask", "distributed")
# What gnnflow's tasks import, by the names of its modules.
_IMPORTED = (
    "fsspec",
    "google.protobuf",
    "jinja2",
    "matplotlib",
    "sklearn",
    "numpy",
    "pyarrow",
    "pydantic",
    "safetensors",
    "torch",
    "yaml",
)


def question() -> Callable[..., str]:
    """Return a function that reports the installed packages as JSON, in any Python of our version.

    Its module is `__main__`, whose functions are sent by value, not by name.
    """
    made = types.FunctionType(_installed.__code__, {"__name__": "__main__"}, "gnnflow_preflight")
    made.__defaults__ = _installed.__defaults__
    return made


async def refuse_unfit(client: Client, *, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the cluster's workers after asking the scheduler and every worker that is not known yet.

    Raises ClusterError where one of them cannot run gnnflow's tasks, naming what is missing or of another version.
    """
    scheduler: Any = client.scheduler  # None only before a client is connected
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            workers = frozenset(await scheduler.ncores())
            if known and workers <= known:
                return workers
            found = await _problems(client, sorted(workers - known), ask_scheduler=not known)
    except OSError as error:  # a TimeoutError too
        raise ClusterError(
            f"a process did not report its packages within {_ANSWER_SECONDS:.0f} s ({type(error).__name__})",
            where=f"Dask cluster {scheduler.address}",
            fix="Run again when they are less busy, or restart processes that hang.",
        ) from error
    if found:
        raise ClusterError(
            f"cannot run gnnflow's tasks: {_said(found)}",
            where=f"Dask cluster {scheduler.address}",
            fix=f"Install gnnflow {gnnflow.__version__} and its dependencies there, as here. No task was sent.",
        )
    return workers


async def _problems(client: Client, workers: list[str], *, ask_scheduler: bool) -> dict[str, list[str]]:
    """Return the problems, with their places."""
    asked: Any = client.get_versions()
    versions = await asked
    hosts = {f"the worker {worker}": versions["workers"].get(worker) for worker in workers}
    if ask_scheduler:
        hosts["the scheduler"] = versions["scheduler"]
    ours = _minor(versions["client"]["host"]["python"])
    found: dict[str, list[str]] = {}
    for place, told in hosts.items():
        if told is not None and (theirs := _minor(told["host"]["python"])) != ours:
            found.setdefault(f"Python {theirs} instead of {ours}", []).append(place)
    if found:  # another Python cannot run the second question
        return found
    for place, told in (await _answers(client, workers, ask_scheduler=ask_scheduler)).items():
        for problem in _misfits(json.loads(told)):
            found.setdefault(problem, []).append(place)
    return found


async def _answers(client: Client, workers: list[str], *, ask_scheduler: bool) -> dict[str, str]:
    """Return the report of each place. A worker that has left meanwhile has none."""
    names = (_VERSIONED, _IMPORTED)
    told: Any = await client.run(question(), *names, workers=workers, on_error="ignore") if workers else {}
    answers = {f"the worker {worker}": answer for worker, answer in told.items()}
    if ask_scheduler:
        asked: Any = client.run_on_scheduler(question(), *names)
        answers["the scheduler"] = await asked
    return answers


def _installed(versioned: tuple[str, ...] = (), imported: tuple[str, ...] = ()) -> str:
    """Report the versions of some packages, null if absent, and the presence of others, as JSON."""
    import importlib
    import importlib.util
    import json

    versions: dict[str, str | None] = {}
    for name in versioned:
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        except (ImportError, AttributeError):
            versions[name] = None
    present: dict[str, bool] = {}
    for name in imported:
        try:
            present[name] = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            present[name] = False
    return json.dumps({"versions": versions, "present": present})


def _misfits(told: Mapping[str, Any]) -> list[str]:
    ours = json.loads(_installed(_VERSIONED))["versions"]
    found = []
    for name, version in told["versions"].items():
        if version is None:
            found.append(f"{name} is not installed")
        elif version != ours[name] and (name == "gnnflow" or _minor(version) != _minor(ours[name])):
            # Dask's protocol changes only between months
            found.append(f"{name} {version} instead of {ours[name]}")
    return found + [f"{name} is not installed" for name, there in told["present"].items() if not there]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _said(found: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{problem} on {listed(places, at_most=_NAMED)}" for problem, places in found.items())
