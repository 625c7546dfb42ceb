"""Credentials that a run brings along, held in memory by name and used for the places they open.

The environment of a process is the usual source, and storage libraries read it themselves. Credentials of a run (an
Airflow connection's) are held here instead, for its time: never in a config, a file, a log, or an argument of a task.
Processes that are started meanwhile inherit them in one variable; workers of a Dask cluster are handed them
(`mapreduce/fit_workers.py`).
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gnnflow.graph.variables import variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "GNNFLOW_STORAGE_CREDENTIALS"
"""Holds what a process inherits. A config may not read it: its name looks like a secret's."""
_SECRET = re.compile("key|secret|token|password|connection_string")


@dataclass(frozen=True)
class Access:
    """Options of a storage library, with its credentials, for URLs that begin with one of some places.

    name: by which it is given back; nobody sees the options by looking at it.
    """

    name: str
    places: tuple[str, ...]
    options: Mapping[str, Any] = field(repr=False)


def _inherited() -> dict[str, Access]:
    read = json.loads(os.environ.get(VARIABLE) or "[]")
    found = (Access(each["name"], tuple(each["places"]), each["options"]) for each in read)
    return {each.name: each for each in found}


_HELD: dict[str, Access] = _inherited()
_HERE: ContextVar[tuple[Access, ...]] = ContextVar("access", default=())


def hold(access: Access) -> bool:
    """Hold it in this process until it is given back; return True."""
    _HELD[access.name] = access
    return True


def release(name: str) -> None:
    """Give it back, if it is held."""
    _HELD.pop(name, None)


def held(name: str) -> Access | None:
    """Return what this process holds under a name."""
    return _HELD.get(name)


@contextmanager
def using(access: Access) -> Iterator[None]:
    """Hold it in the block, in this process and those that it starts meanwhile."""
    hold(access)
    try:
        every = json.dumps([vars(each) | {"options": dict(each.options)} for each in _HELD.values()])
        with variable(VARIABLE, every):
            yield
    finally:
        release(access.name)


@contextmanager
def using_here(access: Access) -> Iterator[None]:
    """Use it for what this thread opens in the block; the rest of a process that serves others does not see it."""
    token = _HERE.set((*_HERE.get(), access))
    try:
        yield
    finally:
        _HERE.reset(token)


def options_of(uri: str) -> Mapping[str, Any]:
    """Return the options for a URL: of the longest place that it lies in, none in any other place."""
    if "://" not in uri:
        return {}
    found = [(len(place), each) for each in _known() for place in each.places if _is_in(uri, place)]
    return max(found, key=lambda each: each[0])[1].options if found else {}


def narrowed(access: Access, name: str, content: Any) -> Access:
    """Return an access under another name for the buckets that the texts of some nested values name, and no others."""
    buckets = {"/".join(text.split("/", 3)[:3]) for text in _texts(content) if any(map(text.startswith, access.places))}
    return replace(access, name=name, places=tuple(sorted(buckets)))


def mask_credentials(text: str) -> str:
    """Return a text without the credentials that this process holds."""
    for secret in {secret for each in _known() for secret in _secrets(each.options)}:
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
