"""The trigger form, made from the config's models: dropdowns, ranges, help texts, a heading per section.

Parameters have the names of the command line (`train.lr`), so that the form, the API and `--set` agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Param
from pydantic.fields import FieldInfo

from gnnflow.config import Config, Section
from gnnflow.config.base import common_fields, default_kind, is_free_text, tag_name, tagged_members
from gnnflow.config.messages import show
from gnnflow.graph.errors import ConfigError

_FIRST = "Experiment"
# Airflow would check values by their schema, and answer with "Bad Request" or a page of JSON schema. So our schemas say
# only what the form draws, and the first task checks all values, with the config's own messages: in draft 7 a `$ref`
# hides all other rules, and this one allows everything.
_ALLOWS_ALL = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/anything",
    "definitions": {"anything": {}},
}
# Numbers are typed as text, which the first task reads: in the form's field for numbers 1e-3 becomes 13 and -3 nothing,
# since it reads each keystroke, and a number beyond a minimum or maximum is replaced by it.
_NUMBERS = {"integer", "number"}
_BOUNDS = ("maxLength",)
# pydantic keeps its name of a bound if a validator of ours comes before the number.
_SAID_BOUNDS = {
    "exclusiveMinimum": "Above",
    "gt": "Above",
    "minimum": "At least",
    "ge": "At least",
    "exclusiveMaximum": "Below",
    "lt": "Below",
    "maximum": "At most",
    "le": "At most",
}
# A scheduler can run code, so its address comes from the connection.
_NOT_FROM_A_FORM = {"cluster": ("address",)}


@dataclass(frozen=True)
class FormField:
    """One key of the config in the form. drops_none: an empty field omits the key, which does not accept null."""

    key: str
    schema: dict[str, Any]
    section: str
    default: Any = None
    required: bool = False
    drops_none: bool = False


def form_params() -> dict[str, Param]:
    """Return the form's parameters, required keys first."""
    params: dict[str, Param] = {}
    for item in sorted(form_fields(), key=lambda item: (not item.required, item.section != _FIRST)):
        described = {**item.schema, **_ALLOWS_ALL, "type": _drawn_as(item), "title": item.key}
        if item.section != _FIRST and not item.required:
            described["section"] = item.section
        params[item.key] = Param(item.default, **described)
    return params


def _drawn_as(item: FormField) -> str | list[str]:
    """Return the type whose field the form draws: text for numbers, unless one chooses among some.

    With null the field may be empty, and without it has a star; an empty field of most keys means their default.
    """
    own = item.schema["type"]
    kinds = [own] if isinstance(own, str) else own
    if "enum" not in item.schema:
        kinds = list(dict.fromkeys("string" if each in _NUMBERS else each for each in kinds))
    if item.drops_none and not item.required:
        kinds = _with_null(kinds)
    return kinds[0] if len(kinds) == 1 else kinds


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a form as nested keys: `train.lr` becomes lr in train. Unknown keys stay.

    Raises ConfigError if a key has a value and another key sets a part of it.
    """
    droppable = {item.key for item in form_fields() if item.drops_none}
    tree: dict[str, Any] = {}
    for key, value in values.items():
        if value is None and key in droppable:
            continue
        *path, name = key.split(".")
        branch = tree
        for depth, part in enumerate(path, 1):
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise _two_values(".".join(path[:depth]), part=key)
        is_map = isinstance(value, Mapping)
        if name in branch and isinstance(branch[name], Mapping) != is_map:
            raise _two_values(key, part=key)
        branch[name] = {**branch.get(name, {}), **value} if is_map else value
    return tree


def _two_values(key: str, *, part: str) -> ConfigError:
    return ConfigError(
        f"has both a value and parts of a map ({part})",
        where=key,
        fix=f"Give {key} once: as a value, or as a map where it takes one.",
    )


def form_fields() -> Iterator[FormField]:
    """Yield every key of the config that a form can show."""
    yield from _fields(Config, prefix="", section=_FIRST, required=True)


def _fields(model: type[Section], *, prefix: str, section: str, required: bool) -> Iterator[FormField]:
    schemas, asked = _schemas(model), model.model_json_schema().get("required", ())
    for name, field in model.model_fields.items():
        key, below = f"{prefix}{name}", field.annotation
        title = section if prefix else name.capitalize()
        if members := tagged_members(field):
            left_out = _NOT_FROM_A_FORM.get(key, ())
            members = {kind: member for kind, member in members.items() if kind not in left_out}
            yield from _union(key, members, default=default_kind(field), section=title)
        elif isinstance(below, type) and issubclass(below, Section):
            yield from _fields(below, prefix=f"{key}.", section=title, required=required)
        else:
            yield _plain(key, schemas[name], section=title if prefix else section, required=name in asked)


def _union(
    key: str, members: Mapping[str, type[Section]], *, default: Any, section: str, says: str = ""
) -> Iterator[FormField]:
    """Yield a choice, the keys that all kinds share, and each kind's other keys as optional fields.

    says: for a choice within a choice, a text that names the outer one; the inner choice may then stay empty too.
    """
    kind = _kind_schema(members)
    if says:
        text = f"{says}{kind['description']}. Empty means {next(iter(members))}."
        kind |= {"type": ["string", "null"], "enum": [*members, None], "description": text}
    first = None if says else default or next(iter(members))
    tag = tag_name(members)
    yield FormField(f"{key}.{tag}", kind, section, default=first, drops_none=bool(says))
    shared = common_fields(members)
    schemas = {kind: _schemas(member) for kind, member in members.items()}
    for name, field in shared.items():
        if below := tagged_members(field):
            yield from _union(f"{key}.{name}", below, default=default_kind(field), section=section)
        else:
            yield _plain(f"{key}.{name}", next(iter(schemas.values()))[name], section=section, required=False)
    own = dict.fromkeys(name for held in schemas.values() for name in held if name != tag and name not in shared)
    for name in own:
        kinds = [kind for kind, held in schemas.items() if name in held]
        field = members[kinds[0]].model_fields[name]
        if below := tagged_members(field):
            if kinds == [default]:
                # the default kind keeps its dropdown, without a default, so that other kinds may be chosen
                yield from _union(f"{key}.{name}", below, default=None, section=section, says=f"For {default}. ")
            else:
                yield _nested_choice(f"{key}.{name}", field, kinds, section=section)
            continue
        yield _own_key(f"{key}.{name}", {kind: members[kind] for kind in kinds}, schemas, section=section)


def _own_key(
    key: str, members: Mapping[str, type[Section]], schemas: Mapping[str, Mapping[str, Any]], *, section: str
) -> FormField:
    """Return a key of some kinds as a field that may stay empty, with the descriptions of all these kinds."""
    name, said = key.rpartition(".")[2], dict[str, list[str]]()
    plains = [_plain(key, schemas[kind][name], section=section, required=False) for kind in members]
    for (kind, member), plain in zip(members.items(), plains, strict=True):
        field = member.model_fields[name]
        needed = field.is_required()
        empty = (
            " Required there." if needed else "" if plain.default is None else f" Empty means {show(field.default)}."
        )
        said.setdefault(f"{plain.schema['description']}{empty}", []).append(kind)
    text = " ".join(f"For {', '.join(kinds)}. {what}" for what, kinds in said.items())
    first = plains[0]
    schema = {**first.schema, "type": _with_null(first.schema["type"]), "description": text}
    for bound in _BOUNDS:
        held = [plain.schema[bound] for plain in plains if bound in plain.schema]
        schema.pop(bound, None)
        if len(held) == len(plains):  # the first task checks narrower bounds
            schema[bound] = max(held)
    if "enum" in schema:
        schema["enum"] = list(dict.fromkeys([*schema["enum"], None]))
    return FormField(first.key, schema, section, drops_none=True)


def _nested_choice(key: str, field: FieldInfo, kinds: Sequence[str], *, section: str) -> FormField:
    """Return a choice within a choice as one JSON field, since forms have no deeper levels."""
    known = ", ".join(tagged_members(field))
    text = f"For {', '.join(kinds)}. {field.description} JSON with a kind: {known}. Empty means {default_kind(field)}."
    return FormField(key, {"type": ["object", "null"], "description": text}, section, drops_none=True)


def _kind_schema(members: Mapping[str, type[Section]]) -> dict[str, Any]:
    """Return a dropdown; if one kind is free text, a text field that proposes the others."""
    described = {kind: str(member.model_fields[member.tag].description).rstrip(".") for kind, member in members.items()}
    text = "; ".join(f"{kind}: {meaning}" for kind, meaning in described.items())
    choices = "examples" if any(map(is_free_text, members.values())) else "enum"
    return {"type": "string", choices: list(members), "description": text}


def _schemas(model: type[Section]) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each key of a section, with references resolved."""
    schema = model.model_json_schema()
    found: dict[str, dict[str, Any]] = {}
    for name, given in schema["properties"].items():
        own = {key: held for key, held in given.items() if key != "$ref"}
        named = schema["$defs"][given["$ref"].rsplit("/", 1)[-1]] if "$ref" in given else {}
        found[name] = {**named, **own}
    return found


def _choices(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the types that a value may have, nested ones too: a size is a number, a text, or null."""
    for choice in given.get("anyOf", [given]):
        yield from _choices(choice) if "anyOf" in choice else [choice]


def _plain(key: str, given: Mapping[str, Any], *, section: str, required: bool) -> FormField:
    choices = list(_choices(given))
    nullable = any(choice.get("type") == "null" for choice in choices)
    kinds = [choice for choice in choices if choice.get("type") != "null"]
    default = given.get("default")
    schema = {"description": given.get("description", "")}
    if given.get("const") is not None:
        return FormField(key, {**schema, "type": "string", "enum": [given["const"]]}, section, default=default)
    if any("const" in choice for choice in kinds):  # `all`, or a list: an empty field means the word
        items = next(choice["items"] for choice in kinds if choice.get("type") == "array")
        schema |= {"type": ["array", "null"], "examples": items.get("enum", []), "items": items}
        return FormField(key, schema, section, drops_none=True)
    first = next((choice for choice in kinds if choice.get("type") == "string"), kinds[0])
    types = list(dict.fromkeys(choice["type"] for choice in kinds))
    if len(types) == 1:
        schema |= {bound: first[bound] for bound in _BOUNDS if bound in first}
    schema |= {"enum": first["enum"]} if "enum" in first else {}
    if "array" in types and "items" in first:
        schema["items"] = {name: first["items"][name] for name in ("type", "enum") if name in first["items"]}
    said = [f"{word} {_number(first[bound])}." for bound, word in _SAID_BOUNDS.items() if bound in first]
    if len(types) > 1 and "object" in types:  # the form has one text box for all types
        said.append("A map is typed as JSON." if "string" in types else "Lists and maps are typed as JSON.")
    schema["description"] = " ".join([schema["description"], *said]).strip()
    kind = types[0] if len(types) == 1 else types
    schema["type"] = _with_null(kind) if nullable or (default is None and not required) else kind
    if "enum" in schema and nullable:
        schema["enum"] = [*schema["enum"], None]
    return FormField(key, schema, section, default=default, required=required, drops_none=not nullable)


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _with_null(kind: str | list[str]) -> list[str]:
    return list(dict.fromkeys([*([kind] if isinstance(kind, str) else kind), "null"]))
