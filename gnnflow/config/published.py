"""How a config names a published model: by its name, and with `/` a number or an alias."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from gnnflow.config.base import problem

_PUBLISHED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:/([^/]+))?")


def published_name(text: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias, champion by default), None where a text names no such model."""
    found = _PUBLISHED.fullmatch(text)
    return None if found is None else (found[1], found[2] or "champion")


def _refuse_other(text: str) -> str:
    if published_name(text) is None:
        raise problem("does not name a published model", fix="Write NAME, for the version in service, or NAME/VERSION.")
    return text


PublishedName = Annotated[str, AfterValidator(_refuse_other)]
