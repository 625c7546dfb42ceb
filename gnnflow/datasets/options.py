"""The options of an import as the command line gives them, as text by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from gnnflow.graph.errors import ConfigError

Tell = Callable[[str], None]
"""Receives a sentence about what an importer found and chose."""

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_DIGITS = 9  # the most digits of a number


class Options:
    """The options of one import. `take` returns one; `finish` refuses those that were not taken."""

    def __init__(self, given: Mapping[str, str], *, where: str) -> None:
        self._left = dict(given)
        self._known: list[str] = []
        self._where = where

    def take(self, name: str, default: str) -> str:
        """Return an option's text."""
        self._known.append(name)
        return self._left.pop(name, default)

    def has(self, name: str) -> bool:
        """Return whether an option is given."""
        self._known.append(name)
        return name in self._left

    def column(self, name: str, default: str) -> str | int:
        """Return a column's name, or its position where the text is a number."""
        text = self.take(name, default)
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else text

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return names separated by commas; None where the option is not given, which means all."""
        if not self.has(name):
            return None
        return tuple(part.strip() for part in self.take(name, "").split(",") if part.strip())

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false. Raises ConfigError for any other text."""
        text = self.take(name, str(default)).lower()
        if text not in _TRUTH:
            raise ConfigError(f"{name} is {text!r}", where=self._where, fix="Use true or false.")
        return _TRUTH[text]

    def integer(self, name: str, default: int) -> int:
        """Return a whole number from 0. Raises ConfigError for any other text."""
        text = self.take(name, str(default))
        if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS:
            raise ConfigError(f"{name} is {text!r}", where=self._where, fix="Use a whole number from 0.")
        return int(text)

    def rest(self, known: Mapping[str, object]) -> dict[str, str]:
        """Return the remaining options with known names."""
        self._known += known
        return {name: self._left.pop(name) for name in list(self._left) if name in known}

    def finish(self) -> None:
        """Raise ConfigError for an option that was not taken."""
        for name in self._left:
            near = difflib.get_close_matches(name, self._known, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise ConfigError(
                f"there is no option {name!r}",
                where=self._where,
                fix=f"{hint}Options: {', '.join(sorted({*self._known}))}.",
            )
