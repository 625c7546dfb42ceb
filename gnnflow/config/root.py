"""The whole configuration: its sections, which must satisfy `checks` together."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from gnnflow.config.checks import CHECKS
from gnnflow.config.sections import Sections


class Config(Sections):
    """Everything one experiment says."""

    @model_validator(mode="after")
    def _sections_go_together(self) -> Self:
        for check in CHECKS:
            check(self)
        return self
