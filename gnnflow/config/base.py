"""The base of every section: strict keys, frozen values, checked text types, and unions tagged by a key.

Values arrive as YAML scalars or as text from the environment, so numbers written as text are accepted; a
boolean where a number belongs is not, because `epochs: true` is never what was meant. A kind that is free text, such as
a user's own class, is listed as it is written: `package.module:Class`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, PydanticUndefined

from gnnflow.config.deployment import location_problem

_SIZE = re.compile(r"\d+(\.\d+)?\s*[A-Za-z]*")
LARGEST_INTEGER = 10**12  # no count of ours comes near it, and NumPy, Arrow and torch hold it
OWN_SPELLING = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PUBLISHED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:/([^/]+))?")
MAX_SEED = 2**32 - 1  # the most that every library we seed accepts


class Section(BaseModel):
    """A group of keys: unknown keys are refused, values cannot change once read.

    tag: the key by which a union chooses this section.
    """

    tag: ClassVar[str] = "kind"

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_default_kinds(cls, raw: Any) -> Any:
        """Give a section without a kind the default's, and leave out an empty section that has a default."""
        if not isinstance(raw, dict):
            return raw
        filled = dict(raw)
        for name, value in raw.items():
            field = cls.model_fields.get(name)
            if field is None or not isinstance(field.default, Section):
                continue
            if value is None and type(None) not in get_args(field.annotation):
                del filled[name]
            elif isinstance(value, dict) and field.default.tag not in value and tagged_members(field):
                filled[name] = {field.default.tag: default_kind(field), **value}
        return filled


def problem(text: str, *, key: str = "", fix: str = "", meant: Mapping[str, Any] | None = None) -> PydanticCustomError:
    """Return an error to raise inside validators; `fix` says what to do.

    A key's validator gives the text that follows the offending value; a section's gives a whole sentence and
    the key it is about, as a path within the section. meant: as in `Finding`.
    """
    return PydanticCustomError("gnnflow", "{text}", {"text": text, "key": key, "fix": fix, "meant": meant or {}})


def together(found: Sequence[PydanticCustomError]) -> PydanticCustomError:
    """Return one error of a section for several `problem`s."""
    contexts = contexts_of(found)
    return PydanticCustomError("gnnflow", "{text}", {**contexts[0], "others": contexts[1:]})


def contexts_of(found: Sequence[PydanticCustomError]) -> list[dict[str, Any]]:
    """Return the contexts of `problem`s, and of those that `together` joined."""
    contexts = [error.context or {} for error in found]
    return [each for held in contexts for each in (held, *held.get("others", ()))]


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise problem("is not allowed: must be a number, not a boolean")
    return value


def _refuse_unusable(uri: str) -> str:
    if found := location_problem(uri):
        raise problem(found.text, fix=found.fix)
    return uri


def _refuse_huge(value: int) -> int:
    if abs(value) > LARGEST_INTEGER:
        raise problem(f"is not allowed: must be at most {LARGEST_INTEGER}")
    return value


def _refuse_malformed_size(value: Any) -> Any:
    # pydantic reads what a text begins with and drops the rest
    if isinstance(value, str) and not _SIZE.fullmatch(value.strip()):
        raise problem("is not allowed: must be a size such as 512MiB or 2GiB")
    return value


Uri = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_refuse_unusable)]
Column = Annotated[str, Field(min_length=1, max_length=1024)]
Integer = Annotated[int, BeforeValidator(_refuse_boolean), AfterValidator(_refuse_huge)]
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
Fraction = Annotated[Number, Field(ge=0, lt=1)]
Size = Annotated[
    ByteSize,
    BeforeValidator(_refuse_boolean),
    BeforeValidator(_refuse_malformed_size),
    AfterValidator(_refuse_huge),
    Field(ge=0),
]


class PublishedModel(NamedTuple):
    """A published model: version is a number or an alias."""

    name: str
    version: str


def published_name(text: str) -> PublishedModel | None:
    """Return the model that NAME or NAME/VERSION names, the champion by default; None for any other text."""
    found = _PUBLISHED.fullmatch(text)
    return None if found is None else PublishedModel(found[1], found[2] or "champion")


def _refuse_unpublished(text: str) -> str:
    if published_name(text) is None:
        raise problem("does not name a published model", fix="Write NAME, for the version in service, or NAME/VERSION.")
    return text


PublishedName = Annotated[str, AfterValidator(_refuse_unpublished)]


def tag_of(kind: Any, *, own: str) -> str:
    """Return the tag of a kind in a union: the kind itself, or `own` for a user's own class or function."""
    return own if isinstance(kind, str) and OWN_SPELLING.fullmatch(kind) else str(kind)


def tagged_members(field: FieldInfo) -> dict[str, type[Section]]:
    """Return the section of each kind of a tagged union, in the order written; empty for any other field."""
    if field.discriminator is None:
        return {}
    parts = get_args(field.annotation)
    sections = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return {listed_kind(section): section for section in sections}


def map_members(field: FieldInfo) -> dict[str, type[Section]]:
    """Return the section of each kind of a map's tagged union, in the order written; empty for any other field."""
    if get_origin(field.annotation) is not dict:
        return {}
    value = get_args(field.annotation)[1]
    return tagged_members(FieldInfo.from_annotation(value))


def tag_name(members: Mapping[str, type[Section]]) -> str:
    """Return the key by which a union chooses."""
    return next(iter(members.values())).tag


def listed_kind(section: type[Section]) -> str:
    """Return a section's kind, or its example where the kind is free text."""
    kind = section.model_fields[section.tag]
    assert kind.examples or not is_free_text(section), f"{section.__name__}.{section.tag} needs a default or an example"
    return str(kind.examples[0] if kind.examples else kind.default)


def is_free_text(section: type[Section]) -> bool:
    """Return whether a section's kind is free text."""
    return section.model_fields[section.tag].default is PydanticUndefined


def default_kind(field: FieldInfo) -> Any:
    """Return the kind of a config without this field; None where the field is required."""
    return getattr(field.default, field.default.tag) if isinstance(field.default, Section) else None


def common_fields(members: Mapping[str, type[Section]]) -> dict[str, FieldInfo]:
    """Return the fields, other than the tag, that are equal in all members."""
    first, *others = (member.model_fields for member in members.values())
    tag = tag_name(members)
    return {
        name: field
        for name, field in first.items()
        if name != tag and all(repr(other.get(name)) == repr(field) for other in others)
    }
