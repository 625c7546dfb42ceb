"""What every section shares: strict keys, frozen values, and text types whose mistakes are refused early.

Values arrive as YAML scalars or as text from the environment, so numbers written as text are accepted; a
boolean where a number belongs is not, because `epochs: true` is never what was meant.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field
from pydantic_core import PydanticCustomError

# user:password@ after a scheme. A pasted password may hold a slash; host:port/path@version has no password.
CREDENTIALS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*://)[^/?#@:\s]*:(?!\d+([/?#]|$))\S*@")
MAX_SEED = 2**32 - 1  # the most that every library we seed accepts


class Section(BaseModel):
    """A group of keys: unknown keys are refused, values cannot change once read."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False, protected_namespaces=()
    )


def problem(text: str, *, key: str = "", fix: str = "") -> PydanticCustomError:
    """Return an error to raise inside validators; `fix` says what to do.

    A key's validator gives the text that follows the offending value; a section's gives a whole sentence and
    the key it is about, as a path within the section.
    """
    return PydanticCustomError("gnnflow", "{text}", {"text": text, "key": key, "fix": fix})


def without_credentials(text: str) -> str:
    """Return the text with the user and password of any URL in it replaced by dots."""
    return CREDENTIALS.sub(r"\g<scheme>...@", text)


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        raise problem("is not allowed: must be a number, not a boolean")
    return value


def _refuse_credentials(uri: str) -> str:
    if CREDENTIALS.search(uri):
        raise problem(
            "holds a user and password, which would be copied into every run's record",
            fix="Remove them and give them to the storage library through the environment "
            "(for s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile).",
        )
    return uri


def _refuse_pattern(uri: str) -> str:
    if any(symbol in uri for symbol in "*?["):
        raise problem(
            "is not allowed: object stores read * ? [ as a pattern that names many places",
            fix="Give one folder or URL without these characters.",
        )
    return uri


Uri = Annotated[str, Field(min_length=1), AfterValidator(_refuse_credentials)]
WorkspaceUri = Annotated[Uri, AfterValidator(_refuse_pattern)]
Column = Annotated[str, Field(min_length=1)]
Integer = Annotated[int, BeforeValidator(_refuse_boolean)]
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
Fraction = Annotated[Number, Field(ge=0, lt=1)]
Size = Annotated[ByteSize, Field(ge=0)]
