"""Unions tagged by a key, mostly `kind`: the sections that a field chooses from, for messages, reference and form.

A kind that is free text, such as a class of one's own, is listed as it is written: `package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gnnflow.config.base import Section


def tagged_members(field: FieldInfo) -> dict[str, type[Section]]:
    """Return kind -> section of a tagged union, in the order written; empty for any other field."""
    if field.discriminator is None:
        return {}
    parts = get_args(field.annotation)
    sections = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return {listed_kind(section): section for section in sections}


def tag_name(members: Mapping[str, type[Section]]) -> str:
    """Return the key by which a union chooses."""
    return next(iter(members.values())).tag


def listed_kind(section: type[Section]) -> str:
    """Return a section's kind, or the example of it where the kind is free text."""
    kind = section.model_fields[section.tag]
    assert kind.examples or not is_free(section), f"{section.__name__}.{section.tag} needs a default or an example"
    return str(kind.examples[0] if kind.examples else kind.default)


def is_free(section: type[Section]) -> bool:
    """Return whether a section's kind is free text."""
    return section.model_fields[section.tag].default is PydanticUndefined


def default_kind(field: FieldInfo) -> Any:
    """Return the kind that a config without this field gets; None where it must choose."""
    return getattr(field.default, field.default.tag) if isinstance(field.default, Section) else None


def common_fields(members: Mapping[str, type[Section]]) -> dict[str, FieldInfo]:
    """Return the fields beside the tag that all members have and mean alike."""
    first, *others = (member.model_fields for member in members.values())
    tag = tag_name(members)
    return {
        name: field
        for name, field in first.items()
        if name != tag and all(repr(other.get(name)) == repr(field) for other in others)
    }
