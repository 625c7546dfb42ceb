"""What every section shares: strict keys, frozen values, and text types whose mistakes are refused early.

Values arrive as YAML scalars or as text from the environment, so numbers written as text are accepted; a
boolean where a number belongs is not, because `epochs: true` is never what was meant.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field
from pydantic_core import PydanticCustomError

from gnnflow.config.deployment import location_problem

_SIZE = re.compile(r"\d+(\.\d+)?\s*[A-Za-z]*")
LARGEST_INTEGER = 10**12  # no count of ours comes near it, and NumPy, Arrow and torch hold it
MAX_SEED = 2**32 - 1  # the most that every library we seed accepts


class Section(BaseModel):
    """A group of keys: unknown keys are refused, values cannot change once read.

    tag: of one that a union chooses, the key by which it does.
    """

    tag: ClassVar[str] = "kind"

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )


def problem(text: str, *, key: str = "", fix: str = "") -> PydanticCustomError:
    """Return an error to raise inside validators; `fix` says what to do.

    A key's validator gives the text that follows the offending value; a section's gives a whole sentence and
    the key it is about, as a path within the section.
    """
    return PydanticCustomError("gnnflow", "{text}", {"text": text, "key": key, "fix": fix})


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise problem("is not allowed: must be a number, not a boolean")
    return value


def _refuse_unusable(uri: str) -> str:
    text, fix = location_problem(uri)
    if text:
        raise problem(text, fix=fix)
    return uri


def _refuse_huge(value: int) -> int:
    if abs(value) > LARGEST_INTEGER:
        raise problem(f"is not allowed: must be at most {LARGEST_INTEGER}")
    return value


def _refuse_more_than_a_size(value: Any) -> Any:
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
    BeforeValidator(_refuse_more_than_a_size),
    AfterValidator(_refuse_huge),
    Field(ge=0),
]
