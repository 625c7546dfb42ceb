"""Credentials that a run brings along: who holds them, from when, and until when.

The environment of a process is the usual source, and storage libraries read it themselves. Credentials of a run (an
Airflow connection's) are held here instead, in memory: never in a config, a file, a log, or an argument of a task.

- The process of the run holds them within a block of `using`.
- The workers of a local cluster, which that process starts, inherit them in a variable, which is set while they run. No
  other process is given them by its environment: not a job of a queue, a pod, or whatever else a class starts.
- A worker process of any other cluster is handed those for the buckets that the config names, once it has shown that it
  can run the work and sees the workspace (`mapreduce/preflight.py`), until `FitWorkers.release`. Tasks of a run begin
  in processes that hold its access and in no others (`mapreduce/submitting.py`): one that is new at a known address has
  to be asked first.

Whoever gives an access back also forgets the filesystems that were opened with it.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gnnflow.graph.variables import variable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from fsspec import AbstractFileSystem

VARIABLE = "GNNFLOW_STORAGE_CREDENTIALS"
"""Holds what workers of this machine inherit. A config may not read it: its name looks like a secret's."""
_SECRET = re.compile("key|secret|token|password|connection_string")


@dataclass(frozen=True)
class Access:
    """Options of a storage library, with its credentials, for URLs that begin with a place.

    name: by which it is held and given back; with `/`, a part of another's. opens: options by places, nothing where
    processes use what their environment says; nobody sees it by looking.
    """

    name: str
    opens: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


def _inherited() -> dict[str, Access]:
    read = json.loads(os.environ.pop(VARIABLE, "{}"))
    return {name: Access(name, opens) for name, opens in read.items()}


_HELD: dict[str, Access] = _inherited()
_HERE: ContextVar[tuple[Access, ...]] = ContextVar("access", default=())
_OPENED: set[type[AbstractFileSystem]] = set()


def hold(access: Access) -> None:
    """Hold it in this process until it is given back."""
    _HELD[access.name] = access


def release(name: str) -> None:
    """Give it and its parts back, if they are held."""
    for each in [each for each in _HELD if f"{each}/".startswith(f"{name}/")]:
        del _HELD[each]
    _forget_filesystems()


def held(name: str) -> Access | None:
    """Return what this process holds under a name."""
    return _HELD.get(name)


def part_of(name: str) -> Access:
    """Return what this process holds under a name as a new part of it.

    It is given back by itself or with the whole.
    """
    return replace(_HELD[name], name=f"{name}/{uuid.uuid4().hex}")


def every_held() -> Collection[Access]:
    """Return all that this process holds."""
    return tuple(_HELD.values())


@contextmanager
def using(access: Access) -> Iterator[None]:
    """Hold it in the block."""
    hold(access)
    try:
        yield
    finally:
        release(access.name)


@contextmanager
def inherited() -> Iterator[None]:
    """Let processes that are started in the block inherit what this one holds now."""
    every = {name: access.opens for name, access in _HELD.items() if access.opens}
    with variable(VARIABLE, json.dumps(every)) if every else nullcontext():
        yield


@contextmanager
def using_here(access: Access) -> Iterator[None]:
    """Use it for what this thread opens in the block; the rest of a process that serves others does not see it."""
    token = _HERE.set((*_HERE.get(), access))
    try:
        yield
    finally:
        _HERE.reset(token)
        _forget_filesystems()


def note_opened(fs: AbstractFileSystem) -> None:
    """Note the kind of a filesystem that was opened with an access: its library keeps it for later."""
    _OPENED.add(type(fs))


def _forget_filesystems() -> None:
    """Let libraries forget the filesystems of each kind that was opened with an access; others are made anew."""
    for kind in list(_OPENED):
        kind.clear_instance_cache()


def options_of(uri: str) -> Mapping[str, Any]:
    """Return the options for a URL: of the longest place that it lies in, none in any other place."""
    if "://" not in uri:
        return {}
    return _options_among(_known(), uri)


def narrowed(name: str, content: Any, among: Collection[Access]) -> Access:
    """Return an access for the buckets alone that the texts of some nested values name."""
    buckets = {"/".join(text.split("/", 3)[:3]) for text in _texts(content) if _options_among(among, text)}
    return Access(name, {bucket: _options_among(among, bucket) for bucket in sorted(buckets)})


def _options_among(among: Collection[Access], uri: str) -> Mapping[str, Any]:
    found = [(len(place), options) for each in among for place, options in each.opens.items() if _is_in(uri, place)]
    return max(found, key=lambda each: each[0])[1] if found else {}


def mask_credentials(text: str) -> str:
    """Return a text without the credentials that this process holds."""
    for secret in {secret for each in _known() for options in each.opens.values() for secret in _secrets(options)}:
        text = text.replace(secret, "...")
    return text


def _known() -> tuple[Access, ...]:
    return (*_HELD.values(), *_HERE.get())


def _secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of options with the names of secrets."""
    for name, value in options.items():
        if _SECRET.search(name):
            yield from filter(None, _texts(value))
        elif isinstance(value, dict):
            yield from _secrets(value)


def _is_in(uri: str, place: str) -> bool:
    return uri.startswith(place) and (place.endswith("/") or uri[len(place) :][:1] in {"", "/"})


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list | tuple):
        for each in content:
            yield from _texts(each)
    elif hasattr(content, "values"):
        for each in content.values():
            yield from _texts(each)
