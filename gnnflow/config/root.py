"""The whole configuration: its sections, which `checks` compare."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from gnnflow.config.base import together
from gnnflow.config.checks import problems_of
from gnnflow.config.sections import Sections


class Config(Sections):
    """The configuration of one experiment."""

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        if found := problems_of(self):
            raise together(found)
        return self
