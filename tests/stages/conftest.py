"""What the tests of whole runs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG

if TYPE_CHECKING:
    from io import StringIO


@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the report's pictures blank: to render them is half of a small run, and tests/report does."""

    def print_svg(_: FigureCanvasSVG, out: StringIO, **given: object) -> None:
        out.write('<svg viewBox="0 0 1 1"></svg>')

    monkeypatch.setattr(FigureCanvasSVG, "print_svg", print_svg)
