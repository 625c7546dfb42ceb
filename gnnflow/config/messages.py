"""pydantic's errors as messages that a person can act on: YAML path, value, allowed values, the nearest key.

A location such as `("flat", "sampling", "uniform", "fanout", 0)` mixes keys with the tags and member names of
unions, so it is walked along the models, which know which is which.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ByteSize, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from gnnflow.config.base import Section, is_free_text, map_members, tag_name, tagged_members
from gnnflow.config.environment import mask_values
from gnnflow.graph.errors import ConfigError
from gnnflow.graph.secrets import mask_secrets

# The required form of a value, as a phrase that follows "must be".
_MUST_BE = {
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "byte_size": "a size such as 512MiB or 2GiB",
    "byte_size_unit": "a size such as 512MiB or 2GiB",
    "greater_than": "greater than {gt:.15g}",
    "greater_than_equal": "at least {ge:.15g}",
    "less_than": "less than {lt:.15g}",
    "less_than_equal": "at most {le:.15g}",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "letters, digits, dots, dashes and underscores after a first letter or digit",
    "string_unicode": "UTF-8 text",
    "string_too_short": "longer than nothing",
    "string_too_long": "at most {max_length} characters long",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of at most {max_length}",
}
# Words of other libraries for our keys.
_OTHER_WORDS = {
    "batch": "train.batch_size",
    "early_stopping": "train.patience",
    "edge_attr": "graph.edge_features",
    "fanouts": "neighbors.sampling.fanout",
    "hidden_channels": "model.hidden",
    "hidden_dim": "model.hidden",
    "id_column": "graph.id",
    "label_column": "graph.label",
    "learning_rate": "train.lr",
    "num_epochs": "train.epochs",
    "num_heads": "model.heads",
    "num_layers": "model.layers",
    "num_neighbors": "neighbors.sampling.fanout",
    "split_column": "graph.split",
    "target_column": "graph.label",
    "undirected": "graph.reverse_edges",
}
_LONGEST_VALUE = 100
_EQUALITY = re.compile(r"""\s*(?P<key>\w+)\s*={1,2}\s*(?P<quote>['"]?)(?P<value>[^'"=]+?)(?P=quote)\s*""")
_NUMBER = re.compile(r"[+-]?[0-9]+([.][0-9]+)?")
_MISSING = "required but missing"
_MOST_HOMES = 4
_SHORTEST_HELD = 3  # letters of a kind, or of a short form, that a longer word holds
_VOWELS = frozenset("aeiou")
_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class _Place:
    """The state of a walk along the models: the keys so far, the owner of the last one, and what may come next.

    siblings: all kinds of the union whose kind the owner (or `inside`) is. tagged: the kinds that may come next.
    """

    path: _Path
    owner: type[Section] | None = None
    field: FieldInfo | None = None
    inside: type[Section] | None = None
    siblings: dict[str, type[Section]] = dataclasses.field(default_factory=dict)
    tagged: dict[str, type[Section]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """One mistake in a config.

    names_kind: the key chooses the section's kind, so the section's other keys are unknown. meant: what the user most
    likely meant: another `name` of the key, another `value`, or a list without an `item`.
    """

    path: _Path
    problem: str
    fix: str
    names_kind: bool = False
    meant: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def error(self, *, source: str = "") -> ConfigError:
        """Return it as an error of the file `source`."""
        where = ": ".join(part for part in (source, path_text(self.path)) if part)
        return ConfigError(self.problem, where=where, fix=self.fix)


def explain(error: ValidationError, raw: Any, *, model: type[Section], source: str = "") -> ConfigError:
    """Return one ConfigError for everything pydantic found in `raw`, the mapping validated as `model`.

    It shows variables by their names, never their values.
    """
    found = findings_of(error, raw, model=model)
    return join_errors([mask_values(each.error(source=source), raw) for each in found], source=source)


def join_errors(errors: Sequence[ConfigError], *, source: str = "") -> ConfigError:
    """Return one error for one error or several of the file `source`."""
    if len(errors) == 1:
        return errors[0]
    lines = [str(error).removeprefix(f"{source}: ") for error in errors]
    return ConfigError("\n  ".join([f"{len(errors)} keys are wrong:", *lines]), where=source)


def findings_of(error: ValidationError, raw: Any, *, model: type[Section]) -> list[Finding]:
    """Return everything pydantic found in `raw`, the mapping validated as `model`."""
    places = [(_locate(model, raw, details["loc"]), details) for details in error.errors(include_url=False)]
    grouped: dict[_Path, tuple[_Place, list[ErrorDetails]]] = {}
    for place, details in places:
        # Of a union, the member that got furthest describes the mistake best.
        path = place.path
        if not any(len(other.path) > len(path) and other.path[: len(path)] == path for other, _ in places):
            grouped.setdefault(place.path, (place, []))[1].append(details)
    found = [each for place, together in grouped.values() for each in _describe(place, together, root=model)]
    # a misspelt key is one mistake, and no missing one
    written = {(*each.path[:-1], each.meant["name"]) for each in found if "name" in each.meant}
    return [each for each in found if each.problem != _MISSING or each.path not in written]


def path_text(path: _Path) -> str:
    """Return a path as people write it: neighbors.sampling.fanout[0]."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def nearest(word: str, allowed: Sequence[str]) -> str:
    """Return `Did you mean 'x'?` for the closest allowed word, or nothing where none is close."""
    close = closest(word, allowed)
    return f"Did you mean {close!r}?" if close else ""


def closest(word: str, allowed: Sequence[str]) -> str:
    """Return the closest allowed word, "" where none is close."""
    alike = [each for each in allowed if each.strip().lower() == word.strip().lower()]
    close = alike or difflib.get_close_matches(word.lower(), allowed, n=1, cutoff=0.6)
    return next(iter(close or [each for each in allowed if is_short_for(each, word)]), "")


def is_short_for(short: str, word: str) -> bool:
    """Return whether a text without vowels is short for a word, as dst is: its letters in order, the first too."""
    if len(short) < _SHORTEST_HELD or short[:1] != word[:1] or _VOWELS & {*short}:
        return False
    letters = iter(word)
    return all(letter in letters for letter in short)


def show(value: Any) -> str:
    """Return a value about as YAML writes it, shortened, without credentials."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, ByteSize):
        return _show_size(value)
    text = mask_secrets(repr(list(value) if isinstance(value, tuple) else value))
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _show_size(size: int) -> str:
    """Return bytes exactly, in the largest unit that divides them."""
    units = ("", "KiB", "MiB", "GiB", "TiB")
    power = max((each for each in range(len(units)) if size and size % 1024**each == 0), default=0)
    return f"{size // 1024**power}{units[power]}"


def _locate(model: type[Section], raw: Any, loc: _Path) -> _Place:
    place = _Place((), inside=model)
    for step in loc:
        if step in place.tagged:
            place = _Place(place.path, place.owner, place.field, place.tagged[str(step)], place.tagged)
        elif place.inside is not None:
            place = _enter(place.inside, (*place.path, step), place.siblings)
        elif member := _member(place.field, step):
            place = dataclasses.replace(place, inside=member)
        elif isinstance(step, int) or _holds(raw, place.path, step):
            kinds = map_members(place.field) if place.field else {}
            place = _Place((*place.path, step), place.owner, place.field, tagged=kinds)
        # Any other step is the name of a union's member, which the user did not write.
    return place


def _enter(section: type[Section], path: _Path, siblings: dict[str, type[Section]]) -> _Place:
    field = section.model_fields.get(str(path[-1]))
    if field is None:
        return _Place(path, section, siblings=siblings)
    below: Any = field.annotation
    inside = below if isinstance(below, type) and issubclass(below, Section) else None
    return _Place(path, section, field, inside, tagged=tagged_members(field))


def _member(field: FieldInfo | None, name: str | int) -> type[Section] | None:
    """Return the section of this name in a field that takes other values too, such as true; None without one."""
    members = get_args(field.annotation) if field else ()
    return next(
        (each for each in members if isinstance(each, type) and issubclass(each, Section) and each.__name__ == name),
        None,
    )


def _holds(raw: Any, path: _Path, key: str) -> bool:
    value = raw
    for step in path:
        value = value[step]
    return isinstance(value, dict) and key in value


def _describe(place: _Place, errors: list[ErrorDetails], *, root: type[Section]) -> list[Finding]:
    kind, value = errors[0]["type"], errors[0]["input"]
    match kind:
        case "extra_forbidden":
            return [_describe_unknown(place, root)]
        case "missing":
            return [Finding(place.path, _MISSING, _about(place.field))]
        case "union_tag_invalid" | "union_tag_not_found" | "model_attributes_type" if place.tagged:
            return [_describe_kind(place, value)]
        case "gnnflow":
            context = errors[0]["ctx"]
            return [_describe_problem(place, value, each) for each in (context, *context.get("others", ()))]
    must = " or ".join(dict.fromkeys(_must_be(details) for details in errors))
    hint = ""
    meant: dict[str, Any] = {}
    if isinstance(value, str) and kind == "tuple_type":
        meant = {"value": _items(value)}
    if kind == "string_type" and isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        hint, meant = f"Write {show(value[0])}.", {"value": value[0]}
    if kind == "dict_type" and isinstance(value, str) and (found := _EQUALITY.fullmatch(value)):
        meant = {"value": {found["key"]: found["value"]}}
        hint = f"Write {{{found['key']}: {found['value']}}}."
    if isinstance(value, str) and kind in {"literal_error", "tuple_type"}:
        is_word = kind == "literal_error"
        hint = _hint(value, _choices(place.field)) if is_word else f"Write [{', '.join(_items(value))}]."
    problem = f"{show(value)} is not allowed: must be {must}"
    return [Finding(place.path, problem, f"{hint} {_about(place.field)}".strip(), meant=meant)]


def _items(text: str) -> list[str]:
    """Return the items of a list that was written as text: apart by commas, numbers by spaces too."""
    words = text.replace(",", " ").split()
    return words if all(map(_NUMBER.fullmatch, words)) else [each.strip() for each in text.split(",")]


def _hint(value: str, choices: Sequence[str]) -> str:
    """Return the nearest choice; an allowed word that belongs in a list is shown in brackets."""
    return f"Did you mean [{value}]?" if value in choices else nearest(value, choices)


def _describe_unknown(place: _Place, root: type[Section]) -> Finding:
    assert place.owner is not None
    key, keys = str(place.path[-1]), list(place.owner.model_fields)
    here = f"Keys here: {', '.join(keys)}."
    if kinds := [kind for kind, section in place.siblings.items() if key in section.model_fields]:
        tag = path_text((*place.path[:-1], tag_name(place.siblings)))
        own = next(kind for kind, section in place.siblings.items() if section is place.owner)
        fix = f"{here} Kinds with {key}: {', '.join(kinds)}."
        return Finding(place.path, f"unknown key where {tag} is {own}", fix)
    if key in _OTHER_WORDS:
        return Finding(place.path, "unknown key", f"Write it as {_OTHER_WORDS[key]}. {here}")
    elsewhere = [path for path in _homes(root, key) if path != path_text(place.path)]
    homes = f"{key} is a key elsewhere: {', '.join(elsewhere[:_MOST_HOMES])}." if elsewhere else ""
    homes = f"{homes} {_kind_home(root, key)}".strip()
    near = closest(key, keys)
    meant = {"name": near} if near and (not elsewhere or is_short_for(near, key)) else {}
    return Finding(place.path, "unknown key", " ".join(filter(None, (nearest(key, keys), homes, here))), meant=meant)


def _kind_home(root: type[Section], kind: str) -> str:
    """Return the section of several kinds that has a kind of this name, as a sentence; "" without one."""
    of_kinds = [(name, tagged_members(field)) for name, field in root.model_fields.items()]
    found = [f"{name}: {{{tag_name(members)}: {kind}}}" for name, members in of_kinds if kind in members]
    return f"{kind} is a kind: {', '.join(found)}." if found else ""


def _homes(section: type[Section], key: str, path: str = "") -> list[str]:
    """Return the places of a key below a section, each with the kinds that have it where only some do."""
    found = [f"{path}{key}"] if key in section.model_fields else []
    for name, field in section.model_fields.items():
        members = tagged_members(field)
        if not members:
            below = field.annotation
            if isinstance(below, type) and issubclass(below, Section):
                found += _homes(below, key, f"{path}{name}.")
            continue
        kinds = [kind for kind, member in members.items() if key in member.model_fields]
        if kinds and key != tag_name(members):
            some = f" ({tag_name(members)}: {', '.join(kinds)})" if len(kinds) < len(members) else ""
            found.append(f"{path}{name}.{key}{some}")
        below_kinds = (home for member in members.values() for home in _homes(member, key, f"{path}{name}."))
        found += [home for home in below_kinds if not home.startswith(f"{path}{name}.{key}")]
    return list(dict.fromkeys(found))


def _describe_problem(place: _Place, value: Any, context: Mapping[str, Any]) -> Finding:
    if place.inside is None and not context["key"]:
        return Finding(place.path, f"{show(value)} {context['text']}", context["fix"])
    below = context["key"].split(".") if context["key"] else []
    return Finding((*place.path, *below), context["text"], context["fix"], meant=context["meant"])


def _describe_kind(place: _Place, value: Any) -> Finding:
    kinds, tag = ", ".join(place.tagged), tag_name(place.tagged)
    if not isinstance(value, dict):
        problem = f"{show(value)} is not allowed: must be a mapping of keys with a {tag}"
        return Finding(place.path, problem, f"Kinds: {kinds}.")
    path = (*place.path, tag)
    if tag not in value:
        return Finding(path, "required but missing", f"Kinds: {kinds}.", names_kind=True)
    problem = f"{show(value[tag])} is not allowed: must be one of {kinds}"
    words = [kind for kind, section in place.tagged.items() if not is_free_text(section)]
    free = [section.model_fields[tag] for section in place.tagged.values() if is_free_text(section)]
    close = _closest_kind(str(value[tag]), words)
    fix = f"Did you mean {close!r}?" if close else " ".join(map(_about, free))
    return Finding(path, problem, fix, names_kind=True, meant=_value(close))


def _closest_kind(word: str, kinds: Sequence[str]) -> str:
    """Return the kind that a word begins or ends with, as GATConv and GraphSAGE do, or else the closest one."""
    lower = word.lower()
    held = [kind for kind in kinds if len(kind) >= _SHORTEST_HELD and (lower.startswith(kind) or lower.endswith(kind))]
    return max(held, key=len, default="") or closest(word, kinds)


def _value(meant: str) -> Mapping[str, Any]:
    return {"value": meant} if meant else {}


def _must_be(details: ErrorDetails) -> str:
    template = _MUST_BE.get(details["type"])
    return template.format(**details.get("ctx", {})) if template else f"valid ({details['msg'].lower()})"


def _choices(field: FieldInfo | None) -> list[str]:
    found: list[str] = []
    pending: list[Any] = [field.annotation] if field else []
    while pending:
        for part in get_args(pending.pop()):
            (found if isinstance(part, str) else pending).append(part)
    return found


def _about(field: FieldInfo | None) -> str:
    if field is None or not field.description:
        return ""
    if field.default in (PydanticUndefined, None) or isinstance(field.default, Section):
        return field.description
    return f"{field.description.rstrip('.')}; the default is {show(field.default)}."
