"""pydantic's errors -> sentences a person can act on: YAML path, value, what is allowed, and the nearest valid key.

A location such as `("flat", "sampling", "uniform", "fanout", 0)` mixes keys with the tags and member names of unions, so
it is walked along the models, which know which is which.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from gnnflow.config.base import Section, without_credentials
from gnnflow.graph.errors import ConfigError

_PHRASES = {
    "string_type": "must be text",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping of keys",
    "model_attributes_type": "must be a mapping of keys",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "byte_size": "must be a size such as 512MiB or 2GiB",
    "byte_size_unit": "must be a size such as 512MiB or 2GiB",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be one of {expected}",
    "string_pattern_mismatch": "must start with a letter or digit and hold only letters, digits, dots, dashes and underscores",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must not be empty",
}
_LONGEST_VALUE = 100


@dataclass(frozen=True)
class _Place:
    """Where an error is: the keys that lead there, the section that owns the last key, and what the walk ended in."""

    path: tuple[str | int, ...]
    owner: type[Section] | None
    field: FieldInfo | None
    inside: type[Section] | None
    tagged: dict[str, type[Section]]

    @property
    def text(self) -> str:
        """The path as people write it: flat.sampling.fanout[0]."""
        parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path]
        return "".join(parts).removeprefix(".")


@dataclass(frozen=True)
class _Finding:
    place: _Place
    problem: str
    fix: str


def explain(error: ValidationError, raw: Any, *, model: type[Section], source: str = "") -> ConfigError:
    """Return one ConfigError for everything pydantic found in `raw`, the mapping that was validated as `model`."""
    places = [(_locate(model, raw, details["loc"]), details) for details in error.errors(include_url=False)]
    grouped: dict[str, tuple[_Place, list[ErrorDetails]]] = {}
    for place, details in places:
        # Of a union, the member that got furthest describes the mistake best.
        if not any(_is_inside(other.path, place.path) for other, _ in places):
            grouped.setdefault(place.text, (place, []))[1].append(details)
    findings = [_describe(place, together) for place, together in grouped.values()]
    if len(findings) == 1:
        where = ": ".join(part for part in (source, findings[0].place.text) if part)
        return ConfigError(findings[0].problem, where=where, fix=findings[0].fix)
    lines = [str(ConfigError(found.problem, where=found.place.text, fix=found.fix)) for found in findings]
    return ConfigError("\n  ".join([f"{len(findings)} problems", *lines]), where=source)


def nearest(word: str, allowed: list[str]) -> str:
    """Return `Did you mean 'x'? ` for the closest allowed word, or nothing where none is close."""
    close = difflib.get_close_matches(word.lower(), allowed, n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}? " if close else ""


def show(value: Any) -> str:
    """Return a value as YAML would name it, shortened, without credentials."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = without_credentials(repr(list(value) if isinstance(value, tuple) else value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _is_inside(longer: tuple[str | int, ...], shorter: tuple[str | int, ...]) -> bool:
    return len(longer) > len(shorter) and longer[: len(shorter)] == shorter


def _locate(model: type[Section], raw: Any, loc: tuple[str | int, ...]) -> _Place:
    place = _Place((), None, None, model, {})
    value = raw
    for step in loc:
        if place.tagged and step in place.tagged:
            place = _Place(place.path, place.owner, place.field, place.tagged[str(step)], {})
        elif place.inside is not None:
            field = place.inside.model_fields.get(str(step))
            place = _Place((*place.path, step), place.inside, field, *_opens(field))
        elif isinstance(step, int) or (isinstance(value, dict) and step in value):
            place = _Place((*place.path, step), place.owner, place.field, None, {})
        else:
            continue  # the name of a union's member: not something anybody wrote
        if place.path:
            value = _value_at(raw, place.path)
    return place


def _opens(field: FieldInfo | None) -> tuple[type[Section] | None, dict[str, type[Section]]]:
    if field is None:
        return None, {}
    if field.discriminator is not None:
        members = get_args(field.annotation)
        return None, {str(member.model_fields["kind"].default): member for member in members}
    is_section = isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    return (field.annotation if is_section else None), {}


def _value_at(raw: Any, path: tuple[str | int, ...]) -> Any:
    value = raw
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _describe(place: _Place, errors: list[ErrorDetails]) -> _Finding:
    first = errors[0]
    kind, value = first["type"], first["input"]
    if kind == "extra_forbidden":
        assert place.owner is not None
        keys = list(place.owner.model_fields)
        hint = nearest(str(place.path[-1]), keys)
        return _Finding(place, "unknown key", f"{hint}Keys here: {', '.join(keys)}.")
    if kind == "missing":
        return _Finding(place, "required but missing", _about(place.field))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _describe_tag(place, value)
    if kind == "gnnflow":
        context = first["ctx"]
        stands_alone = place.inside is not None
        text = context["text"] if stands_alone else f"{show(value)} {context['text']}"
        return _Finding(place, text, context["fix"])
    phrases = " or ".join(dict.fromkeys(_phrase(details) for details in errors))
    hint = nearest(value, _choices(place.field)) if kind == "literal_error" and isinstance(value, str) else ""
    return _Finding(place, f"{show(value)} is not allowed: {phrases}", f"{hint}{_about(place.field)}")


def _describe_tag(place: _Place, value: Any) -> _Finding:
    kinds = list(place.tagged)
    if not isinstance(value, dict):
        return _Finding(place, f"{show(value)} is not allowed: must be a mapping with a kind", f"Kinds: {', '.join(kinds)}.")
    below = _Place((*place.path, "kind"), None, None, None, {})
    if "kind" not in value:
        return _Finding(below, "required but missing", f"Kinds: {', '.join(kinds)}.")
    hint = nearest(str(value["kind"]), kinds)
    allowed = ", ".join(kinds)
    return _Finding(below, f"{show(value['kind'])} is not allowed: must be one of {allowed}", hint.strip())


def _phrase(details: ErrorDetails) -> str:
    template = _PHRASES.get(details["type"])
    return template.format(**details.get("ctx", {})) if template else details["msg"].lower()


def _choices(field: FieldInfo | None) -> list[str]:
    found: list[str] = []
    pending = [field.annotation] if field else []
    while pending:
        for part in get_args(pending.pop()):
            (found if isinstance(part, str) else pending).append(part)
    return found


def _about(field: FieldInfo | None) -> str:
    if field is None or not field.description:
        return ""
    if field.default in (PydanticUndefined, None):
        return field.description
    return f"{field.description.rstrip('.')}; the default is {show(field.default)}."
