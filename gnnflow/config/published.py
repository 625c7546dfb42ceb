"""How a config names a published model: by its name, and with `/` a number or an alias."""

from __future__ import annotations

import re

_PUBLISHED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:/([^/]+))?")


def published_name(text: str) -> tuple[str, str] | None:
    """Return name and version (a number or an alias, champion by default), None where a text names no such model."""
    found = _PUBLISHED.fullmatch(text)
    return None if found is None else (found[1], found[2] or "champion")
