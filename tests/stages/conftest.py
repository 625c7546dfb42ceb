"""What the tests of whole runs share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _blank_pictures(blank_pictures: None) -> None:
    """Leave the report's pictures blank in all of them."""
