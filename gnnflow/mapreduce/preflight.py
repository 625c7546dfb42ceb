"""Checks the installed packages of a Dask cluster's processes before any gnnflow code is sent there.

A worker that cannot unpickle a task closes its connection to the scheduler, and all work on it is lost. So the first
question, for the Python version, is Dask's, which sends no code, and the second is a function that is sent by value and
names no gnnflow module. Only a worker that has passed both is asked the third, whether it sees the workspace. If it
does, it is admitted: it holds the run's access from then on, and tasks of the run begin there.
"""

from __future__ import annotations

import asyncio
import json
import platform
import types
from typing import TYPE_CHECKING, Any

import gnnflow
from gnnflow.graph.errors import ClusterError, GnnflowError
from gnnflow.storage.access import hold, using_here

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from distributed import Client

    from gnnflow.storage.access import Access

_ANSWER_SECONDS = 10.0  # a worker may be busy with something that keeps its event loop waiting
_NO_REPORT = "did not report what it has installed"

_VERSIONED = ("gnnflow", "dask", "distributed")
_RELEASED = ("torch",)
# What gnnflow's tasks import, by the names of its modules.
_IMPORTED = (
    "fsspec",
    "google.protobuf",
    "jinja2",
    "matplotlib",
    "scipy",
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
    return by_value(_installed)


def by_value(function: Any) -> Callable[..., Any]:
    """Return a function as one that is sent by value; its globals are gone, so it imports what it needs."""
    made = types.FunctionType(function.__code__, {"__name__": "__main__"}, "gnnflow_preflight")
    made.__defaults__ = function.__defaults__
    return made


async def refuse_unfit_scheduler(client: Client) -> None:
    """Raise ClusterError where the scheduler cannot unpickle gnnflow's tasks, naming what it lacks."""
    scheduler: Any = client.scheduler  # None only before a client is connected
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            versions = await scheduler.versions(packages=[])
            found = _python_misfits(versions)
            if not found:  # another Python cannot run the second question
                asked: Any = client.run_on_scheduler(question(), _VERSIONED, _IMPORTED, _RELEASED)
                found = _misfits(json.loads(await asked))
    except OSError as error:  # a TimeoutError too
        raise ClusterError(
            f"the scheduler did not report its packages within {_ANSWER_SECONDS:.0f} s ({type(error).__name__})",
            where=f"Dask cluster {scheduler.address}",
            fix="Run again when it is less busy.",
        ) from error
    if found:
        raise ClusterError(
            f"cannot run gnnflow's tasks: {'; '.join(found)} on the scheduler",
            where=f"Dask cluster {scheduler.address}",
            fix=f"Install gnnflow {gnnflow.__version__} and its dependencies there, as here. No task was sent.",
        )


async def find_problems(
    client: Client,
    workers: Collection[str],
    access: Access,
    *,
    resource: str | None = None,
    marker: str = "",
) -> dict[str, tuple[str, ...]]:
    """Return what keeps each worker from running gnnflow's tasks; nothing for a fit one, which holds the access now.

    resource: what Dask calls so, and a fit worker offers. marker: a file of the workspace, which a fit worker can read;
    empty where that is not asked. Each worker is asked by itself, so one that hangs tells nothing of the others.
    """
    scheduler: Any = client.scheduler
    offered: dict[str, Any] = (await scheduler.identity(n_workers=-1))["workers"] if resource else {}

    async def ask(worker: str) -> tuple[str, ...]:
        if resource and resource not in offered.get(worker, {}).get("resources", {}):
            return (f"does not offer the resource {resource}",)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return tuple(await _problems(client, worker, access, marker))
        except TimeoutError:
            return (f"did not answer within {_ANSWER_SECONDS:.0f} s",)

    return dict(zip(workers, await asyncio.gather(*map(ask, workers)), strict=True))


async def _problems(client: Client, worker: str, access: Access, marker: str) -> list[str]:
    scheduler: Any = client.scheduler
    versions = await scheduler.broadcast(msg={"op": "versions", "packages": []}, workers=[worker], on_error="ignore")
    if worker not in versions:
        return [_NO_REPORT]
    if found := _python_misfits(versions[worker]):
        return found
    told: Any = await _run(client, worker, question(), _VERSIONED, _IMPORTED, _RELEASED)
    if told is None:
        return [_NO_REPORT]
    if found := _misfits(json.loads(told)):
        return found
    unseen: Any = await _run(client, worker, admit, access, marker)
    if unseen is None:
        return [_NO_REPORT]
    return [f"does not see the workspace ({unseen})"] if unseen else []


async def _run(client: Client, worker: str, function: Callable[..., Any], *given: Any) -> Any:
    """Return what a function says on a worker; None where it raised, or the worker has left meanwhile."""
    asked: Any = client.run(function, *given, workers=[worker], on_error="ignore")
    return (await asked).get(worker)


async def admit(access: Access, marker: str) -> str:
    """On a worker: hold an access if a file can be read with it, and return nothing; else return why it cannot.

    marker: the file, empty where none is to be read.
    """
    from gnnflow.storage.filesystem import read_bytes

    try:
        # a later answer would come to nobody, and nobody would take the access back
        async with asyncio.timeout(_ANSWER_SECONDS):
            with using_here(access):
                if marker:  # in a thread, since a network drive may hang, and this loop serves other tenants
                    await asyncio.to_thread(read_bytes, marker)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker cannot use the workspace
        return f"{type(error).__name__}: {error}"
    hold(access)
    return ""


def _installed(versioned: tuple[str, ...] = (), imported: tuple[str, ...] = (), released: tuple[str, ...] = ()) -> str:
    """Report the versions of some packages, null if absent, and the presence of others, as JSON.

    released: packages that take seconds to import; their installer's note tells the version.
    """
    import importlib
    import importlib.metadata
    import importlib.util
    import json

    versions: dict[str, str | None] = {}
    for name in versioned:
        try:
            versions[name] = str(importlib.import_module(name).__version__)
        except (ImportError, AttributeError):
            versions[name] = None
    for name in released:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    present: dict[str, bool] = {}
    for name in imported:
        try:
            present[name] = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            present[name] = False
    return json.dumps({"versions": versions, "present": present})


def _python_misfits(told: Mapping[str, Any]) -> list[str]:
    ours, theirs = _minor(platform.python_version()), _minor(told["host"]["python"])
    return [] if theirs == ours else [f"Python {theirs} instead of {ours}"]


def _misfits(told: Mapping[str, Any]) -> list[str]:
    ours = json.loads(_installed(_VERSIONED, (), _RELEASED))["versions"]
    absent = [name for name, version in told["versions"].items() if version is None]
    absent += [name for name, there in told["present"].items() if not there]
    if "gnnflow" in absent:
        absent = ["gnnflow"]  # what it depends on is installed with it
    found = [f"{name} is not installed" for name in dict.fromkeys(absent)]  # torch is asked for in both ways
    for name, version in told["versions"].items():
        if version is None or version == ours[name]:
            continue
        # Dask's protocol changes only between months, and torch's results between minor versions
        if name == "gnnflow" or _minor(version) != _minor(ours[name]):
            found.append(f"{name} {version} instead of {ours[name]}")
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


async def find_other_code(client: Client, workers: Collection[str], code: Mapping[str, str]) -> dict[str, str]:
    """Return the workers whose source of the user's own code is not ours, with what differs.

    code: hashes of the source by name, as a run's fingerprints hold them. A worker that does not tell is one of these.
    """

    async def ask(worker: str) -> str:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                told: Any = await _run(client, worker, _differing, dict(code))
        except TimeoutError:
            return f"did not answer within {_ANSWER_SECONDS:.0f} s"
        return _NO_REPORT if told is None else str(told)

    told = dict(zip(workers, await asyncio.gather(*map(ask, workers)), strict=True))
    return {worker: text for worker, text in told.items() if text}


async def _differing(code: Mapping[str, str]) -> str:
    """On a worker: return what differs here from some source; nothing where it is the same."""
    return await asyncio.to_thread(_difference, code)  # this loop serves other tenants


def _difference(code: Mapping[str, str]) -> str:
    from gnnflow.config.own_code import source_digest

    try:
        other = [name for name, digest in sorted(code.items()) if source_digest(name) != digest]
    except GnnflowError as error:
        return str(error)
    return f"has another source of {', '.join(other)}, or none" if other else ""
