"""Colours by meaning, drawn as placeholders and resolved by the page's stylesheet.

matplotlib writes fixed colours; a page has a light, a dark and a printed look. So every picture is drawn in
placeholder colours, one unique hexadecimal value per role, and `themed` turns each into the stylesheet's
variable of that role.
"""

from __future__ import annotations

import re

_ROLES = (
    "ink",  # text that matters
    "muted",  # axis labels, notes
    "line",  # axes
    "grid",
    "paper",  # what a picture lies on
    "accent",  # the model, what was computed
    "warm",  # hubs, the other series, what to notice
    "quiet",  # the baseline, what was reused
    "onaccent",  # text on a strong accent
    *(f"class{index}" for index in range(10)),
    *(f"ramp{index}" for index in range(5)),
)
NUM_CLASS_COLOURS = 10
NUM_RAMP_COLOURS = 5
_HEX = {role: f"#0d5e{index:02x}" for index, role in enumerate(_ROLES)}
_BY_HEX = {value: role for role, value in _HEX.items()}
_PLACEHOLDER = re.compile(r"#0d5e[0-9a-f]{2}")


def colour(role: str) -> str:
    """Return the placeholder to draw a role in."""
    return _HEX[role]


def themed(svg: str) -> str:
    """Replace every placeholder by the stylesheet's variable of its role."""
    return _PLACEHOLDER.sub(lambda found: f"var(--{_BY_HEX[found.group()]})", svg)
